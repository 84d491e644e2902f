"""The traffic of a crawl as WARC files, which warcio reads and a simulated web answers from."""

from __future__ import annotations

import errno
import gzip
import stat
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import trio
from trio.testing import MockClock
from warcio.archiveiterator import ArchiveIterator  # type: ignore[import-untyped]

import trawl
from tests.feeds.fakes import STARTED_UTC, left_in
from tests.net.badserver import Connection, clock, serving
from tests.net.proxies import proxying
from tests.transport.sinks import NotingSink
from trawl.blocking import InlineBlocking
from trawl.errors import (
    BodyTooLarge,
    DownloadError,
    DownloadTimeout,
    ReadTimeout,
    ResponseBroken,
    SettingsError,
    UsageError,
)
from trawl.http import FileResponse, Outcome, Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate
from trawl.transport import TransportRouter, TransportSettings
from trawl.transport.httpx_transport import HttpxTransport
from trawl.transport.warc import WarcEntry, WarcTransport, WarcWriter, open_archive

__all__ = ["clock"]


class Shop(trawl.Spider):
    name = "shop"
    start_urls = ["http://a.example/"]

    def parse(self, response: Any) -> Any:
        yield {"url": response.url, "text": response.css("title::text").get()}
        yield from response.follow_all(css="a")
        if response.url.endswith("/form"):
            yield trawl.Request.form("http://a.example/search", {"q": "chair"}, callback=self.found)

    def found(self, response: Any) -> Any:
        yield {"found": response.text, "cookie": response.headers.getlist("Set-Cookie")}


def shop() -> SimulatedWeb:
    web = SimulatedWeb()

    def answer(request: Request) -> SimulatedResponse:
        return SimulatedResponse(body=f"{request.method} {request.body!r}", headers={"Set-Cookie": ["a=1", "b=2"]})

    web.add_host("a.example", handler=answer, robots="User-agent: *\nDisallow: /private")
    web.add_page("http://a.example/", links=["/form", "/moved", "/private", "http://b.example:81/x"], title="Ünï")
    web.add_page("http://a.example/form", title="Form")
    web.add_page("http://b.example:81/x", title="B")
    web.add_redirect("http://a.example/moved", "/form?x=1")
    return web


def records(path: Path) -> list[tuple[str, str, str]]:
    with path.open("rb") as file:
        return [
            (
                record.rec_type,
                record.rec_headers.get_header("WARC-Target-URI"),
                record.content_stream().read().decode("utf-8", "replace"),
            )
            for record in ArchiveIterator(file, check_digests="raise")
            if record.rec_type != "warcinfo"
        ]


def test_a_crawl_is_written_down_and_replays(tmp_path: Path) -> None:
    settings = {"WARC_FILE": str(tmp_path / "crawl.warc.gz"), "ALLOW_PRIVATE_ADDRESSES": True}
    spider = type("Plain", (Shop,), {"custom_settings": {}})
    first = simulate(spider, shop(), settings=settings)
    path = tmp_path / "crawl-00001.warc.gz"
    written = records(path)
    assert len(written) == 3 * len(first.sends)
    assert [url for kind, url, _ in written if kind == "response"] == [send.url for send in first.sends]
    again = simulate(spider, SimulatedWeb.from_warc(path))
    assert again.items == first.items
    assert [(send.url, send.status) for send in again.sends] == [(send.url, send.status) for send in first.sends]
    assert len(first.items) == 5


def test_a_request_that_was_never_made_is_not_found_in_a_replay(tmp_path: Path) -> None:
    files = WarcWriter(str(tmp_path / "x.warc"), 10**9)
    request = Request("http://a.example/1#part")
    files.write([WarcEntry(request, Response("http://a.example/1", 200, body=b"one"), STARTED_UTC)])
    files.close()
    web = SimulatedWeb.from_warc(tmp_path / "x-00001.warc")

    class Two(trawl.Spider):
        name = "two"
        start_urls = ["http://a.example/1", "http://a.example/2"]
        handle_httpstatus_list = [404]

        def parse(self, response: Any) -> Any:
            yield {"status": response.status, "text": response.text}

    items = simulate(Two, web).items
    assert items == [
        {"status": 200, "text": "one"},
        {"status": 404, "text": "not in the WARC file"},
    ]


def test_bodies_are_kept_decompressed_and_what_identifies_us_is_not_kept(tmp_path: Path) -> None:
    files = WarcWriter(str(tmp_path / "x.warc"), 10**9)
    request = Request("http://me:pw@a.example/", headers={"Authorization": "Basic x", "Cookie": "id=1", "X-Mine": "y"})
    fields = {"Content-Encoding": "gzip", "Content-Length": "7", "Content-Type": "text/plain"}
    files.write([WarcEntry(request, Response("http://a.example/", 299, fields, b"a longer body"), STARTED_UTC)])
    files.close()
    content = (tmp_path / "x-00001.warc").read_bytes()
    assert b"Basic x" not in content
    assert b"id=1" not in content
    assert b"X-Mine: y" in content
    assert b"Host: a.example\r\n" in content
    assert b"X-Archive-Orig-Content-Encoding: gzip" in content
    assert b"WARC-Date: 2025-01-01T12:30:00.000000Z" in content
    assert records(tmp_path / "x-00001.warc")[0][2] == "a longer body"
    assert stat.S_IMODE((tmp_path / "x-00001.warc").stat().st_mode) == 0o600


def test_a_new_file_is_begun_at_a_size_and_none_is_touched_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "x-00002.warc.gz").write_bytes(b"mine")
    files = WarcWriter(str(tmp_path / "x.warc.gz"), 1500)
    entry = WarcEntry(Request("http://a.example/"), Response("http://a.example/", 200, body=b"x"), STARTED_UTC)
    files.write([entry] * 3)
    files.close()
    assert left_in(tmp_path)[:3] == ["x-00001.warc.gz", "x-00002.warc.gz", "x-00003.warc.gz"]
    assert (tmp_path / "x-00002.warc.gz").read_bytes() == b"mine"
    both = [records(tmp_path / f"x-0000{number}.warc.gz") for number in (1, 3)]
    assert len(both[0]) + len(both[1]) == 9


class Wire:
    """Answers at once."""

    def __init__(self) -> None:
        self.is_closed = False

    async def send(self, request: Request, on_sent: Any) -> Outcome:
        await trio.lowlevel.checkpoint()
        return Outcome(request, Response(request.url, 200, body=b"x", request=request))

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.is_closed = True


class Slow(InlineBlocking):
    """Counts how often it is asked, and takes a while."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, function: Any, *args: Any) -> Any:  # type: ignore[override]  # mypy can't pass Ts on
        self.runs += 1
        await trio.sleep(1)
        return function(*args)


async def test_what_ends_together_is_written_together(tmp_path: Path, autojump_clock: object) -> None:
    blocking: Any = Slow()
    files = WarcWriter(str(tmp_path / "x.warc"), 10**9)
    archive = WarcTransport(Wire(), files, blocking, lambda: STARTED_UTC)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(archive.send, Request(f"http://a.example/{number}"), lambda: None)
    files.close()
    assert blocking.runs <= 2
    assert len(records(tmp_path / "x-00001.warc")) == 60


async def test_a_send_that_is_cancelled_while_it_is_written_down_is_written_at_the_end(
    tmp_path: Path, autojump_clock: object
) -> None:
    wire = Wire()
    blocking: Any = Slow()
    async with open_archive(
        str(tmp_path / "x.warc"), 10**9, blocking=blocking, now_utc=lambda: STARTED_UTC
    ) as archived:
        archive = archived(wire)
        with trio.move_on_after(0.5):
            await archive.send(Request("http://a.example/"), lambda: None)
        await archive.aclose()
    assert wire.is_closed
    assert len(records(tmp_path / "x-00001.warc")) == 3


def test_what_went_to_a_file_is_copied_from_there_and_left_out_when_it_is_gone(tmp_path: Path) -> None:
    class Gone(NotingSink):
        def open(self) -> BinaryIO:
            raise ValueError("the body is there no more")

    files = WarcWriter(str(tmp_path / "x.warc"), 10**9)
    url = "http://a.example/"
    for sink in (NotingSink(content=b"first"), Gone(content=b"gone"), NotingSink(content=b"last")):
        files.write([WarcEntry(Request(url), FileResponse(url, 200, {"Content-Length": "9"}, sink=sink), STARTED_UTC)])
    files.close()
    written = records(tmp_path / "x-00001.warc")
    assert [content for kind, _, content in written if kind == "response"] == ["first", "last"]
    assert b"Content-Length: 5\r\n" in (tmp_path / "x-00001.warc").read_bytes()


async def test_a_disk_that_is_full_ends_the_archive_and_not_the_crawl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    files = WarcWriter(str(tmp_path / "x.warc"), 10**9)
    monkeypatch.setattr(files, "write", refuse)
    archive = WarcTransport(Wire(), files, InlineBlocking(), lambda: STARTED_UTC)
    for _ in range(2):
        assert (await archive.send(Request("http://a.example/"), lambda: None)).response is not None
    await archive.aclose()
    files.close()
    assert caplog.text.count("nothing more is added to it") == 1


@pytest.mark.parametrize(
    ("path", "kind", "why"),
    [("crawl.gz", SettingsError, "must end in"), ("file/crawl.warc", UsageError, "can't be written")],
)
async def test_a_file_that_can_not_be_made_is_told_at_once(
    tmp_path: Path, path: str, kind: type[Exception], why: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(kind, match=why):
        async with open_archive(str(tmp_path / path), 1, blocking=InlineBlocking(), now_utc=lambda: STARTED_UTC):
            pass


def test_a_file_that_is_no_warc_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.warc").write_text("hello")
    with pytest.raises(ValueError, match="is not a WARC file"):
        SimulatedWeb.from_warc(tmp_path / "x.warc")


OK = b"HTTP/1.1 200 OK\r\n"
PACKED = gzip.compress(b"<title>Packed</title>", mtime=0)
ANSWERS = [
    b"HTTP/1.1 302 Moved\r\nLocation: /caf\xc3\xa9\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 302\r\nLocation: /\xed\xee\r\nlocation: /x\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 999 Request denied \xfc\r\nContent-Length: 2\r\n\r\nno",
    OK
    + b"Set-Cookie: a=\xe9; Path=/\r\nSET-COOKIE: b=\xc3\xa9\r\nX-Name:  J\xf6rg;x=y \t\r\nContent-Length: 1\r\n\r\nx",
    OK + b'Content-Disposition: attachment; filename="caf\xe9.txt"\r\nContent-Length: 5\r\n\r\nhello',
    OK + b"Transfer-Encoding: chunked\r\nContent-Type: text/plain\r\n\r\n5;x=y\r\nhello\r\n0\r\nX-After: 1\r\n\r\n",
    OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(PACKED), PACKED),
    OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(PACKED), PACKED),
    OK + b"Content-Type: text/html; charset=windows-1251\r\n\r\n\xcf\xf0\xe8",
    OK + b"X-Folded: a\r\n b\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 204 Nothing\r\nContent-Length: 7\r\n\r\n",
    b"HTTP/1.0 404 not  there\r\n\r\n",
]


async def exchange(
    folder: Path,
    answer: bytes,
    *,
    method: str = "GET",
    proxied: bool = False,
    sink: NotingSink | None = None,
    lasts: float = 0.0,
    transport: type[TransportRouter | HttpxTransport] = TransportRouter,
    **settings: Any,
) -> Any:
    """A request whose answer is archived: its outcome, the blocks of the file's records, and the replay's response."""

    async def answers(connection: Connection) -> None:
        await connection.send(answer)
        await trio.sleep(lasts)

    urls = []
    async with (
        serving(answers) as server,
        proxying() as proxy,
        open_archive(
            str(folder / "x.warc.gz"), 10**9, blocking=InlineBlocking(), now_utc=lambda: STARTED_UTC
        ) as archived,
    ):
        wire = archived(transport(TransportSettings(**settings), keeps_received=True))
        urls.append(server.url)
        meta = {"proxy": proxy.url()} if proxied else None
        request = Request(server.url, method=method, meta=meta)
        request.sink = sink
        outcome = await wire.send(request, lambda: None)
        await wire.aclose()
    path = folder / "x-00001.warc.gz"
    with path.open("rb") as file:
        blocks = [record.raw_stream.read() for record in ArchiveIterator(file, no_record_parse=True)]
    assert len(records(path)) == 3  # whose digests are checked
    replay = SimulatedWeb.from_warc(path).transport()
    again = await replay.send(Request(urls[0], method=method), lambda: None)
    assert (type(again.error), str(again.error)) == (type(outcome.error), str(outcome.error))
    return outcome, blocks[1], again.response


def seen(response: Any) -> Any:
    about = response.status, response.protocol, response.flags, response.headers.items_list()
    return *about, response.body, response.text


CUT = [
    (OK + b"Content-Length: 9\r\n\r\nhello", ResponseBroken, "disconnect", {}),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", ResponseBroken, "disconnect", {}),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n5", ResponseBroken, "disconnect", {}),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nx\r\n", ResponseBroken, "disconnect", {}),
    (OK + b"Content-Length: 2\r\n\r\nhello", ResponseBroken, "disconnect", {}),
    (OK + b"Content-Encoding: gzip\r\n\r\n" + PACKED[:20], ResponseBroken, "disconnect", {}),
    (OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", ResponseBroken, "disconnect", {}),
    (OK + b"Content-Length: 99\r\n\r\nhello", BodyTooLarge, "length", {"download_maxsize": 9}),
    (OK + b"\r\n" + b"hello" * 9, BodyTooLarge, "length", {"download_maxsize": 9}),
    (OK + b"Content-Length: 9\r\n\r\nhello", ReadTimeout, "time", {"download_read_timeout": 0.05, "lasts": 0.5}),
    (OK + b"Content-Length: 9\r\n\r\nhello", DownloadTimeout, "time", {"download_timeout": 0.05, "lasts": 0.5}),
]


def fields_of(path: Path) -> dict[str, str]:
    """The fields of the response record."""
    with path.open("rb") as file:
        found = [record for record in ArchiveIterator(file, no_record_parse=True) if record.rec_type == "response"]
    return dict(found[0].rec_headers.headers)


@pytest.mark.parametrize("transport", [TransportRouter, HttpxTransport])
@pytest.mark.parametrize(("answer", "error", "reason", "settings"), CUT, ids=range(len(CUT)))
async def test_a_response_that_ended_early_is_stored_as_far_as_it_came_and_fails_again(
    tmp_path: Path,
    answer: bytes,
    error: type[Exception],
    reason: str,
    settings: dict[str, Any],
    transport: type[Any],
    clock: MockClock,
) -> None:
    outcome, block, _ = await exchange(tmp_path, answer, transport=transport, **settings)
    assert type(outcome.error) is error
    assert fields_of(tmp_path / "x-00001.warc.gz")["WARC-Truncated"] == reason
    if transport is TransportRouter and b"Length: 2" not in answer:
        assert block == answer
    assert block.startswith(OK)
    assert outcome.received is None


@pytest.mark.parametrize("transport", [TransportRouter, HttpxTransport])
async def test_of_a_response_for_a_file_that_ended_early_the_head_is_stored(
    tmp_path: Path, transport: type[Any], clock: MockClock
) -> None:
    answer = OK + b"Content-Length: 999999\r\n\r\n" + b"0123456789abcdef" * 20_000
    outcome, block, _ = await exchange(tmp_path, answer, transport=transport, sink=NotingSink())
    assert type(outcome.error) is ResponseBroken
    assert block == OK + b"X-Archive-Orig-Content-Length: 999999\r\nContent-Length: 0\r\n\r\n"


async def test_an_incomplete_body_that_is_allowed_replays_with_its_flag(tmp_path: Path, clock: MockClock) -> None:
    answer = OK + b"Content-Length: 9\r\n\r\nhello"
    outcome, block, again = await exchange(tmp_path, answer, download_fail_on_dataloss=False)
    assert block == answer
    assert outcome.response.flags == ["dataloss"]
    assert seen(again) == seen(outcome.response)


def test_a_crawl_with_errors_replays_to_the_same_items_of_its_errbacks(tmp_path: Path) -> None:
    class Failing(trawl.Spider):
        name = "failing"

        async def start(self) -> Any:
            for name in ("whole", "broken", "slow"):
                yield Request(f"http://a.example/{name}", errback=self.failed)

        def parse(self, response: Any) -> Any:
            yield {"text": response.text, "protocol": response.protocol}

        def failed(self, error: Any) -> Any:
            yield {"url": error.request.url, "error": type(error).__name__, "words": error.cause}

    errors: dict[str, type[DownloadError]] = {"broken": ResponseBroken, "slow": ReadTimeout}

    def answer(request: Request) -> SimulatedResponse:
        return SimulatedResponse(body="half", error=errors.get(request.url[17:]), protocol="HTTP/1.0")

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    settings = {"RETRY_TIMES": 0, "WARC_FILE": str(tmp_path / "crawl.warc.gz")}
    first = simulate(Failing, web, settings=settings, errors="collect")
    again = simulate(
        Failing, SimulatedWeb.from_warc(tmp_path / "crawl-00001.warc.gz"), {"RETRY_TIMES": 0}, errors="collect"
    )
    assert len(first.items) == 3
    assert again.items == first.items


@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"], ids=["alone", "hints"])
async def test_a_response_is_kept_as_it_came_and_replays_as_it_was(
    tmp_path: Path, answer: bytes, begins: bytes, autojump_clock: MockClock
) -> None:
    outcome, block, again = await exchange(tmp_path, begins + answer)
    assert block == answer
    assert seen(again) == seen(outcome.response)
    assert outcome.received is None


@pytest.mark.parametrize("answer", [each for each in ANSWERS if b"Length" in each or b"chunked" in each], ids=range(10))
async def test_so_it_is_through_a_proxy_but_for_the_chunks(
    tmp_path: Path, answer: bytes, autojump_clock: MockClock
) -> None:
    outcome, block, again = await exchange(tmp_path, answer, proxied=True)
    assert seen(again) == seen(outcome.response)
    if b"chunked" not in answer:
        assert block.partition(b"\r\n\r\n")[2] == answer.partition(b"\r\n\r\n")[2]
    assert block.split(b"\r\n")[0].rstrip() == answer.split(b"\r\n")[0]


async def test_a_response_to_head_is_kept_and_replays_without_a_body(tmp_path: Path, autojump_clock: MockClock) -> None:
    answer = OK + b"Content-Length: 7\r\n\r\n"
    outcome, block, again = await exchange(tmp_path, answer, method="HEAD")
    assert block == answer
    assert seen(again) == seen(outcome.response)


@pytest.mark.parametrize("proxied", [False, True])
async def test_of_a_body_that_went_to_a_file_the_head_is_kept_as_it_came(
    tmp_path: Path, proxied: bool, autojump_clock: MockClock
) -> None:
    body = b"0123456789abcdef" * 65_536
    head = b"HTTP/1.1 200 Fine\r\nX-Name: J\xf6rg\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    outcome, block, again = await exchange(tmp_path, head + chunks, proxied=proxied, sink=NotingSink())
    assert isinstance(outcome.response, FileResponse)
    kept, _, rest = block.partition(b"\r\n\r\n")
    assert kept.replace(b"\r\nContent-Length: 1048576", b"") == head[:-4].replace(b"Tr", b"X-Archive-Orig-Tr")
    assert rest == body
    assert seen(again) == seen(outcome.response)


async def test_what_comes_behind_a_response_is_not_a_part_of_it(tmp_path: Path, autojump_clock: MockClock) -> None:
    answer = b"HTTP/1.1 204 N\r\n\r\n"
    _, block, _ = await exchange(tmp_path, answer + b"HTTP/1.1 200 OK\r\n\r\n")
    assert block == answer


def record_of(head: bytes, body: bytes, folder: Path, *more: str) -> Path:
    """A file with one response that an archiver has written."""
    block = head + body
    lines = [
        "WARC/1.0",
        "WARC-Type: response",
        "WARC-Record-ID: <urn:x>",
        "WARC-Target-URI: http://a.example/",
        "Content-Type: application/http; msgtype=response",
        f"Content-Length: {len(block)}",
        *more,
        "\r\n",
    ]
    path = folder / "other.warc"
    path.write_bytes("\r\n".join(lines).encode() + block + b"\r\n\r\n")
    return path


@pytest.mark.parametrize(
    "head",
    [
        OK + b"Transfer-Encoding: chunked\r\n\r\n",
        OK + b"Content-Encoding: gzip\r\n\r\n",
        OK + b"Content-Length: 2\r\n\r\n",
        b"HTTP/2 200\r\nserver: x\r\n\r\n",
        b"HTTP/2 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        OK + b"X-Archive-Orig-Content-Length: 99\r\nContent-Length: 5\r\n\r\n",
    ],
)
async def test_a_file_of_another_archiver_replays_as_far_as_it_makes_sense(
    tmp_path: Path, head: bytes, autojump_clock: MockClock
) -> None:
    replay = SimulatedWeb.from_warc(record_of(head, b"hello", tmp_path)).transport()
    response = (await replay.send(Request("http://a.example/"), lambda: None)).response
    assert response is not None
    assert (response.status, response.body) == (200, b"hello")


@pytest.mark.parametrize(
    ("reason", "flag"), [("length", "truncated"), ("time", "dataloss"), ("disconnect", "dataloss")]
)
@pytest.mark.parametrize("fields", [[], ["Trawl-Error: SystemExit: 0"]])
async def test_a_truncated_body_of_another_archiver_replays_with_a_flag(
    tmp_path: Path, reason: str, flag: str, fields: list[str], autojump_clock: MockClock
) -> None:
    path = record_of(OK + b"Content-Length: 9\r\n\r\n", b"hello", tmp_path, f"WARC-Truncated: {reason}", *fields)
    response = (
        await SimulatedWeb.from_warc(path).transport().send(Request("http://a.example/"), lambda: None)
    ).response
    assert response is not None
    assert (response.body, response.flags) == (b"hello", [flag])


def test_the_protocol_of_a_response_over_http_2_is_replayed(tmp_path: Path) -> None:
    class Shown(trawl.Spider):
        name = "shown"
        start_urls = ["http://a.example/"]

        def parse(self, response: Any) -> Any:
            yield {"protocol": response.protocol}

    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(protocol="HTTP/2"))
    simulate(Shown, web, settings={"WARC_FILE": str(tmp_path / "crawl.warc")})
    path = tmp_path / "crawl-00001.warc"
    assert b"HTTP/1.1 200 OK\r\n" in path.read_bytes()
    assert simulate(Shown, SimulatedWeb.from_warc(path)).items == [{"protocol": "HTTP/2"}]


def test_a_crawl_whose_pages_are_not_ascii_replays_to_the_same_items(tmp_path: Path) -> None:
    class Cafe(trawl.Spider):
        name = "cafe"
        start_urls = ["http://a.example/"]

        def parse(self, response: Any) -> Any:
            yield {"url": response.url, "fields": response.headers.items_list(), "text": response.text}

    def answer(request: Request) -> SimulatedResponse:
        if request.url.endswith("/"):
            return SimulatedResponse(302, "", {"Location": "/caf\u00e9".encode().decode("latin-1")})
        return SimulatedResponse(body=request.url, headers={"X-Name": "J\u00f6rg", "Set-Cookie": "a=\u00e9"})

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    first = simulate(Cafe, web, settings={"WARC_FILE": str(tmp_path / "crawl.warc.gz")})
    assert first.items[0]["url"] == "http://a.example/caf%C3%A9"
    assert simulate(Cafe, SimulatedWeb.from_warc(tmp_path / "crawl-00001.warc.gz")).items == first.items
