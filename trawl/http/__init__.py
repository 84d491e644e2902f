"""What goes over the wire and comes back: requests, responses, headers, URLs, outcomes. Pure: no I/O, no Trio."""

from trawl.http.forms import FormRequest
from trawl.http.headers import Headers, SharedHeaders, parse_date
from trawl.http.outcome import SAFE_METHODS, Drop, Fetch, Middleware, Outcome, Replace
from trawl.http.request import Request, fingerprint
from trawl.http.response import Response
from trawl.http.response_types import HtmlResponse, JsonRequest, JsonResponse, TextResponse, XmlResponse, kind_of
from trawl.http.sink import BodySink, FileResponse, body_bytes
from trawl.http.times import Times, TimesTotal
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
    "fingerprint",
    "host_of",
    "host_scope",
    "join_url",
    "kind_of",
    "normalize_url",
    "origin_of",
    "parse_date",
    "scheme_of",
]
