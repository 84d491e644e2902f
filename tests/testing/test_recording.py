"""What a crawl records of its sends in WARC files, and how a simulated web repeats them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock
from warcio.archiveiterator import ArchiveIterator  # type: ignore[import-untyped]

import trawl
from tests.feeds.fakes import STARTED_UTC
from tests.net.badserver import Connection, clock, serving
from trawl._run import crawl_with
from trawl.blocking import InlineBlocking
from trawl.errors import ConnectFailed, ReadTimeout
from trawl.http import Outcome, Request
from trawl.settings import Layer, load, of_spider
from trawl.testing import LogNormal, RateLimit, SimulatedResponse, SimulatedWeb, simulate
from trawl.testing.limits import TokenBucket, announced_limit, fit_limit
from trawl.testing.warc import Exchange, _host, read_exchanges
from trawl.transport.warc import METADATA_FIELDS, open_archive

__all__ = ["clock"]

FREE: dict[str, Any] = {
    "THROTTLING_SCOPES": {"a.example": {"delay": 0, "delay_per_slot": 0, "concurrency": 8}},
    "ROBOTSTXT_OBEY": False,
    "RANDOMIZE_DOWNLOAD_DELAY": False,
}


class Listed(trawl.Spider):
    name = "listed"
    count = 40
    handle_httpstatus_list = [404]

    async def start(self) -> Any:
        for number in range(self.count):
            yield Request(f"http://a.example/{number}", errback=self.failed)

    def parse(self, response: Any) -> Any:
        yield {"url": response.url, "status": response.status}

    def failed(self, error: Any) -> Any:
        yield {"error": type(error).__name__}


def recorded(tmp_path: Path, web: SimulatedWeb, **settings: Any) -> Any:
    values = {**FREE, "WARC_FILE": str(tmp_path / "crawl.warc.gz"), **settings}
    return simulate(Listed, web, values, errors="collect"), tmp_path / "crawl-00001.warc.gz"


def metadata(path: Path) -> list[dict[str, list[str]]]:
    """The fields of each metadata record."""
    found = []
    with path.open("rb") as file:
        for record in ArchiveIterator(file, check_digests="raise"):
            if record.rec_type == "metadata":
                fields: dict[str, list[str]] = {}
                for line in record.content_stream().read().decode().splitlines():
                    name, _, value = line.partition(": ")
                    fields.setdefault(name, []).append(value)
                found.append(fields)
    return found


def test_each_exchange_has_a_record_of_its_instants_and_scopes(tmp_path: Path) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.25, connect=0.125)
    sim, path = recorded(tmp_path, web)
    found = metadata(path)
    assert len(found) == len(sim.sends) == 40
    assert {name for fields in found for name in fields} == {*METADATA_FIELDS} - {"error"}
    first = found[0]
    instants = [datetime.fromisoformat(first[name][0]) for name in ("started", "sent", "headers", "ended")]
    assert instants[1] - instants[0] == timedelta(seconds=0.125)
    assert instants[3] - instants[1] == timedelta(seconds=0.25)
    assert first["fetchTimeMs"] == ["375"]
    assert {slot for fields in found for slot in fields["scope"]} == {f"{slot} 1 a.example" for slot in range(1, 9)}
    begun = datetime(2025, 1, 1).astimezone(instants[0].tzinfo).replace(hour=0)
    assert [(datetime.fromisoformat(each["sent"][0]) - begun) / timedelta(seconds=1) for each in found] == [
        pytest.approx(send.time) for send in sorted(sim.sends, key=lambda send: (send.finished, send.time))
    ]


def test_a_failed_exchange_has_a_record_too(tmp_path: Path) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.5, handler=lambda request: SimulatedResponse(error=ReadTimeout("too slow")))
    sim, path = recorded(tmp_path, web, RETRY_TIMES=0)
    web.add_host("b.example", connect_error=ConnectFailed)
    assert [fields["error"] for fields in metadata(path)] == [["ReadTimeout: too slow"]] * len(sim.sends)
    replay = SimulatedWeb.from_warc(path)
    again = simulate(Listed, replay, {**FREE, "RETRY_TIMES": 0}, errors="collect")
    assert again.items == sim.items
    assert again.sends == sim.sends


def test_a_host_without_connections_is_refused_again(tmp_path: Path) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", connect_error=ConnectFailed("refused"), connect=0.5)
    sim, path = recorded(tmp_path, web, RETRY_TIMES=0)
    assert metadata(path)
    assert not any("sent" in fields for fields in metadata(path))
    again = simulate(Listed, SimulatedWeb.from_warc(path), {**FREE, "RETRY_TIMES": 0}, errors="collect")
    assert (again.items, again.sends, again.elapsed) == (sim.items, (), sim.elapsed)


async def test_a_send_that_is_cancelled_is_recorded(tmp_path: Path, autojump_clock: object) -> None:
    class Sent:
        sent_at: float | None = None
        charges = [(2, 1234567.125, "an account")]

        def __call__(self) -> bool:
            self.sent_at = trio.current_time()
            return False

    class Hanging:
        async def send(self, request: Request, on_sent: Any) -> Outcome:
            on_sent()
            await trio.sleep_forever()
            raise AssertionError

        async def aclose(self) -> None:
            await trio.lowlevel.checkpoint()

    async with open_archive(
        str(tmp_path / "x.warc"), 10**9, blocking=InlineBlocking(), now_utc=lambda: STARTED_UTC
    ) as archived:
        archive = archived(Hanging())
        with trio.move_on_after(3):
            await archive.send(Request("http://a.example/"), Sent())
        await archive.aclose()
    (exchange,) = read_exchanges([tmp_path / "x-00001.warc"])
    assert exchange.error.startswith("Cancelled")
    assert (exchange.ended - exchange.started, exchange.charges) == (3.0, [(2, 1234567.125, "an account")])
    assert exchange.answer() is None


def test_bodies_are_left_out_but_those_of_robots_txt(tmp_path: Path) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", body="<p>a page</p>", robots="User-agent: *\nDisallow: /3")
    _, path = recorded(tmp_path, web, WARC_BODIES=False, ROBOTSTXT_OBEY=True)
    bodies = {}
    with path.open("rb") as file:
        for record in ArchiveIterator(file, check_digests="raise"):
            if record.rec_type == "response":
                bodies[record.rec_headers.get_header("WARC-Target-URI")] = (
                    record.content_stream().read(),
                    record.rec_headers.get_header("WARC-Truncated"),
                )
    assert bodies.pop("http://a.example/robots.txt") == (b"User-agent: *\nDisallow: /3", None)
    assert {*bodies.values()} == {(b"", "unspecified")}
    assert "http://a.example/3" not in bodies


def test_a_replay_takes_as_long_as_the_crawl(tmp_path: Path) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=LogNormal(0.5), connect=0.125)
    sim, path = recorded(tmp_path, web)
    again = simulate(Listed, SimulatedWeb.from_warc(path), FREE)
    assert again.elapsed == pytest.approx(sim.elapsed, abs=0.001)
    slower = simulate(Listed, web, {**FREE, "THROTTLING_SCOPES": {"a.example": {"delay": 1, "concurrency": 2}}})
    replayed = simulate(
        Listed,
        SimulatedWeb.from_warc(path),
        {**FREE, "THROTTLING_SCOPES": {"a.example": {"delay": 1, "concurrency": 2}}},
    )
    assert replayed.elapsed == pytest.approx(slower.elapsed, rel=0.1)


def test_a_limit_is_found_from_refusals(tmp_path: Path) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1, limit=RateLimit(2, 5))
    pace = {"THROTTLING_SCOPES": {"a.example": {"delay": 0.3, "delay_per_slot": 0, "concurrency": 8}}}
    sim, path = recorded(tmp_path, web, BACKOFF_HTTP_CODES=[], **pace)
    replay = SimulatedWeb.from_warc(path)
    assert replay.recording is not None
    (fit,) = replay.recording.fits
    assert fit.limit is not None
    assert fit.rates == pytest.approx((2, 2), rel=0.02)
    assert fit.limit.burst == pytest.approx(5, abs=1)
    assert (fit.limit.status, fit.limit.retry_after) == (429, None)
    assert (fit.sends, fit.refusals) == (len(sim.sends), sum(send.status == 429 for send in sim.sends))
    assert fit.misjudged == 0
    settings = {**FREE, "THROTTLING_SCOPES": {"a.example": {"delay": 0.25, "concurrency": 4}}}
    again, truth = simulate(Listed, replay, settings), simulate(Listed, web, settings)
    refusals = [sum(send.status == 429 for send in each.sends) for each in (again, truth)]
    assert again.elapsed == pytest.approx(truth.elapsed, rel=0.1)
    assert abs(refusals[0] - refusals[1]) <= 1


def test_sends_are_compared_with_a_limit_in_the_order_in_which_the_server_got_them() -> None:
    bucket, played, sent = TokenBucket(RateLimit(5, 3)), [], 0.0
    random = Random(1)
    for number in range(200):
        sent += random.expovariate(6)
        connect = 0.3 if random.random() < 0.3 else 0.0
        status = 200 if bucket.take(sent) else 429
        head = f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode()
        url, started = f"http://a.example/{number}", sent - connect
        played.append(Exchange(url=url, response=head, started=started, sent=sent, ended=sent + 0.1, is_timed=True))
    _, fit = _host("a.example", sorted(played, key=lambda each: each.started), None)
    assert fit.misjudged == 0
    assert fit.limit is not None
    assert fit.limit.rate == pytest.approx(5, rel=0.02)


def test_the_limit_that_was_announced_last_counts_even_if_its_connection_was_older() -> None:
    def exchange(limit: int, started: float, sent: float) -> Exchange:
        head = f"HTTP/1.1 200 OK\r\nRateLimit-Limit: {limit}, {limit};w=1\r\nContent-Length: 0\r\n\r\n".encode()
        url = f"http://a.example/{limit}"
        return Exchange(url=url, response=head, started=started, sent=sent, ended=9.0, is_timed=True)

    _, fit = _host("a.example", [exchange(2, 1.0, 1.5), exchange(7, 1.2, 1.2)], None)
    assert fit.limit is not None
    assert fit.limit.rate == 2


@pytest.mark.parametrize(("rate", "burst"), [(0.2, 1), (5, 10), (100, 1), (3, 50)])
def test_a_bucket_explains_what_it_did(rate: float, burst: float) -> None:
    bucket, at, sends = TokenBucket(RateLimit(rate, burst)), 0.0, []
    for number in range(300):  # bursts of three times the rate, and pauses
        at += (1 / 3 if number % int(3 * burst + 5) else burst * (0.3 + number % 7 / 10)) / rate
        sends.append((at, not bucket.take(at)))
    limit, rates, misjudged = fit_limit(sends)
    assert misjudged <= 9
    assert limit.rate == pytest.approx(rate, rel=0.03)
    assert rates == pytest.approx((rate, rate), rel=0.05)


def test_refusals_that_no_limit_explains_are_repeated_as_they_were(tmp_path: Path) -> None:
    asked: dict[str, int] = {}

    def answer(request: Request) -> SimulatedResponse:
        asked[request.url] = asked.get(request.url, 0) + 1
        is_down = int(request.url.rsplit("/", 1)[1]) % 5 == 0 and asked[request.url] == 1
        return SimulatedResponse(503 if is_down else 200)

    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1, handler=answer)
    settings = {"THROTTLING_SCOPES": {"a.example": {"delay": 1, "delay_per_slot": 0, "concurrency": 1}}}
    _, path = recorded(tmp_path, web, BACKOFF_HTTP_CODES=[], **settings)
    recording = SimulatedWeb.from_warc(path).recording
    assert recording is not None
    (fit,) = recording.fits
    assert (fit.limit, fit.refusals, fit.left_out) == (None, 8, 8)


@pytest.mark.parametrize("dialect", ["draft-03", "draft-07", "draft-10"])
def test_an_announced_limit_is_simulated(tmp_path: Path, dialect: str) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", limit=RateLimit(10, 60, headers=dialect))
    _, path = recorded(tmp_path, web)
    recording = SimulatedWeb.from_warc(path).recording
    assert recording is not None
    assert recording.fits[0].limit == RateLimit(10, 60, headers=dialect)


def test_nothing_is_announced_by_other_headers() -> None:
    assert announced_limit([trawl.http.Headers({"RateLimit-Policy": "60;w=0, x", "RateLimit-Limit": "5"})]) is None


def test_the_load_of_a_server_is_seen_in_its_latency(tmp_path: Path) -> None:
    in_flight = 0

    async def answer(request: Request) -> SimulatedResponse:
        nonlocal in_flight
        in_flight += 1
        await trio.sleep(0.1 * in_flight)
        in_flight -= 1
        return SimulatedResponse()

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    _, path = recorded(tmp_path, web)
    recording = SimulatedWeb.from_warc(path).recording
    assert recording is not None
    assert recording.fits[0].drift > 0.1


def warc(folder: Path, *records: tuple[str, bytes]) -> Path:
    """A file of another archiver."""
    path = folder / "other.warc"
    with path.open("wb") as file:
        for head, block in records:
            text = f"WARC/1.0\r\nWARC-Target-URI: http://a.example/\r\n{head}Content-Length: {len(block)}\r\n\r\n"
            if "WARC-Target-URI" in head:
                text = text.replace("WARC-Target-URI: http://a.example/\r\n", "", 1)
            file.write(text.encode() + block + b"\r\n\r\n")
    return path


def test_the_times_of_other_archivers_are_read(tmp_path: Path) -> None:
    http = "Content-Type: application/http\r\nWARC-Date: 2026-01-01T00:00:05Z\r\n"
    asks, says = b"POST / HTTP/1.1\r\nUser-Agent: other\r\n\r\na=1", b"HTTP/1.1 200 OK\r\n\r\nhello"
    path = warc(
        tmp_path,  # in the order of wget, with the metadata of Heritrix
        (f"WARC-Type: request\r\nWARC-Record-ID: <urn:a>\r\n{http}", asks),
        (f"WARC-Type: response\r\nWARC-Record-ID: <urn:b>\r\nWARC-Concurrent-To: <urn:a>\r\n{http}", says),
        (
            "WARC-Type: metadata\r\nWARC-Record-ID: <urn:c>\r\nWARC-Concurrent-To: <urn:b>\r\n"
            "Content-Type: application/warc-fields\r\nWARC-Date: 2026-01-01T00:00:06Z\r\n",
            b"fetchTimeMs: 2500\r\n",
        ),
        ("WARC-Type: metadata\r\nWARC-Record-ID: <urn:d>\r\nContent-Type: application/warc-fields\r\n", b"via: x\r\n"),
        ("WARC-Type: response\r\nWARC-Record-ID: <urn:e>\r\nContent-Type: text/dns\r\n", b"20260101 a.example. 5"),
        ("WARC-Type: metadata\r\nWARC-Target-URI: dns:a.example\r\nContent-Type: application/warc-fields\r\n", b"a: b"),
    )
    (exchange,) = read_exchanges([path], has_bodies=False)
    assert exchange.key == ("POST", "http://a.example/", b"a=1")
    assert exchange.response == says.removesuffix(b"hello")
    assert exchange.ended - exchange.started == 2.5
    assert not exchange.is_timed


PAGES = 12
DELAYS = (0.05, 0.4, 0.1, 0.2)
"""Seconds that the server takes for a page, in turn."""


class Local(trawl.Spider):
    name = "local"
    custom_settings = {"ROBOTSTXT_OBEY": False}
    server = ""

    async def start(self) -> Any:
        for number in range(PAGES):
            yield Request(f"{self.server}{number}")

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}


async def crawled(server: str, **settings: Any) -> float:
    """Crawl a real server. Returns the seconds that it took."""
    loaded = load(Layer("test", {"ALLOW_PRIVATE_ADDRESSES": True, **settings}), of_spider(Local))
    return (await crawl_with(Local, loaded, spider_args={"server": server}, blocking=InlineBlocking())).elapsed


async def test_a_simulation_is_within_a_tenth_of_a_real_crawl_at_other_settings(
    tmp_path: Path, clock: MockClock
) -> None:
    async def answers(connection: Connection) -> None:
        number = int(connection.head.split(b" ")[1][1:])
        await trio.sleep(DELAYS[number % len(DELAYS)])
        await connection.answer(b"<title>page</title>")

    calm = {"THROTTLING_SCOPES": {"127.0.0.1": {"delay": 0.5, "jitter": [1, 1], "concurrency": 1}}}
    other = {"THROTTLING_SCOPES": {"127.0.0.1": {"delay": 0, "delay_per_slot": 0, "concurrency": 2}}}
    async with serving(answers) as server:
        await crawled(server.url, WARC_FILE=str(tmp_path / "crawl.warc.gz"), **calm)
        took = await crawled(server.url, **other)
    web = SimulatedWeb.from_warc(tmp_path / "crawl-00001.warc.gz")
    sim = await trio.to_thread.run_sync(lambda: simulate(Local, web, other, server=server.url))
    assert sim.elapsed == pytest.approx(took, rel=0.1)
    assert sim.elapsed == pytest.approx(PAGES * sum(DELAYS) / len(DELAYS) / 2, rel=0.2)
