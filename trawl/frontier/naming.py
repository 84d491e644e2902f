"""Callbacks by name: what a job stores in place of a function, and how it is found again.

Only what the spider itself has under a name can be stored: its methods. A name is looked up on the spider and nowhere
else, and must be a method there, so that what a job's directory holds can call nothing but the spider's own callbacks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["CallbackNames"]


class CallbackNames:
    """The names of one spider's callbacks.

    Args:
        spider: Whose methods the callbacks are.
    """

    __slots__ = ("_callbacks", "_names", "_spider")

    def __init__(self, spider: object) -> None:
        self._spider = spider
        self._names: dict[object, str] = {}
        self._callbacks: dict[str, Callable[..., Any]] = {}

    def name_of(self, callback: Callable[..., Any] | None, role: str) -> str | None:
        """The name under which the spider has ``callback``; None for None.

        Args:
            callback: A request's callback or errback.
            role: Which of the two, for the error.

        Raises:
            ValueError: The spider has it under no name; the sentence says what to do.
        """
        if callback is None:
            return None
        function = getattr(callback, "__func__", None)
        if function is None or getattr(callback, "__self__", None) is not self._spider:
            return self._found(callback, role)
        name = self._names.get(function)
        if name is None:
            name = self._names[function] = self._found(callback, role)
        return name

    def callback(self, name: str | None) -> Callable[..., Any] | None:
        """The spider's method of that name; None for None.

        Raises:
            LookupError: The spider has no such method: it was changed since, or the name is no callback's.
        """
        if name is None:
            return None
        callback = self._callbacks.get(name)
        if callback is None:
            callback = None if _is_special(name) else getattr(self._spider, name, None)
            if callback is None or not (inspect.ismethod(callback) or inspect.isfunction(callback)):
                raise LookupError(f"the spider {type(self._spider).__name__} has no method {name!r}")
            self._callbacks[name] = callback
        return callback

    def _found(self, callback: Callable[..., Any], role: str) -> str:
        for name in self._candidates(callback):
            if not _is_special(name) and getattr(self._spider, name, None) == callback:
                return name
        shown = getattr(callback, "__qualname__", None) or repr(callback)
        raise ValueError(
            f"{role} {shown} is no method of the spider, and a job stores callbacks by their name: make it a method of"
            f" {type(self._spider).__name__}, and give what it needs besides as cb_kwargs"
        )

    def _candidates(self, callback: Callable[..., Any]) -> Iterator[str]:
        """Names that it may have: its own, that name made private to a class, and any it was given by assignment."""
        name = getattr(callback, "__name__", None)
        classes = type(self._spider).__mro__
        if isinstance(name, str):
            yield name
            yield from (f"_{kind.__name__.lstrip('_')}{name}" for kind in classes if name.startswith("__"))
        function = getattr(callback, "__func__", callback)
        for kind in classes:
            yield from (key for key, value in vars(kind).items() if value is function)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
