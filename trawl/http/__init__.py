"""What goes over the wire and comes back: requests, responses, headers, URLs, outcomes. Pure: no I/O, no Trio."""

from trawl.http.fingerprint import fingerprint
from trawl.http.headers import Headers
from trawl.http.outcome import Drop, Fetch, Middleware, Outcome, Replace
from trawl.http.request import Request
from trawl.http.response import Response
from trawl.http.url import (
    FETCHED_SCHEMES,
    canonicalize_url,
    host_of,
    host_scope,
    join_url,
    normalize_url,
    origin_of,
    scheme_of,
)

__all__ = [
    "FETCHED_SCHEMES",
    "Drop",
    "Fetch",
    "Headers",
    "Middleware",
    "Outcome",
    "Replace",
    "Request",
    "Response",
    "canonicalize_url",
    "fingerprint",
    "host_of",
    "host_scope",
    "join_url",
    "normalize_url",
    "origin_of",
    "scheme_of",
]
