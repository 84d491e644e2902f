"""Calls of users' objects in the middle of a decision.

A scope manager or a strategy that fails is the user's failure: it is logged and counted, and the default is used. If it
were raised, a refusal would go unnoticed, and the end of a window would end the crawl.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from inspect import iscoroutine
from typing import Any

__all__ = ["OnFailure", "call_user", "call_user_number", "ignore_failure", "log_failure"]

logger: logging.Logger = logging.getLogger("trawl.throttling")

OnFailure = Callable[[], None]
"""Called at each failure."""


def ignore_failure() -> None:
    """Do nothing: the default :data:`OnFailure`."""


def call_user(owner: object, name: str, failed: OnFailure, *about: object) -> Any:
    """Call the method ``name`` of ``owner``. Returns None, "use the default", if there is none or it raises.

    A decision cannot wait: a method that is ``async`` fails, too.
    """
    method = getattr(owner, name, None)
    if method is None:
        return None
    try:
        answer = method(*about)
        if iscoroutine(answer):
            answer.close()
            raise TypeError(f"{name}() is async, but a decision cannot wait; make it a plain function")
        return answer
    except Exception:
        log_failure(owner, name, failed)
        return None


def call_user_number(
    owner: object, name: str, failed: OnFailure, *about: object, is_finite: bool = False
) -> float | None:
    """Call a method that returns a number. Anything else is a failure; so is NaN, and with ``is_finite`` infinity."""
    answer = call_user(owner, name, failed, *about)
    if answer is None:
        return None
    try:
        number = float(answer)
        if math.isnan(number) or (is_finite and math.isinf(number)):
            raise ValueError(f"{name}() returned {answer!r}, which is not a number")
    except (TypeError, ValueError, OverflowError):
        log_failure(owner, name, failed)
        return None
    return number


def log_failure(owner: object, name: str, failed: OnFailure) -> None:
    """Log, in an exception's handler, that the method ``name`` of ``owner`` failed, and tell ``failed``."""
    logger.exception("%s.%s() failed: using the default", type(owner).__qualname__, name)
    failed()
