"""A large body goes to the sink of its request while it comes, whichever transport reads it."""

from __future__ import annotations

import gzip
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.net.badserver import MEGABYTE, Behaviour, Connection, clock, serving
from tests.transport.http11.memory import Servers, transport_to
from tests.transport.http11.test_checkpoints import cancelled_everywhere
from tests.transport.sinks import NotingSink
from trawl.errors import BodyNotWritten, BodyTooLarge, DownloadTimeout, ReadTimeout, ResponseBroken
from trawl.http import FileResponse, Outcome, Request, Response
from trawl.testing import SimulatedWeb
from trawl.testing.transport import SimulatedTransport
from trawl.transport import Http11Transport, HttpxTransport, Transport, TransportSettings
from trawl.transport.body import MEMORY_BYTES

__all__ = ["clock"]

LARGE = bytes(range(256)) * (MEGABYTE // 256)
SMALL = b"x" * (MEMORY_BYTES - 1)


def nothing() -> None:
    """Nobody wants to know that it was sent."""


@pytest.fixture(params=[Http11Transport, HttpxTransport])
def kind(request: pytest.FixtureRequest) -> type[Transport]:
    made: type[Transport] = request.param
    return made


def request_to(url: str, sink: NotingSink, **meta: object) -> Request:
    request = Request(url, meta=meta)
    request.sink = sink
    return request


@asynccontextmanager
async def asked(
    kind: type, behaviour: Behaviour, sink: NotingSink, settings: TransportSettings | None = None, **meta: object
) -> AsyncGenerator[Outcome, None]:
    """The outcome of a request with a sink, while the server and the transport are there."""
    async with serving(behaviour) as server:
        transport = kind(settings or TransportSettings())
        yield await transport.send(request_to(server.url, sink, **meta), nothing)
        await transport.aclose()
        await server.all_gone()


def answering(body: bytes, status: str = "200 OK", *fields: str) -> Behaviour:
    async def answer(connection: Connection) -> None:
        await connection.answer(body, status, *fields)

    return answer


def whole(outcome: Outcome) -> Response:
    assert outcome.error is None
    assert outcome.response is not None
    return outcome.response


async def test_a_large_body_is_in_the_sink_and_can_be_read_back(kind: type, clock: MockClock) -> None:
    sink = NotingSink()
    async with asked(kind, answering(LARGE), sink) as outcome:
        response = whole(outcome)
        assert isinstance(response, FileResponse)
        assert sink.content == response.body == LARGE
        assert (response.size_bytes, response.status, response.flags) == (len(LARGE), 200, [])
        assert response.headers["Content-Length"] == str(len(LARGE))
        assert (sink.begun, sink.discarded) == (1, 0)


async def test_writes_are_gathered_and_bounded(kind: type, clock: MockClock) -> None:
    async def in_crumbs(connection: Connection) -> None:
        chunks = b"".join(b"64\r\n" + LARGE[at : at + 100] + b"\r\n" for at in range(0, 600_000, 100))
        await connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        connection.is_kept = True

    sink = NotingSink()
    async with asked(kind, in_crumbs, sink) as outcome:
        assert isinstance(outcome.response, FileResponse)
        assert sink.content == LARGE[:600_000]
        assert all(MEMORY_BYTES <= size <= 2 * MEMORY_BYTES for size in sink.written[:-1])


async def test_a_small_body_stays_in_memory(kind: type, clock: MockClock) -> None:
    sink = NotingSink()
    async with asked(kind, answering(SMALL), sink) as outcome:
        assert type(whole(outcome)) is Response
        assert whole(outcome).body == SMALL
        assert (sink.begun, sink.written) == (0, [])


@pytest.mark.parametrize("status", ["301 Moved", "404 Not Found", "503 Unavailable"])
async def test_only_the_body_of_a_success_goes_there(kind: type, clock: MockClock, status: str) -> None:
    sink = NotingSink()
    async with asked(kind, answering(LARGE, status), sink) as outcome:
        assert whole(outcome).body == LARGE
        assert sink.begun == 0


async def test_a_compressed_body_is_written_decompressed_and_never_in_large_pieces(
    kind: type, clock: MockClock
) -> None:
    bomb = gzip.compress(b"\0" * 8 * MEGABYTE)  # 8 kB: it comes in one read
    sink = NotingSink()
    async with asked(kind, answering(bomb, "200 OK", "Content-Encoding: gzip"), sink) as outcome:
        assert isinstance(outcome.response, FileResponse)
        assert sink.content == b"\0" * 8 * MEGABYTE
        assert max(sink.written) <= 2 * MEMORY_BYTES


async def test_a_bomb_ends_at_the_limit_and_is_discarded(kind: type, clock: MockClock) -> None:
    bomb = gzip.compress(b"\0" * 8 * MEGABYTE)
    sink = NotingSink()
    settings = TransportSettings(download_maxsize=MEGABYTE)
    async with asked(kind, answering(bomb, "200 OK", "Content-Encoding: gzip"), sink, settings) as outcome:
        assert isinstance(outcome.error, BodyTooLarge)
        assert (sink.begun, sink.discarded, sink.content) == (1, 1, b"")
        assert sum(sink.written) <= MEGABYTE


async def test_a_length_beyond_the_limit_is_refused_before_anything_is_written(kind: type, clock: MockClock) -> None:
    sink = NotingSink()
    async with asked(kind, answering(LARGE), sink, TransportSettings(download_maxsize=500_000)) as outcome:
        assert isinstance(outcome.error, BodyTooLarge)
        assert sink.begun == 0


async def test_a_body_may_be_cut_at_the_limit(kind: type, clock: MockClock) -> None:
    sink = NotingSink()
    async with asked(kind, answering(LARGE), sink, download_truncate=True, download_maxsize=500_000) as outcome:
        response = whole(outcome)
        assert response.flags == ["truncated"]
        assert response.body == LARGE[:500_000]


async def breaks_off(connection: Connection) -> None:
    await connection.send(f"HTTP/1.1 200 OK\r\nContent-Length: {2 * len(LARGE)}\r\n\r\n".encode() + LARGE)


async def test_a_body_that_is_cut_off_is_discarded(kind: type, clock: MockClock) -> None:
    sink = NotingSink()
    async with asked(kind, breaks_off, sink) as outcome:
        assert isinstance(outcome.error, ResponseBroken)
        assert (sink.begun, sink.discarded) == (1, 1)


class StuckSink(NotingSink):
    """Can't remove what it has."""

    async def discard(self) -> None:
        await super().discard()
        raise PermissionError("read-only")


async def test_a_part_that_can_not_be_removed_does_not_hide_what_went_wrong(
    kind: type, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with asked(kind, breaks_off, StuckSink()) as outcome:
        assert isinstance(outcome.error, ResponseBroken)
        assert "read-only" not in str(outcome.error)
    assert "a body that was cut off could not be removed" in caplog.text


async def test_a_body_that_is_cut_off_is_kept_where_that_is_wanted(kind: type, clock: MockClock) -> None:
    sink = NotingSink()
    async with asked(kind, breaks_off, sink, download_fail_on_dataloss=False) as outcome:
        response = whole(outcome)
        assert response.flags == ["dataloss"]
        assert response.body == LARGE
        assert sink.discarded == 0


async def test_what_can_not_be_written_is_no_fault_of_the_server(kind: type, clock: MockClock) -> None:
    async def full() -> None:
        raise BodyNotWritten("its body can't be written: the disk is full")

    sink = NotingSink(full)
    async with asked(kind, answering(LARGE), sink) as outcome:
        assert isinstance(outcome.error, BodyNotWritten)
        assert not outcome.error.is_retryable
        assert "/: its body can't be written: the disk is full" in str(outcome.error)
        assert sink.discarded == 1


async def test_a_slow_disk_is_not_taken_for_a_silent_server(kind: type, clock: MockClock) -> None:
    sink = NotingSink(partial(trio.sleep, 20))
    settings = TransportSettings(download_read_timeout=10, download_timeout=1000)
    async with asked(kind, answering(LARGE), sink, settings) as outcome:
        assert whole(outcome).body == LARGE
        assert outcome.ended_at >= 80


async def test_the_limit_for_the_whole_holds_for_writing_too(kind: type, clock: MockClock) -> None:
    sink = NotingSink(partial(trio.sleep, 20))
    settings = TransportSettings(download_read_timeout=10, download_timeout=50)
    async with asked(kind, answering(LARGE), sink, settings) as outcome:
        assert isinstance(outcome.error, DownloadTimeout)
        assert (outcome.ended_at, sink.discarded) == (50, 1)


async def test_a_server_that_falls_silent_is_given_up_and_its_part_discarded(kind: type, clock: MockClock) -> None:
    async def stalls(connection: Connection) -> None:
        await breaks_off(connection)
        await connection.until_gone()

    sink = NotingSink()
    async with asked(kind, stalls, sink, TransportSettings(download_read_timeout=10)) as outcome:
        assert isinstance(outcome.error, ReadTimeout)
        assert (sink.begun, sink.discarded) == (1, 1)


async def test_nothing_is_read_while_something_is_written(autojump_clock: MockClock) -> None:
    piece = b"x" * 65_536
    given = 0

    def script() -> Iterator[bytes]:
        nonlocal given
        yield b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (40 * len(piece))
        for _ in range(40):
            given += 1
            yield piece

    seen: list[tuple[int, int]] = []

    async def slow() -> None:
        before = given
        await wait_all_tasks_blocked()
        await trio.sleep(5)
        seen.append((before, given))

    sink = NotingSink(slow)
    servers = Servers([script()])
    outcome = await transport_to(servers).send(request_to("http://a.example/", sink), nothing)
    assert whole(outcome).body == piece * 40
    assert len(seen) == 10
    assert all(before == after for before, after in seen)
    assert [before for before, _ in seen] == list(range(4, 41, 4))


async def test_a_second_body_begins_anew(autojump_clock: MockClock) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE)
    servers = Servers([[head, LARGE[:500_000]], [head, LARGE]])
    transport, sink = transport_to(servers), NotingSink()
    request = request_to("http://a.example/", sink)
    assert isinstance((await transport.send(request, nothing)).error, ResponseBroken)
    assert whole(await transport.send(request.replace(), nothing)).body == LARGE
    assert (sink.begun, sink.discarded) == (2, 1)


async def test_cancelling_at_each_checkpoint_leaves_nothing_written(kind: type) -> None:
    async def pause() -> None:
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    async with serving(answering(LARGE[: 3 * MEMORY_BYTES])) as server:
        made: list[tuple[Transport, NotingSink, list[Outcome]]] = []

        async def exchange() -> None:
            transport, sink, outcomes = kind(TransportSettings()), NotingSink(pause), list[Outcome]()
            made[:] = [(transport, sink, outcomes)]
            outcomes.append(await transport.send(request_to(server.url, sink), nothing))

        async def settled() -> None:
            transport, sink, outcomes = made[0]
            assert outcomes or sink.begun == sink.discarded
            assert sink.content == (LARGE[: 3 * MEMORY_BYTES] if outcomes else b"")
            await transport.aclose()
            with trio.fail_after(60):
                while server.open:  # noqa: ASYNC110
                    await trio.sleep(0.001)

        assert await cancelled_everywhere(exchange, settled) >= 8


async def test_a_simulated_server_fills_the_sink_too(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_page("http://a.example/large", body=LARGE)
    web.add_page("http://a.example/small", body=SMALL)
    transport = SimulatedTransport(web)
    sink = NotingSink()
    response = whole(await transport.send(request_to("http://a.example/large", sink), nothing))
    assert isinstance(response, FileResponse)
    assert response.body == sink.content == LARGE
    assert response.protocol == "HTTP/1.1"
    assert type(whole(await transport.send(request_to("http://a.example/small", sink), nothing))) is Response

    async def full() -> None:
        raise BodyNotWritten("no")

    outcome = await transport.send(request_to("http://a.example/large", NotingSink(full)), nothing)
    assert isinstance(outcome.error, BodyNotWritten)
