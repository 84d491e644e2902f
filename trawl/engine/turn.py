"""One granted entry on its way: its cancel scope, and how far it has come."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import trio

from trawl.frontier import Record
from trawl.http import Outcome, Request, Times
from trawl.scheduler import Entry

if TYPE_CHECKING:
    from trawl.engine.admission import Needs

__all__ = ["Answer", "Original", "Turn", "Waiter", "current_turn", "in_pipelines"]

Answer = Callable[[Request], Awaitable[Outcome]]
"""Answers a request in place of the wire."""


class Waiter(Protocol):
    """Who gets the outcome of a direct entry, in place of a callback."""

    turn: Turn | None
    entry: Entry | None

    def deliver(self, outcome: Outcome) -> None:
        """Take the outcome; must not wait."""
        ...


class Original:
    """A request as it was when its turn came: a middleware may change it, or hand on another."""

    __slots__ = ("_body", "_meta", "_method", "url")

    def __init__(self, request: Request) -> None:
        self.url: str = request.url
        self._method = request.method
        self._body = request.body
        self._meta = dict(request.meta) if request.has_meta else _NO_META

    def differs_from(self, request: Request) -> bool:
        """Whether ``request`` has another method, URL, body or meta; its headers and cookies do not count."""
        if request.url != self.url or request.method != self._method or request.body != self._body:
            return True
        before = self._meta
        if not request.has_meta:
            return bool(before)
        now = request.meta
        # The very values: who compares them by == asks a user's class, or an array, what equal means.
        return len(now) != len(before) or any(before.get(key, _ABSENT) is not value for key, value in now.items())

    def looks_like(self, request: Request) -> bool:
        """Whether ``request`` asks for the same: by its method, URL and body, in the same session."""
        is_same = (request.url, request.method, request.body) == (self.url, self._method, self._body)
        return is_same and request.meta_get("session") == self._meta.get("session")


_NO_META: dict[str, Any] = {}
_ABSENT = object()


class Turn:
    """One entry from its grant to its end, in one task.

    Attributes:
        entry: What was granted.
        before: Its request as it was then.
        diverted: What the request needs that its middleware has made of it; None: nothing else than was granted.
        is_stopped: It was not sent, because its grant was for another request.
        cancel_scope: The task's own: cancelling it ends this request and no other.
        answer: Answers it in place of the wire; None: it is sent.
        read_at: When the body had been read, or the error came; None before.
        times: Where its time went so far; None where nothing was sent, nor answered in place of the wire.
        is_used: The transport was asked: one turn is one send.
        holds_places: Its places are taken.
        is_counted: Its response was counted as a page.
        is_decided: Whether it was one is known.
        is_done: It ended by itself, its outputs are stored.
    """

    __slots__ = (
        "answer",
        "before",
        "cancel_scope",
        "diverted",
        "entry",
        "holds_places",
        "is_counted",
        "is_decided",
        "is_done",
        "is_stopped",
        "is_used",
        "read_at",
        "times",
    )

    def __init__(self, entry: Entry) -> None:
        self.entry: Entry = entry
        self.before: Original = Original(entry.request)
        self.diverted: Needs | None = None
        self.is_stopped: bool = False
        self.cancel_scope: trio.CancelScope = trio.CancelScope()
        self.answer: Answer | None = None
        self.read_at: float | None = None
        self.times: Times | None = None
        self.is_used: bool = False
        self.holds_places: bool = True
        self.is_counted: bool = False
        self.is_decided: bool = False
        self.is_done: bool = False

    @property
    def lease(self) -> Record:
        """The frontier's lease; a page entry has one, a direct one has none."""
        lease = self.entry.lease
        assert isinstance(lease, Record)
        return lease


current_turn: ContextVar[Turn | None] = ContextVar("trawl_turn", default=None)
"""The turn whose task this is: the innermost fetch finds its entry by it, and a direct fetch its parent."""

in_pipelines: ContextVar[bool] = ContextVar("trawl_in_pipelines", default=False)
"""Whether this task takes an item through the pipelines: what they fetch, a page may have named."""
