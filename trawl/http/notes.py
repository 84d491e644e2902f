"""The crawl's notes on a request: state that the crawl stores for each request, hidden from the spider.

The meta belongs to the spider. :meth:`~trawl.http.request.Request.replace` copies the notes, and a job stores them. A
new request with the meta of another has no notes, and :mod:`trawl.engine.leases` adds the necessary ones.
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
        refused_at: Wall time of the last refusal, in seconds since the epoch; None if the request was never refused.
        refusals: Number of times that the request was refused while its scope served other requests.
        is_bad_page: Whether the request was refused, although its scope served other requests before and after.
        is_uncounted: Whether an earlier failure of the request was not counted, because no good response had arrived
            yet.
        admitted_at: Wall time, in seconds since the epoch, at which the request was admitted to a scope that had been
            given up; None otherwise.
        proxy: The proxy in the request's meta, if the crawl has chosen the proxy; None if the spider has chosen the
            proxy, or if there is none.
        through: The scope of the request's site through ``proxy``, if the proxy is from a rotating list; "" otherwise.
            It is set at each send and not stored.
        keeps_proxy: Whether the request was not sent through ``proxy`` yet, and may wait for the scope of the proxy.
        session: The session that has set the request's headers or proxy; None if no session has.
        told_slot: The ``download_slot`` that the crawl, not the spider, has written into the request's meta; "" if the
            crawl has written none. This value does not choose a scope.
        needs_new_connection: Whether an earlier attempt used a dead connection, so that the request must not be sent on
            another kept connection.
        bypasses_cache: Whether only the server may respond, because a cached response was refused or can't be read.
        vouched: The private addresses that start requests had allowed when this request was found: ``all``, ``host``
            for the addresses of its host, or "" for none. A run that does not read ``start()`` uses this value instead.
        is_sub_request: Whether a rendered page has made the request, so that it does not count as a page.
        has_tab: Whether a task that holds a tab of the browser fetches the request, so that its page gets a tab at
            once.
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
    is_sub_request: bool = False
    has_tab: bool = False

    def for_target(self) -> RequestNotes:
        """Return the notes of a redirect's target, without the refusals of the redirected request."""
        return RequestNotes(
            admitted_at=self.admitted_at,
            proxy=self.proxy,
            session=self.session,
            told_slot=self.told_slot,
            is_sub_request=self.is_sub_request,
        )

    def for_copied_meta(self) -> RequestNotes:
        """Return the notes for a new request with the same meta, which mark the values that the crawl has chosen."""
        return RequestNotes(proxy=self.proxy, session=self.session, told_slot=self.told_slot)


NO_NOTES = RequestNotes()


def notes_of(request: Request) -> RequestNotes:
    """Return the notes of a request; :data:`NO_NOTES` if it has none."""
    return NO_NOTES if request._optional is None else request._optional.get("notes", NO_NOTES)


def with_meta_or_notes(requests: Iterable[Request]) -> list[Request]:
    """Return the requests that may have meta or notes. Most requests found on a page have neither."""
    return [request for request in requests if request._meta or request._optional]


def set_notes(request: Request, notes: RequestNotes) -> None:
    """Replace the notes of a request."""
    request._keep("notes", None if notes == NO_NOTES else notes)


def note(request: Request, **changes: Any) -> None:
    """Change some of the notes of a request."""
    set_notes(request, msgspec.structs.replace(notes_of(request), **changes))
