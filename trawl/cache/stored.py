"""One response as the cache keeps it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trawl.http import Headers, Request, Response

__all__ = ["Fields", "Stored", "response_of", "stored_of"]

Fields = tuple[tuple[str, str], ...]
"""Names and values, in order."""


@attrs.frozen(kw_only=True)
class Stored:
    """A response, the request that it answered, and when. The body is kept beside it.

    Attributes:
        id: Its number in the store; 0 where it is not there yet.
        url: Where it came from.
        method: How it was asked for.
        sent: The fields of the request as it was sent; those that ``Vary`` names matter.
        status: Its status.
        fields: Its fields.
        asked_at: When it was asked for, in epoch seconds.
        came_at: When it had come, in epoch seconds.
    """

    id: int = 0
    url: str
    method: str
    sent: Fields
    status: int
    fields: Fields
    asked_at: float
    came_at: float

    @property
    def headers(self) -> Headers:
        """Its fields, to be found by name."""
        return Headers(self.fields)


def stored_of(request: Request, response: Response, *, asked_at: float, came_at: float) -> Stored:
    """What is kept of a response.

    Args:
        request: As it was sent.
        response: The response.
        asked_at: Epoch seconds.
        came_at: Epoch seconds.
    """
    return Stored(
        url=response.url,
        method=request.method,
        sent=_fields(request.headers.items_list()),
        status=response.status,
        fields=_fields(response.headers.items_list()),
        asked_at=asked_at,
        came_at=came_at,
    )


def response_of(stored: Stored, body: bytes, request: Request) -> Response:
    """The response that answers ``request`` from the cache; its flags say ``cached``."""
    return Response(stored.url, stored.status, stored.headers, body, request, flags=["cached"])


def _fields(pairs: Sequence[tuple[str, str]]) -> Fields:
    return tuple(pairs)
