"""The traffic of a crawl as WARC files (ISO 28500, WARC 1.1): records of each request and its response.

A response is stored exactly as received: status line, headers, and the body with its chunked framing and compression
(ISO 28500, 6.3). If these bytes are unknown, the headers that describe how the body was sent get the prefix
``X-Archive-Orig-``, as in other archivers, so that a replay reads headers that match the body. They are unknown for a
large body, which is copied from a file, and for a chunked response through a proxy. A response over HTTP/2 gets the
status line of HTTP/1.1 and the field ``WARC-Protocol: h2``. Credentials (``Authorization``, ``Proxy-Authorization``,
``Cookie``) are left out of the records of requests.

If a response ended early, its received part is stored, with the reason in ``WARC-Truncated`` (ISO 28500, 5.13) and, for
an error, its class and cause in ``Trawl-Error``, so that a replay fails in the same way. A metadata record
(``application/warc-fields``, ISO 28500, 6.6) has the :data:`METADATA_FIELDS`, even for a request without a response.

Responses that end at the same time are written together, in one blocking call. Their slots are released after the
write, so a slow disk slows down the crawl, and records do not accumulate in memory.
"""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import attrs
import trio

from trawl.blocking import Blocking
from trawl.errors import (
    BodyTooLarge,
    DownloadError,
    DownloadTimeout,
    ReadTimeout,
    ResponseBroken,
    SettingsError,
    UsageError,
)
from trawl.http import FileResponse, Headers, Outcome, Request, Response
from trawl.transport.base import OnSent, Transport, charges_of

__all__ = [
    "ARCHIVE_CLOSE_GRACE",
    "CUT_SHORT",
    "ERROR_FIELD",
    "METADATA_FIELDS",
    "WarcEntry",
    "WarcTransport",
    "WarcWriter",
    "open_archive",
    "response_head",
    "warc_writer",
]

ARCHIVE_CLOSE_GRACE = 5.0
"""Maximum seconds for writing the last records when a crawl ends."""

_SECRET_FIELDS = frozenset({b"authorization", b"cookie", b"proxy-authorization"})
_CAUSES = {"truncated": "length", "dataloss": "disconnect"}  # a response's flag -> WARC-Truncated (ISO 28500, 5.13)

CUT_SHORT: dict[type[DownloadError], str] = {
    BodyTooLarge: "length",
    DownloadTimeout: "time",
    ReadTimeout: "time",
    ResponseBroken: "disconnect",
}
"""Errors that end a response early, each with its value of ``WARC-Truncated``."""

ERROR_FIELD = "Trawl-Error"
"""Field of a response record: the class of the error and its cause."""

METADATA_FIELDS = {
    "method": "The method of the request.",
    "started": "Start of connecting, or of the send on a kept connection. Equals WARC-Date.",
    "sent": "Time of the send. Missing if the request was not sent.",
    "headers": "Time at which the headers were read. Missing if they were not.",
    "ended": "Time of the last byte, or of the error.",
    "fetchTimeMs": "Milliseconds from `started` to `ended` (ISO 28500, 6.6).",
    "scope": "A scope that was charged: slot (0: none), amount and name, separated by spaces. One line per scope.",
    "error": "Class and cause of the error. Missing if there is a response.",
}
"""The fields of a metadata record. Times are in UTC (RFC 3339), in microseconds."""

_WIRE_FIELD = re.compile(rb"^(?=(?:content-encoding|content-length|transfer-encoding):)", re.IGNORECASE | re.MULTILINE)

logger: logging.Logger = logging.getLogger("trawl.transport")


@attrs.frozen
class WarcEntry:
    """One request and its response or error. The times are wall times.

    Attributes:
        started_utc: Start of connecting, or of the send on a kept connection.
        received: Head and body of the response as received; None if unknown. The body is None if it went to a file.
        headers_utc: Time at which the headers were read.
        ended_utc: Time of the last byte or of the error; None to use ``started_utc``.
        charges: Slot (0 for none), amount and name of each scope that was charged.
    """

    request: Request
    response: Response | None
    started_utc: datetime
    received: tuple[bytes, bytes | None] | None = None
    error: BaseException | None = None
    sent_utc: datetime | None = None
    headers_utc: datetime | None = None
    ended_utc: datetime | None = None
    charges: Sequence[tuple[int, float, str]] = ()

    @property
    def has_response(self) -> bool:
        """Whether at least the head of a response was received, so that there is a response record."""
        return self.response is not None or (self.received is not None and type(self.error) in CUT_SHORT)


class _Head:
    """A head for warcio, whose own ``StatusAndHeaders`` percent-encodes non-ASCII characters."""

    def __init__(self, head: bytes) -> None:
        self.headers_buff = head

    def compute_headers_buffer(self, header_filter: object = None) -> None:
        """Do nothing, because the bytes of the headers exist already."""


def warc_writer(path: str) -> tuple[Any, str]:
    """Return warcio's writer class for records, and the suffix of the file names (.warc or .warc.gz).

    Raises:
        SettingsError: If warcio is not installed, or the path does not end in .warc or .warc.gz.
    """
    try:
        from warcio.warcwriter import WARCWriter  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SettingsError("WARC_FILE needs the extra warc: pip install 'trawl-crawler[warc]'", "WARC_FILE") from error
    ending = next((ending for ending in (".warc.gz", ".warc") if Path(path).name.endswith(ending)), "")
    if not ending:
        raise SettingsError(f"WARC_FILE must end in .warc.gz or .warc, not {path!r}", "WARC_FILE")
    return WARCWriter, ending


class WarcWriter:
    """Writes numbered WARC files. All methods block."""

    def __init__(self, path: str, max_bytes: int, *, has_bodies: bool = True) -> None:
        """Write to files named after ``path``, and start a new file when the current file has ``max_bytes``.

        Without ``has_bodies``, the bodies of responses are omitted, except those of robots.txt. Raises SettingsError
        like :func:`warc_writer`, and OSError if the first file can't be created.
        """
        self._writes, self._ending = warc_writer(path)
        self._base = path.removesuffix(self._ending)
        self._max_bytes = max_bytes
        self._has_bodies = has_bodies
        self._number = 0
        self._file: BinaryIO
        self._writer: Any
        self._begin()

    def write(self, entries: Sequence[WarcEntry]) -> None:
        """Write the records of ``entries`` and flush them. An entry is skipped if the file with its body was removed.

        Raises:
            OSError: If the disk is full or broken. The file is then truncated to its last whole record.
        """
        for entry in entries:
            try:
                body = self._body(entry)
            except ValueError:  # the body's file was removed because the request was cancelled
                logger.debug("%r is not archived: its file was removed", entry.response)
                continue
            with body:
                self._write(entry, body)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._file.close()

    def _write(self, entry: WarcEntry, body: BinaryIO) -> None:
        end = self._file.tell()
        if end >= self._max_bytes:
            self._file.close()
            self._begin()
            end = self._file.tell()
        try:
            for record in self._records(entry, body):
                self._writer.write_record(record)
            self._file.flush()
        except OSError:
            os.truncate(self._file.fileno(), end)
            raise

    def _begin(self) -> None:
        """Start the next file with a free name. Existing files are never changed."""
        Path(self._base).parent.mkdir(parents=True, exist_ok=True)
        while True:
            self._number += 1
            path = f"{self._base}-{self._number:05d}{self._ending}"
            try:  # readable only by the owner of the file, because pages may need a login
                opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
            except FileExistsError:
                continue
            break
        self._file = os.fdopen(opened, "wb", buffering=0)
        self._writer = self._writes(self._file, gzip=self._ending.endswith(".gz"), warc_version="WARC/1.1")
        about = {"software": "trawl", "format": "WARC File Format 1.1"}
        self._writer.write_record(self._writer.create_warcinfo_record(Path(path).name, about))

    def _body(self, entry: WarcEntry) -> BinaryIO:
        response, received = entry.response, entry.received
        if not entry.has_response or self._omits(entry):
            return io.BytesIO()
        if received is not None and received[1] is not None:
            return io.BytesIO(received[1])
        if isinstance(response, FileResponse):
            return response.open()
        return io.BytesIO(b"" if response is None else response.body)

    def _omits(self, entry: WarcEntry) -> bool:
        return not self._has_bodies and urlsplit(entry.request.url).path != "/robots.txt"

    def _records(self, entry: WarcEntry, body: BinaryIO) -> list[Any]:
        """Return the records of an entry. All later records refer to the first record."""
        records = [self._response(entry, body)] if entry.has_response else []
        if entry.has_response or entry.sent_utc is not None:
            records.append(self._request(entry))
        records.append(self._metadata(entry))
        first = records[0].rec_headers.get_header("WARC-Record-ID")
        for record in records[1:]:
            record.rec_headers.add_header("WARC-Concurrent-To", first)
        return records

    def _metadata(self, entry: WarcEntry) -> Any:
        ended_utc = entry.ended_utc or entry.started_utc
        times = {"started": entry.started_utc, "sent": entry.sent_utc, "headers": entry.headers_utc, "ended": ended_utc}
        fields = [("method", entry.request.method)]
        fields += [(name, _instant(at)) for name, at in times.items() if at is not None]
        fields.append(("fetchTimeMs", str(round((ended_utc - entry.started_utc) / timedelta(milliseconds=1)))))
        fields += [
            ("scope", f"{slot} {amount:.17g} {' '.join(scope.split())}") for slot, amount, scope in entry.charges
        ]
        if entry.error is not None:
            fields.append(("error", _error_words(entry.error)))
        text = "".join(f"{name}: {value}\r\n" for name, value in fields)
        return self._record("metadata", entry, None, io.BytesIO(text.encode()))

    def _request(self, entry: WarcEntry) -> Any:
        request = entry.request
        parts = urlsplit(request.url)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        fields = [(b"Host", parts.netloc.rpartition("@")[2].encode())] if "Host" not in request.headers else []
        fields += [field for field in request.headers.to_wire() if field[0].lower() not in _SECRET_FIELDS]
        head = _head(f"{request.method} {target} HTTP/1.1", fields)
        return self._record("request", entry, head, io.BytesIO(request.body or b""))

    def _response(self, entry: WarcEntry, body: BinaryIO) -> Any:
        response, received = entry.response, entry.received
        if received is not None:
            head = received[0]
        else:
            assert response is not None
            head = response_head(response.protocol or "", response.status, response.headers)
        if received is None or received[1] is None or self._omits(entry):
            head, renamed = _WIRE_FIELD.subn(b"X-Archive-Orig-", head)
            if renamed:  # the new length replaces the headers that described the body as sent
                head = b"%sContent-Length: %d\r\n\r\n" % (head[:-2], body.seek(0, io.SEEK_END))
        return self._record("response", entry, head, body)

    def _record(self, kind: str, entry: WarcEntry, head: bytes | None, body: BinaryIO) -> Any:
        own = {"WARC-Date": _instant(entry.started_utc)}
        response, error = entry.response, entry.error
        if response is not None and response.ip_address is not None:
            own["WARC-IP-Address"] = str(response.ip_address)
        if kind == "response" and response is not None:
            if response.protocol == "HTTP/2":
                own["WARC-Protocol"] = "h2"
            if self._omits(entry):
                own["WARC-Truncated"] = "unspecified"
            elif cause := next((_CAUSES[flag] for flag in response.flags if flag in _CAUSES), None):
                own["WARC-Truncated"] = cause
        elif kind == "response" and error is not None:
            own["WARC-Truncated"] = CUT_SHORT[type(error)]  # type: ignore[index]
            own[ERROR_FIELD] = _error_words(error)
        url = entry.request.url.partition("#")[0]
        size = body.seek(0, io.SEEK_END)
        body.seek(0)
        return self._writer.create_warc_record(
            url,
            kind,
            payload=body,
            length=size,
            http_headers=None if head is None else _Head(head),
            warc_headers_dict=own,
        )


def _instant(at_utc: datetime) -> str:
    return at_utc.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _error_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(getattr(error, 'cause', error)).split())}"


def response_head(protocol: str, status: int, headers: Headers) -> bytes:
    """Return the status line and the headers of a response in the form of HTTP/1.x."""
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = ""
    version = protocol if protocol.startswith("HTTP/1.") else "HTTP/1.1"
    return _head(f"{version} {status} {reason}", headers.to_wire())


def _head(line: str, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"\r\n".join([line.encode(), *(b"%s: %s" % field for field in fields), b"", b""])


class WarcTransport:
    """A transport whose traffic is written to WARC files."""

    def __init__(
        self, transport: Transport, files: WarcWriter, blocking: Blocking, now_utc: Callable[[], datetime]
    ) -> None:
        """Write the traffic of ``transport``. ``now_utc`` returns the wall time."""
        self._transport = transport
        self._files = files
        self._blocking = blocking
        self._now_utc = now_utc
        self._pending: list[WarcEntry] = []
        self._lock = trio.Lock()
        self._is_broken = False

    async def send(self, request: Request, on_sent: OnSent) -> Outcome:
        """Send ``request``, and return when its exchange has been written to the WARC file. A checkpoint."""
        started_at = trio.current_time()
        try:
            outcome = await self._transport.send(request, on_sent)
        except trio.Cancelled as error:
            sent_at: float | None = getattr(on_sent, "sent_at", None)
            if sent_at is not None:  # the entry is written with the next entries
                now = trio.current_time()
                self._add(Outcome(request, started_at=started_at, sent_at=sent_at, ended_at=now), error, on_sent)
            raise
        if not outcome.is_deferred:
            self._add(outcome, outcome.error, on_sent)
            outcome.received = None  # so that these bytes are freed as soon as they are written
            await self._write()
        return outcome

    async def aclose(self) -> None:
        """Write the remaining records and close the transport. Always a checkpoint."""
        with trio.move_on_after(ARCHIVE_CLOSE_GRACE, shield=True):
            await self._write()
        await self._transport.aclose()

    def _add(self, outcome: Outcome, error: BaseException | None, on_sent: OnSent) -> None:
        if self._is_broken:
            return
        now, now_utc = trio.current_time(), self._now_utc()
        times = (outcome.started_at, outcome.sent_at, outcome.first_byte_at, outcome.ended_at)
        started, sent, headers, ended = (None if at is None else now_utc + timedelta(seconds=at - now) for at in times)
        entry = WarcEntry(
            outcome.request,
            outcome.response,
            started or now_utc,
            outcome.received,
            error,
            sent_utc=sent,
            headers_utc=headers,
            ended_utc=ended,
            charges=charges_of(on_sent),
        )
        self._pending.append(entry)

    async def _write(self) -> None:
        async with self._lock:
            entries, self._pending = self._pending, []
            if not entries or self._is_broken:
                return
            try:
                await self._blocking.run(self._files.write, entries)
            except trio.Cancelled:
                # A running write can't be cancelled, so the write has not started. Put the entries back.
                self._pending[:0] = entries
                raise
            except OSError as error:
                self._is_broken = True
                logger.error("WARC_FILE: the archive can't be written, and nothing more is added to it: %s", error)


@asynccontextmanager
async def open_archive(
    path: str,
    max_bytes: int,
    *,
    blocking: Blocking,
    now_utc: Callable[[], datetime],
    has_bodies: bool = True,
) -> AsyncGenerator[Callable[[Transport], Transport], None]:
    """Provide a function that wraps a transport in a :class:`WarcTransport`. Leaving the block closes the file.

    For the path ``crawl.warc.gz``, the files are ``crawl-00001.warc.gz`` and so on. The next one is started at
    ``max_bytes``. Without ``has_bodies``, only the bodies of robots.txt are written.

    Raises:
        SettingsError: If warcio is not installed, or the path does not end in .warc or .warc.gz.
        UsageError: If the file can't be created.
    """
    try:
        files = await blocking.run(partial(WarcWriter, path, max_bytes, has_bodies=has_bodies))
    except OSError as error:
        raise UsageError(f"WARC_FILE: {path!r} can't be written: {error}") from error
    try:
        yield lambda transport: WarcTransport(transport, files, blocking, now_utc)
    finally:
        files.close()
