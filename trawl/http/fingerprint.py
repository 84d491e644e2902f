"""The fingerprint of a request: what makes two requests the same one."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from trawl.http.url import sorted_url

if TYPE_CHECKING:
    from trawl.http.request import Request

__all__ = ["FINGERPRINT_BYTES", "fingerprint"]

FINGERPRINT_BYTES = 16
"""Length of a fingerprint: two of a thousand million requests are the same by chance once in 10 ** 20 crawls."""


def fingerprint(request: Request) -> bytes:
    """Return 16 bytes that are equal for requests with one method, one body and one address, in one session.

    The address is compared without its fragment and with the query's arguments in order. Headers, cookies and meta do
    not count, but for meta ``session``: another visitor sees another page.
    """
    # Neither a method nor a URL in normal form has a space or a line end in it, so no two requests read the same here.
    session = request.meta_get("session")
    visitor = "" if session is None else f" {session!r}"
    text = f"{request.method} {sorted_url(request.url)}{visitor}\n".encode()
    return blake2b(text + request.body if request.body else text, digest_size=FINGERPRINT_BYTES).digest()
