"""The exchanges in WARC files (ISO 28500), for a simulated web that replays them.

The parser and decoders of the real transport read the responses, so that a replay produces the same bytes as the crawl,
for example for non-ASCII header values, repeated headers, chunks and compressed bodies. Some other archivers store a
body without the chunked framing or compression that its headers declare. Such files are read as far as possible. If a
response ended early with an error, its record contains the error, and the replay fails in the same way. If the record
has no error, the field ``WARC-Truncated`` becomes a flag of the response.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from os import PathLike
from typing import Any, NamedTuple

from trawl.errors import DownloadError
from trawl.http import Headers, Request, host_scope, normalize_url
from trawl.testing.hosts import SimulatedResponse
from trawl.transport.body import Body
from trawl.transport.content_encoding import codings_of
from trawl.transport.http11.parser import ConnectionClosedError, ResponseParser, end_of_head
from trawl.transport.warc import CUT_SHORT, ERROR_FIELD

__all__ = ["WarcResponses", "read_warcs", "replay"]

WarcResponses = dict[str, dict[tuple[str, str, bytes], SimulatedResponse]]
"""The responses of each host, by method, URL and body of the request."""

_NOT_FOUND = SimulatedResponse(404, "not in the WARC file", {"Content-Type": "text/plain; charset=utf-8"})

_RENAMED = b"x-archive-orig-"

_STATUS = re.compile(rb"(HTTP/[0-9.]+)[ \t]+([0-9]{3})(?![0-9])")

_FLAGS = {"length": ("truncated",), "time": ("dataloss",), "disconnect": ("dataloss",), "unspecified": ("dataloss",)}
"""The flags of a response for each value of ``WARC-Truncated`` (ISO 28500, 5.13)."""

MAX_BODY_BYTES = 1 << 30
"""Maximum size of a decompressed body, in bytes."""

_Fields = list[tuple[bytes, bytes]]


def read_warcs(paths: Iterable[str | PathLike[str]]) -> WarcResponses:
    """Read the exchanges in WARC files. If a request occurs several times, its last exchange counts.

    Raises:
        ImportError: If warcio is not installed (extra ``warc``).
        OSError: If a file can't be read.
        ValueError: If a file is not a WARC file.
    """
    from warcio.archiveiterator import ArchiveIterator  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    from warcio.exceptions import ArchiveLoadFailed  # type: ignore[import-untyped]  # noqa: PLC0415

    answers: WarcResponses = {}
    for path in paths:
        responses: dict[str, _Record] = {}
        requests: dict[str, tuple[str, bytes]] = {}
        try:
            with open(path, "rb") as file:
                for record in ArchiveIterator(file, no_record_parse=True):  # parsing would decode non-ASCII headers
                    _read(record, requests, responses)
        except ArchiveLoadFailed as error:
            raise ValueError(f"{path} is not a WARC file: {error}") from error
        for number, record in responses.items():
            method, body = requests.get(number, ("GET", b""))
            if (answer := _response(record, is_head=method == "HEAD")) is not None:
                answers.setdefault(host_scope(record.url), {})[method, record.url, body] = answer
    return answers


def replay(answers: Mapping[tuple[str, str, bytes], SimulatedResponse]) -> Callable[[Request], SimulatedResponse]:
    """Return a handler that replays these responses, and returns 404 for other requests."""

    def answer(request: Request) -> SimulatedResponse:
        return answers.get((request.method, request.url.partition("#")[0], bytes(request.body or b"")), _NOT_FOUND)

    return answer


class _Record(NamedTuple):
    """A response record: its URL, its bytes, and its fields about the protocol and an early end."""

    url: str
    block: bytes
    protocol: str
    truncated: str
    error: str


def _read(record: Any, requests: dict[str, tuple[str, bytes]], responses: dict[str, _Record]) -> None:
    if record.rec_type not in ("request", "response") or "http" not in (record.content_type or "http"):
        return
    block = record.raw_stream.read()
    if record.rec_type == "request":
        method, _, _ = block.partition(b" ")
        end, _ = end_of_head(block)
        number = record.rec_headers.get_header("WARC-Concurrent-To")
        requests[number] = method.decode("latin-1"), block[len(block) if end is None else end :]
    else:
        field = record.rec_headers.get_header
        url = normalize_url(field("WARC-Target-URI"))
        about = [field(name) or "" for name in ("WARC-Protocol", "WARC-Truncated", ERROR_FIELD)]
        responses[field("WARC-Record-ID")] = _Record(url, block, *about)


def _response(record: _Record, *, is_head: bool) -> SimulatedResponse | None:
    """Return the response in a record; None if the record is not a response."""
    protocol, status, fields, body = _message(record.block, is_head=is_head)
    if not 200 <= status <= 999:
        return None
    codings = codings_of(Headers.from_wire(fields).getlist("Content-Encoding"))
    with suppress(DownloadError):  # on failure, the body is stored without the compression that its headers declare
        body = b"".join(Body(codings, MAX_BODY_BYTES).decoded(body))
    headers = Headers.from_wire(_original(fields))
    if "Content-Type" not in headers:
        headers["Content-Type"] = None  # otherwise, the response would be HTML by default
    return SimulatedResponse(
        status,
        body,
        headers,
        error=_error(record.error),
        flags=_FLAGS.get(record.truncated, ()),
        protocol="HTTP/2" if record.protocol == "h2" else protocol,
    )


def _error(field: str) -> DownloadError | None:
    """Return the error with which a response ended early; None if there is none."""
    name, _, cause = field.partition(": ")
    return next((kind(cause) for kind in CUT_SHORT if kind.__name__ == name), None)


def _message(block: bytes, *, is_head: bool) -> tuple[str, int, _Fields, bytes]:
    """Return protocol, status code, headers and body of a response, without chunked framing.

    The status code is 0 if there is no response.
    """
    end, start = end_of_head(block)
    if end is None:
        return "", 0, [], b""
    parser = ResponseParser()
    parser.begin(is_head=is_head)
    with suppress(DownloadError, ConnectionClosedError):
        parser.feed(block[start:])
        parser.end()
    if not parser.has_head:  # the status line is "HTTP/2 200", for example
        status = _STATUS.match(block, start)
        lines = [line.partition(b":") for line in block[start:end].splitlines()[1:] if b":" in line]
        fields = [(name.strip(), value.strip()) for name, _, value in lines]
        return (status[1].decode(), int(status[2]), fields, block[end:]) if status else ("", 0, [], b"")
    body = b"".join(parser.take())
    if parser.has_extra_data or not (body or parser.is_complete):
        body = block[end:]  # the body is stored without the framing that its headers declare
    return f"HTTP/{parser.version}", parser.status, parser.fields, body


def _original(fields: _Fields) -> _Fields:
    """Return the headers with their original names."""
    renamed = {name for name, _ in fields if name.lower().startswith(_RENAMED)}
    if not renamed:
        return fields
    return [
        (name[len(_RENAMED) :] if name in renamed else name, value)
        for name, value in fields
        if name.lower() != b"content-length"  # the archiver may have changed this value
    ]
