"""The spider of the chaos test. Callbacks of some pages kill or block their process, or eat its memory."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.histories.spider import Linked
from tests.histories.world import LEASE
from trawl.http import Response

__all__ = ["CALLBACKS", "Chaotic"]

MEMORY = 400 << 20
"""Bytes that a callback eats, and the memory that a process may have more than at its start."""

_EATEN: list[bytearray] = []


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _exit() -> None:
    os._exit(0)


def _block() -> None:
    time.sleep(1.5 * LEASE)


def _hold() -> None:
    """Block in C code that keeps Python's global lock, so that no thread can renew the lease."""
    ctypes.PyDLL(None).sleep(int(2 * LEASE))


def _eat() -> None:
    _EATEN.append(bytearray(b"x") * (2 * MEMORY))


CALLBACKS: Mapping[str, tuple[Callable[[], None], bool]] = {
    "kills": (_kill, False),
    "exits": (_exit, False),
    "kills once": (_kill, True),
    "blocks": (_block, True),
    "holds": (_hold, False),
    "holds once": (_hold, True),
    "eats": (_eat, True),
}
"""What the callback of a page does, and whether only at the first time. If it always ends the process, the page fails.

Blocking ends in time if a thread renews the lease.
"""


class Chaotic(Linked):
    """Crawls the site of :mod:`tests.histories.site`.

    Args:
        start: The first page.
        faults: What the callbacks of some pages do, by URL, as JSON.
    """

    name = "chaotic"

    def __init__(self, start: str, faults: str, **arguments: Any) -> None:
        super().__init__(start, **arguments)
        self._faults: Mapping[str, str] = json.loads(faults)

    def parse(self, response: Response) -> Iterator[Any]:
        """Run the fault of the page, yield the page as an item, and follow its links."""
        if fault := self._faults.get(response.url):
            act, is_once = CALLBACKS[fault]
            mark = Path(f"done-{fault.replace(' ', '-')}")
            if not (is_once and mark.exists()):
                mark.touch()
                act()
        yield from super().parse(response)
