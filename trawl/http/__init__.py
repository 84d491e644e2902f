"""Requests, responses, headers, URLs and outcomes. Pure: no I/O, no Trio."""

from trawl.http.forms import FormRequest
from trawl.http.headers import Headers, SharedHeaders, check_cookie, parse_date
from trawl.http.outcome import SAFE_METHODS, Drop, Fetch, Middleware, Outcome, Replace, Times, TimesTotal
from trawl.http.request import Request, fingerprint
from trawl.http.response import Response
from trawl.http.response_types import (
    BodySink,
    FileResponse,
    HtmlResponse,
    JsonRequest,
    JsonResponse,
    TextResponse,
    XmlResponse,
    body_bytes,
    kind_of,
)
from trawl.http.url import (
    FETCHED_SCHEMES,
    canonicalize_url,
    host_of,
    host_scope,
    is_in_domains,
    join_url,
    lacks_path,
    normalize_domain,
    normalize_url,
    origin_of,
    scheme_of,
    without_fragment,
)

__all__ = [
    "FETCHED_SCHEMES",
    "SAFE_METHODS",
    "BodySink",
    "Drop",
    "Fetch",
    "FileResponse",
    "FormRequest",
    "Headers",
    "SharedHeaders",
    "HtmlResponse",
    "JsonRequest",
    "JsonResponse",
    "Middleware",
    "Outcome",
    "Replace",
    "Request",
    "Response",
    "TextResponse",
    "Times",
    "TimesTotal",
    "XmlResponse",
    "body_bytes",
    "canonicalize_url",
    "check_cookie",
    "fingerprint",
    "host_of",
    "host_scope",
    "is_in_domains",
    "join_url",
    "lacks_path",
    "kind_of",
    "normalize_domain",
    "normalize_url",
    "origin_of",
    "parse_date",
    "scheme_of",
    "without_fragment",
]
