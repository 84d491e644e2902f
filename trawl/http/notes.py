"""Notes of the crawl on a request: what it has to remember of one request, and the spider does not see.

A request's meta is the spider's; in it is what the documentation names. All else that the throttle, the middleware or
the engine notes of a request is here. Notes go along with :meth:`~trawl.http.request.Request.replace`, and a job stores
them. A new request that was given the meta of another has none: :mod:`trawl.engine.leases` sees to what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from trawl.http.request import Request

__all__ = ["NO_NOTES", "RequestNotes", "note", "notes_of", "set_notes", "with_meta_or_notes"]


class RequestNotes(msgspec.Struct, frozen=True, kw_only=True):
    """The notes of one request.

    Attributes:
        refused_at: When it was refused last, in epoch seconds; None: never.
        refusals: How often it was told to come back later while its scope served others.
        is_bad_page: It was refused on a scope that answered others well before and since.
        is_uncounted: It failed before, and that was not counted for want of a good answer.
        admitted_at: When it was admitted to a scope that had been given up before, in epoch seconds; None: to none.
        proxy: The proxy in its meta, if the crawl has chosen that; None: the spider has, or there is none.
        through: The scope of its site through that proxy, if the proxy is one of a rotating list; else "". It is noted
            at each send, and not stored.
        keeps_proxy: It was not sent through that proxy yet, and may wait for the scope of it.
        session: The session that has given it headers or a proxy; None: none has.
        told_slot: The ``download_slot`` that the crawl has written into its meta, which chooses no scope; "": none.
        needs_new_connection: It met a dead connection, and must not be sent on another old one.
        bypasses_cache: An answer to it was refused, or can't be read from the cache: only the server may answer it.
        vouched: Which private addresses start requests have vouched for when it was found: ``all``, those of its
            ``host``, or "" for none. A run that does not read ``start()`` knows it from here.
    """

    refused_at: float | None = None
    refusals: int = 0
    is_bad_page: bool = False
    is_uncounted: bool = False
    admitted_at: float | None = None
    proxy: str | None = None
    through: str = ""
    keeps_proxy: bool = False
    session: str | None = None
    told_slot: str = ""
    needs_new_connection: bool = False
    bypasses_cache: bool = False
    vouched: str = ""

    def for_target(self) -> RequestNotes:
        """Return the notes of a redirect's target: the refusals were those of the redirected request."""
        return RequestNotes(
            admitted_at=self.admitted_at, proxy=self.proxy, session=self.session, told_slot=self.told_slot
        )

    def for_copied_meta(self) -> RequestNotes:
        """Return the notes of a new request with the same meta: what the crawl has put there is still its choice."""
        return RequestNotes(proxy=self.proxy, session=self.session, told_slot=self.told_slot)


NO_NOTES = RequestNotes()


def notes_of(request: Request) -> RequestNotes:
    """Return the notes of a request; :data:`NO_NOTES` where there are none."""
    return NO_NOTES if request._optional is None else request._optional.get("notes", NO_NOTES)


def with_meta_or_notes(requests: Iterable[Request]) -> list[Request]:
    """Return the requests that may have meta or notes: of all that a page gives, few do."""
    return [request for request in requests if request._meta or request._optional]


def set_notes(request: Request, notes: RequestNotes) -> None:
    """Give a request these notes instead of its own."""
    if notes != NO_NOTES:
        if request._optional is None:
            request._optional = {}
        request._optional["notes"] = notes
    elif request._optional is not None:
        request._optional.pop("notes", None)


def note(request: Request, **changes: Any) -> None:
    """Change some of the notes of a request.

    Raises:
        TypeError: :class:`RequestNotes` has no such field.
    """
    set_notes(request, msgspec.structs.replace(notes_of(request), **changes))
