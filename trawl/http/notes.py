"""The crawl's notes on a request: state that the crawl stores per request and that the spider does not see.

A request's meta belongs to the spider, and contains only the documented keys. All other state that the throttle, the
middleware or the engine stores per request is here. :meth:`~trawl.http.request.Request.replace` copies the notes, and a
job stores them. A new request with the meta of another request has no notes. :mod:`trawl.engine.leases` adds the notes
that it needs.
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
        refused_at: Wall time of the last refusal, in seconds since the epoch; None if it was never refused.
        refusals: Number of refusals while its scope served other requests.
        is_bad_page: Whether it was refused on a scope that served other requests before and after.
        is_uncounted: Whether it failed before without being counted, because no good response had come.
        admitted_at: Wall time of its admission to a scope that had been given up, in seconds since the epoch; None
            otherwise.
        proxy: The proxy in its meta, if the crawl has chosen it; None if the spider has, or if there is none.
        through: The scope of its site through that proxy, if the proxy is from a rotating list; "" otherwise. Set at
            each send, and not stored.
        keeps_proxy: Whether it was not sent through that proxy yet, and may wait for the proxy's scope.
        session: The session that has set its headers or proxy; None if none has.
        told_slot: The ``download_slot`` that the crawl has written into its meta, which does not choose a scope; "" if
            none.
        needs_new_connection: Whether it met a dead connection, and must not be sent on another kept one.
        bypasses_cache: Whether only the server may respond, because a cached response was refused or can't be read.
        vouched: The private addresses that start requests had allowed by the time this request was found: ``all``,
            ``host`` for its host's addresses, or "" for none. A run that does not read ``start()`` reads this instead.
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
        """Return the notes of a redirect's target, without the refusals of the redirected request."""
        return RequestNotes(
            admitted_at=self.admitted_at, proxy=self.proxy, session=self.session, told_slot=self.told_slot
        )

    def for_copied_meta(self) -> RequestNotes:
        """Return the notes of a new request with the same meta, so that the crawl's choices in it are still known."""
        return RequestNotes(proxy=self.proxy, session=self.session, told_slot=self.told_slot)


NO_NOTES = RequestNotes()


def notes_of(request: Request) -> RequestNotes:
    """Return the notes of a request; :data:`NO_NOTES` if it has none."""
    return NO_NOTES if request._optional is None else request._optional.get("notes", NO_NOTES)


def with_meta_or_notes(requests: Iterable[Request]) -> list[Request]:
    """Return the requests that may have meta or notes, which are few of the requests of a page."""
    return [request for request in requests if request._meta or request._optional]


def set_notes(request: Request, notes: RequestNotes) -> None:
    """Replace the notes of a request."""
    if notes != NO_NOTES:
        if request._optional is None:
            request._optional = {}
        request._optional["notes"] = notes
    elif request._optional is not None:
        request._optional.pop("notes", None)


def note(request: Request, **changes: Any) -> None:
    """Change some of the notes of a request.

    Raises:
        TypeError: If :class:`RequestNotes` has no such field.
    """
    set_notes(request, msgspec.structs.replace(notes_of(request), **changes))
