"""The answers of simulated servers."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from attrs import validators

from trawl.errors import DownloadError
from trawl.http import Headers

__all__ = ["EMPTY_PAGE", "Failure", "SimulatedResponse", "check_failure", "make_failure", "make_page", "make_redirect"]

Failure = DownloadError | type[DownloadError]
"""A download error of :mod:`trawl.exceptions`, or its class."""

HTML = "text/html; charset=utf-8"
EMPTY_PAGE = "<!DOCTYPE html><html><head><title></title></head><body></body></html>"
"""The default body of a page."""


def check_failure(instance: object, attribute: object, error: Any) -> None:
    """Check that ``error`` is a download error (a validator of attrs).

    Raises:
        TypeError: It is neither a download error nor a class of them.
    """
    if isinstance(error, DownloadError) or (isinstance(error, type) and issubclass(error, DownloadError)):
        return
    raise TypeError(f"an error of the wire must be a download error of trawl.exceptions, not {error!r}")


def _as_bytes(body: str | bytes) -> bytes:
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes):
        return body
    raise TypeError(f"the body of a simulated response must be str or bytes, not {type(body).__name__}")


def _as_headers(fields: Any) -> Headers:
    headers = Headers(fields)
    headers.setdefault("Content-Type", HTML)
    return headers


@attrs.frozen
class SimulatedResponse:
    """One answer of a simulated server.

    Attributes:
        status: The status code.
        body: The body; text is encoded as UTF-8.
        headers: The headers; by default ``Content-Type: text/html; charset=utf-8``.
        latency: Seconds from the send to the last byte; 0.0: the host's latency.
        first_byte: Seconds from the send to the headers: less than ``latency`` for a slow body. None: all at once.
        error: An error instead of the last byte, such as a connection that breaks.

    Raises:
        ValueError: The status is not within 200 to 599, or a time or header is not valid.
        TypeError: The body is neither text nor bytes.
    """

    status: int = attrs.field(default=200, validator=[validators.ge(200), validators.le(599)])
    body: bytes = attrs.field(default=b"", converter=_as_bytes)
    headers: Headers = attrs.field(default=None, converter=_as_headers)
    latency: float = attrs.field(default=0.0, validator=[validators.ge(0), validators.lt(math.inf)])
    first_byte: float | None = attrs.field(default=None, kw_only=True, validator=validators.optional(validators.ge(0)))
    error: Failure | None = attrs.field(default=None, kw_only=True, validator=validators.optional(check_failure))


def make_failure(failure: Failure, cause: str, url: str, method: str) -> DownloadError:
    """Return the error for a request: made with ``cause`` from a class, copied from an instance."""
    if isinstance(failure, DownloadError):
        error = failure.__class__.__new__(failure.__class__, *failure.args)
        error.__dict__.update(failure.__dict__)  # some have more than a cause: is_of_proxy
        error.url, error.method = url, method
        return error
    return failure(cause, url=url, method=method)


def make_page(links: Iterable[str] = (), title: str = "") -> str:
    """Return an HTML page with these links, as given."""
    anchors = "".join(f'<a href="{html.escape(link)}">{html.escape(link)}</a>\n' for link in links)
    return f"<!DOCTYPE html><html><head><title>{html.escape(title)}</title></head><body>{anchors}</body></html>"


def make_redirect(target: str, status: int = 302, headers: Mapping[str, str] | None = None) -> SimulatedResponse:
    """Return a redirect to ``target``, an absolute or relative URL (RFC 9110, 15.4)."""
    return SimulatedResponse(status, "", {"Location": target, **(headers or {})})
