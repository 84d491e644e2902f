"""What a simulated server answers."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from attrs import validators

from trawl.errors import DownloadError
from trawl.http import Headers

__all__ = ["EMPTY_PAGE", "Failure", "SimulatedResponse", "make_failure", "make_page"]

Failure = DownloadError | type[DownloadError]
"""What goes wrong: one of :mod:`trawl.exceptions`' download errors, or its class."""

HTML = "text/html; charset=utf-8"
EMPTY_PAGE = "<!DOCTYPE html><html><head><title></title></head><body></body></html>"
"""The body of a page that nobody described."""


def _as_bytes(body: str | bytes) -> bytes:
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes):
        return body
    raise TypeError(f"the body of a simulated response is str or bytes, not {type(body).__name__}")


def _as_headers(fields: Any) -> Headers:
    headers = Headers(fields)
    headers.setdefault("Content-Type", HTML)
    return headers


@attrs.frozen
class SimulatedResponse:
    """One answer of a simulated server.

    Attributes:
        status: The status code.
        body: The bytes of the body; text is taken as UTF-8.
        headers: The fields; ``Content-Type: text/html; charset=utf-8`` unless they say otherwise.
        latency: Seconds from the send to the last byte; 0.0 is what the host's latency says.
        first_byte: Seconds from the send to the headers: less than ``latency`` makes a slow body. None: all at once.
        error: What comes in place of the answer, at the time of its last byte (a connection that breaks mid-body).

    Raises:
        ValueError: A status outside 200 to 599, a time that is none, a header that is none.
        TypeError: A body that is neither text nor bytes.
    """

    status: int = attrs.field(default=200, validator=[validators.ge(200), validators.le(599)])
    body: bytes = attrs.field(default=b"", converter=_as_bytes)
    headers: Headers = attrs.field(default=None, converter=_as_headers)
    latency: float = attrs.field(default=0.0, validator=[validators.ge(0), validators.lt(math.inf)])
    first_byte: float | None = attrs.field(default=None, kw_only=True, validator=validators.optional(validators.ge(0)))
    error: Failure | None = attrs.field(default=None, kw_only=True)

    @error.validator
    def _is_failure(self, attribute: object, error: object) -> None:
        if error is not None:
            checked_failure(error)


def checked_failure(error: object) -> None:
    """Refuse what is no download error.

    Raises:
        TypeError: It is neither a download error nor a class of them.
    """
    if isinstance(error, DownloadError) or (isinstance(error, type) and issubclass(error, DownloadError)):
        return
    raise TypeError(f"what goes wrong on the wire is one of trawl.exceptions' download errors, not {error!r}")


def make_failure(failure: Failure, cause: str, url: str, method: str) -> DownloadError:
    """The error for one request: a class is filled with ``cause``, an instance is copied with the request's address."""
    if isinstance(failure, DownloadError):
        error = failure.__class__.__new__(failure.__class__, *failure.args)
        error.__dict__.update(failure.__dict__)  # some say more than a cause: is_of_proxy
        error.url, error.method = url, method
        return error
    return failure(cause, url=url, method=method)


def make_page(links: Iterable[str] = (), title: str = "") -> str:
    """An HTML page with these links, as they are given."""
    anchors = "".join(f'<a href="{html.escape(link)}">{html.escape(link)}</a>\n' for link in links)
    return f"<!DOCTYPE html><html><head><title>{html.escape(title)}</title></head><body>{anchors}</body></html>"


def make_redirect(target: str, status: int = 302, headers: Mapping[str, str] | None = None) -> SimulatedResponse:
    """An answer that sends the client to ``target``, an absolute or relative URL (RFC 9110, 15.4)."""
    return SimulatedResponse(status, "", {"Location": target, **(headers or {})})
