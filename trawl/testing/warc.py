"""The exchanges in WARC files (ISO 28500), for a simulated web that replays them, and for a receipt.

The parser and decoders of the real transport read the responses, so that a replay produces the same bytes as the crawl.
Some other archivers store a body without the chunked framing or compression that its headers declare. Such files are
read as far as possible. If a response ended early with an error, its record contains the error, and the replay fails in
the same way. If the record has no error, the field ``WARC-Truncated`` becomes a flag of the response.

trawl's metadata records have the times of each exchange (:data:`trawl.transport.warc.METADATA_FIELDS`). In files of
other programs, ``WARC-Date`` is the time of the send, and the field ``fetchTimeMs`` of a metadata record the duration.

A host is replayed with the latency of each response, the median duration of its new connections, and a rate limit: the
limit that explains most of its refusals, or the limit that its headers announce.

Length: the records and their errors are read in one place, for both uses.
"""

from __future__ import annotations

import glob
import math
import re
import zlib
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from operator import attrgetter
from os import PathLike
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import attrs

from trawl.errors import DownloadError, UsageError
from trawl.http import Headers, Request, host_scope, normalize_url
from trawl.testing.hosts import SimulatedResponse, failure_named
from trawl.testing.limits import RateLimit, announced_limit, fit_limit
from trawl.testing.sends import REFUSALS
from trawl.transport.body import Body
from trawl.transport.content_encoding import codings_of
from trawl.transport.http11.parser import ConnectionClosedError, ResponseParser, end_of_head
from trawl.transport.warc import ERROR_FIELD

__all__ = [
    "Exchange",
    "HostFit",
    "Recording",
    "read_exchanges",
    "read_recording",
    "reading_errors",
    "replay",
    "warc_files",
]

_Key = tuple[str, str, bytes]
"""Method, URL and body of a request."""

_NOT_FOUND = SimulatedResponse(404, "not in the WARC file", {"Content-Type": "text/plain; charset=utf-8"})

_RENAMED = b"x-archive-orig-"

_STATUS = re.compile(rb"(HTTP/[0-9.]+)[ \t]+([0-9]{3})(?![0-9])")

_FLAGS = {"length": ("truncated",), "time": ("dataloss",), "disconnect": ("dataloss",), "unspecified": ("dataloss",)}
"""The flags of a response for each value of ``WARC-Truncated`` (ISO 28500, 5.13)."""

MAX_BODY_BYTES = 1 << 30
"""Maximum size of a decompressed body, in bytes."""

KEPT_CONNECTION = 0.001
"""Maximum seconds from the start to the send of a request whose connection was already open."""

_Fields = list[tuple[bytes, bytes]]


@attrs.frozen(kw_only=True)
class Exchange:
    """One request in a WARC file, and its response or error. Times are seconds since the epoch."""

    url: str
    method: str = "GET"
    request: bytes = b""  # headers and body of the request, as bytes; b"" if the file does not have them
    response: bytes = b""  # the response as received; b"" if there is none
    protocol: str = ""  # `WARC-Protocol`
    truncated: str = ""  # `WARC-Truncated`
    error: str = ""  # class and cause of the error; "" if there is none
    started: float  # start of connecting, or of the send on a kept connection
    sent: float | None  # time of the send; None if the request was not sent
    headers: float | None = None  # time at which the headers were read; None if unknown
    ended: float  # time of the last byte or of the error
    charges: Sequence[tuple[int, float, str]] = ()  # slot, amount and name of each scope that was charged
    is_timed: bool = False  # whether the times are exact, because a metadata record of trawl has them

    @property
    def key(self) -> _Key:
        """Method, URL and body of the request."""
        end, _ = end_of_head(self.request)
        return self.method, self.url, self.request[len(self.request) if end is None else end :]

    def answer(self) -> SimulatedResponse | None:
        """Return the response or error with its latency; None if there is neither."""
        error = _error(self.error)
        made = _response(self, error)
        if made is None:
            made = None if error is None else SimulatedResponse(error=error)
        if made is None or not self.is_timed:
            return made
        sent = self.started if self.sent is None else self.sent
        first_byte = None if self.headers is None else max(0.0, self.headers - sent)
        return attrs.evolve(made, latency=max(0.0, self.ended - sent), first_byte=first_byte)


@attrs.frozen(kw_only=True)
class HostFit:
    """How a simulated host was made from recorded exchanges, and how well the host fits these exchanges.

    Attributes:
        host: The host's scope.
        sends: Number of recorded sends.
        refusals: Number of recorded refusals (429 and 503).
        limit: The host's limit in the simulation; None if there were no refusals and no announced limit.
        rates: The lowest and the highest rate with which a limit explains as many responses as ``limit``. The highest
            is ``inf`` if no response bounds it. Without a limit, 0.0 and ``inf``.
        misjudged: Number of recorded responses that differ from the responses of the limit.
        left_out: Number of exchanges that are not replayed, because a later exchange of the same request is replayed.
        drift: Difference of the mean latency between the half of the sends with fewer requests in flight and the half
            with more, as a fraction of the mean latency. The simulation ignores this change. 0.0 if unknown.
    """

    host: str
    sends: int
    refusals: int
    limit: RateLimit | None
    rates: tuple[float, float]
    misjudged: int
    left_out: int
    drift: float


@attrs.frozen(kw_only=True)
class Recording:
    """The exchanges of a crawl, as simulated hosts.

    Attributes:
        hosts: The arguments of :meth:`trawl.testing.SimulatedWeb.add_host` for each host.
        fits: How well each host fits, the busiest first.
        sends: Number of recorded sends.
        refusals: Number of recorded refusals (429 and 503).
        elapsed: Seconds from the first start to the last end.
    """

    hosts: Mapping[str, Mapping[str, Any]]
    fits: Sequence[HostFit]
    sends: int
    refusals: int
    elapsed: float


def read_recording(paths: Iterable[str | PathLike[str]], latency: Any = None) -> Recording:
    """Read the exchanges in WARC files. If a request occurs several times, its last exchange counts.

    Responses without a time get ``latency``; None for the host's median. Raises as :func:`read_exchanges`.
    """
    by_host: dict[str, list[Exchange]] = defaultdict(list)
    exchanges = read_exchanges(paths)
    for exchange in exchanges:
        by_host[host_scope(exchange.url)].append(exchange)
    made = {host: _host(host, own, latency) for host, own in by_host.items()}
    fits = sorted((fit for _, fit in made.values()), key=attrgetter("sends"), reverse=True)
    return Recording(
        hosts={host: options for host, (options, _) in made.items()},
        fits=fits,
        sends=sum(fit.sends for fit in fits),
        refusals=sum(fit.refusals for fit in fits),
        elapsed=max(each.ended for each in exchanges) - exchanges[0].started if exchanges else 0.0,
    )


_UNKNOWN = (0.0, math.inf)


class _Played(NamedTuple):
    """An exchange and its response or error."""

    exchange: Exchange
    answer: SimulatedResponse

    @property
    def is_refused(self) -> bool:
        return self.answer.error is None and self.answer.status in REFUSALS


def _host(host: str, exchanges: Sequence[Exchange], latency: Any) -> tuple[dict[str, Any], HostFit]:
    """Return the arguments of a simulated host, and how well it fits."""
    played = [_Played(each, answer) for each in exchanges if (answer := each.answer()) is not None]
    sent = [each for each in played if each.exchange.sent is not None]
    sent.sort(key=lambda each: each.exchange.sent or 0.0)  # a later send on a kept connection may come earlier
    refused = [each for each in sent if each.is_refused]
    limit, rates, misjudged = _limit(sent, refused)
    answers: dict[_Key, SimulatedResponse] = {}
    for each in played:
        if limit is None or not each.is_refused:
            answers[each.exchange.key] = each.answer
    timed = [each for each in sent if each.exchange.is_timed and each.answer.error is None]
    if latency is None:
        latency = median([each.answer.latency for each in timed]) if timed else 0.0
    robots = [answer for (_, url, _), answer in answers.items() if urlsplit(url).path == "/robots.txt"]
    connects = [(each.exchange.sent or each.exchange.ended) - each.exchange.started for each in played]
    options = {
        "latency": latency,
        "connect": median([seconds for seconds in connects if seconds > KEPT_CONNECTION] or [0.0]),
        "limit": limit,
        "handler": replay(answers),
        "robots": robots[-1] if robots else None,
        "connect_error": played[-1].answer.error if played and not sent else None,
    }
    return options, HostFit(
        host=host,
        sends=len(sent),
        refusals=len(refused),
        limit=limit,
        rates=rates,
        misjudged=misjudged,
        left_out=len(played) - len(answers) - (0 if limit is None else len(refused)),
        drift=_drift([each.exchange for each in timed]),
    )


def _limit(sent: Sequence[_Played], refused: Sequence[_Played]) -> tuple[RateLimit | None, tuple[float, float], int]:
    """Return the limit of a host, its possible rates, and the number of responses that it does not explain."""
    if not refused:
        limit = announced_limit(each.answer.headers for each in sent)
        return limit, _UNKNOWN if limit is None else (limit.rate, limit.rate), 0
    fitted, rates, misjudged = fit_limit([(each.exchange.sent or 0.0, each.is_refused) for each in sent])
    if misjudged * 2 > len(refused):  # the refusals have another cause than a limit
        return None, _UNKNOWN, 0
    waits = {wait for each in refused if (wait := each.answer.headers.get("Retry-After")) is not None}
    limit = attrs.evolve(
        fitted,
        status=Counter(each.answer.status for each in refused).most_common(1)[0][0],
        retry_after=None if not waits else waits.pop() if len(waits) == 1 else True,
        latency=median([each.answer.latency for each in refused]),
    )
    return limit, rates, misjudged


def _drift(exchanges: Sequence[Exchange]) -> float:
    """Return how much the mean duration changes with the number of requests in flight (:attr:`HostFit.drift`)."""
    ends = sorted(each.ended for each in exchanges)
    starts = sorted(each.started for each in exchanges)
    loads = sorted(
        (bisect_left(starts, each.started) - bisect_left(ends, each.started), each.ended - each.started)
        for each in exchanges
    )
    if not loads or loads[0][0] == loads[-1][0]:
        return 0.0
    half = len(loads) // 2
    calm, busy = (fmean(seconds for _, seconds in part) for part in (loads[:half], loads[half:]))
    return abs(busy - calm) / mean if (mean := fmean(seconds for _, seconds in loads)) else 0.0


def replay(answers: Mapping[_Key, SimulatedResponse]) -> Callable[[Request], SimulatedResponse]:
    """Return a handler that replays these responses, and returns 404 for other requests."""

    def answer(request: Request) -> SimulatedResponse:
        return answers.get((request.method, request.url.partition("#")[0], bytes(request.body or b"")), _NOT_FOUND)

    return answer


@contextmanager
def reading_errors(path: str | PathLike[str]) -> Iterator[None]:
    """Raise the errors of reading a recording or a log as :class:`~trawl.errors.UsageError`, which is one line."""
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{path}: a WARC file needs the extra warc: pip install 'trawl-crawler[warc]'") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from error
    except ValueError as error:
        raise UsageError(str(error)) from error


def warc_files(path: Path) -> list[Path]:
    """Return the WARC files for a path: the file, or the numbered files that ``WARC_FILE`` makes from this path."""
    if path.exists():
        return [path]
    base = path.name.partition(".warc")[0]
    suffix = path.name.removeprefix(base)
    return sorted(path.parent.glob(f"{glob.escape(base)}-[0-9][0-9][0-9][0-9][0-9]{suffix}")) or [path]


def read_exchanges(paths: Iterable[str | PathLike[str]], *, has_bodies: bool = True) -> list[Exchange]:
    """Read the exchanges in WARC files, in order of time. Without ``has_bodies``, only bodies of robots.txt are kept.

    Raises ImportError without warcio (extra ``warc``), OSError, or ValueError for a file that is not a WARC file.
    """
    from warcio.archiveiterator import ArchiveIterator  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    from warcio.exceptions import ArchiveLoadFailed  # type: ignore[import-untyped]  # noqa: PLC0415

    exchanges: list[Exchange] = []
    for path in paths:
        groups: dict[str, _Records] = {}
        try:
            with open(path, "rb") as file:
                for record in ArchiveIterator(file, no_record_parse=True):  # parsing would decode non-ASCII headers
                    _read(record, groups, has_bodies=has_bodies)
        except ArchiveLoadFailed as error:
            raise ValueError(f"{path} is not a WARC file: {error}") from error
        exchanges += [group.exchange() for group in dict.fromkeys(groups.values()) if group.is_exchange]
    return sorted(exchanges, key=attrgetter("started"))


@attrs.define(eq=False)
class _Records:
    """The records of one exchange. Mutable."""

    url: str = ""
    request: bytes = b""
    response: bytes = b""
    fields: dict[str, list[str]] = attrs.Factory(lambda: defaultdict(list))
    dates: list[float] = attrs.Factory(list)
    about: tuple[str, str, str] = ("", "", "")

    @property
    def is_exchange(self) -> bool:
        return bool(self.request or self.response or self.fields["started"])

    def exchange(self) -> Exchange:
        """Return the exchange."""
        times = {name: _seconds(self.fields[name][0]) for name in _TIMES if self.fields[name]}
        started = times.get("started", min(self.dates))
        ended = times.get("ended", max(self.dates))
        if not times and self.fields["fetchTimeMs"]:
            ended = started + _number(self.fields["fetchTimeMs"][0]) / 1000
        method = (
            self.fields["method"][0] if self.fields["method"] else self.request.partition(b" ")[0].decode("latin-1")
        )
        protocol, truncated, error = self.about
        return Exchange(
            url=self.url,
            method=method or "GET",
            request=self.request,
            response=self.response,
            protocol=protocol,
            truncated=truncated,
            error=self.fields["error"][0] if self.fields["error"] else error,
            started=started,
            sent=times.get("sent") if times else started,
            headers=times.get("headers"),
            ended=max(started, ended),
            charges=[_charge(line) for line in self.fields["scope"]],
            is_timed=bool(times),
        )


_TIMES = ("started", "sent", "headers", "ended")


def _seconds(text: str) -> float:
    """Return an instant (RFC 3339) in seconds since the epoch; 0.0 if it is malformed."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _number(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _charge(line: str) -> tuple[int, float, str]:
    slot, _, rest = line.partition(" ")
    amount, _, scope = rest.partition(" ")
    try:
        return int(slot), float(amount), scope
    except ValueError:
        return 0, 1.0, line


def _read(record: Any, groups: dict[str, _Records], *, has_bodies: bool) -> None:
    """Add a record to the other records of its exchange, which refer to each other (ISO 28500, 5.7)."""
    kind, content, field = record.rec_type, record.content_type or "http", record.rec_headers.get_header
    url = field("WARC-Target-URI") or ""
    is_ours = ("warc-fields" if kind == "metadata" else "http") in content and url.startswith(("http://", "https://"))
    if kind not in ("request", "response", "metadata") or not is_ours:
        return
    own, other = field("WARC-Record-ID"), field("WARC-Concurrent-To") or field("WARC-Refers-To")
    group = groups.get(other) or groups.get(own) or _Records()
    groups[own] = group
    if other:
        groups[other] = group
    block: bytes = record.raw_stream.read()
    group.dates.append(_seconds(field("WARC-Date") or ""))
    group.url = group.url or normalize_url(url)
    if kind == "metadata":
        for line in block.decode("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            group.fields[name.strip()].append(value.strip())
    elif kind == "request":
        group.request = block
    else:
        end, _ = end_of_head(block)
        keeps = has_bodies or urlsplit(group.url).path == "/robots.txt"
        group.response = block if keeps else block[:end]
        protocol, truncated, error = [field(name) or "" for name in ("WARC-Protocol", "WARC-Truncated", ERROR_FIELD)]
        group.about = protocol, truncated, error


def _response(exchange: Exchange, error: DownloadError | None) -> SimulatedResponse | None:
    """Return the response of an exchange; None if there is none."""
    protocol, status, fields, body = _message(exchange.response, is_head=exchange.method == "HEAD")
    if not 200 <= status <= 999:
        return None
    codings = codings_of(Headers.from_wire(fields).getlist("Content-Encoding"))
    with suppress(DownloadError):  # after an error, the body is kept: its headers declare a compression that it lacks
        body = b"".join(Body(codings, MAX_BODY_BYTES).decoded(body))
    headers = Headers.from_wire(_original(fields))
    if "Content-Type" not in headers:
        headers["Content-Type"] = None  # otherwise, the response would be HTML by default
    return SimulatedResponse(
        status,
        body,
        headers,
        error=error,
        flags=_FLAGS.get(exchange.truncated, ()),
        protocol="HTTP/2" if exchange.protocol == "h2" else protocol,
    )


def _error(field: str) -> DownloadError | None:
    """Return the error that ended an exchange; None if there is none."""
    name, _, cause = field.partition(": ")
    try:
        kind = failure_named(name or None)
    except ValueError:
        return None
    return None if kind is None else kind(cause)


def _message(block: bytes, *, is_head: bool) -> tuple[str, int, _Fields, bytes]:
    """Return protocol, status code (0 without a response), headers and body of a response, without chunked framing."""
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
