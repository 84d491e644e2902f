"""The simulated wire: exact times on a virtual clock, failures as outcomes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from trawl.errors import (
    BodyTooLarge,
    ConnectFailed,
    ConnectTimeout,
    DownloadError,
    DownloadTimeout,
    NameNotResolved,
    ReadTimeout,
    ResponseBroken,
    TLSFailed,
    UnsupportedScheme,
)
from trawl.http import Outcome, Request
from trawl.testing import Outage, RateLimit, SimulatedResponse, SimulatedTransport, SimulatedWeb, Uniform
from trawl.transport import Transport, TransportSettings


class Client:
    """Sends through one transport and keeps the instants of the sends."""

    def __init__(self, web: SimulatedWeb, settings: TransportSettings | None = None, seed: int = 0) -> None:
        self.transport: SimulatedTransport = web.transport(settings, seed=seed)
        self.sent: list[float] = []

    async def get(self, url: str, **options: object) -> Outcome:
        return await self.transport.send(
            Request(url, **options),  # type: ignore[arg-type]
            lambda: self.sent.append(trio.current_time()),
        )


async def run_together(*calls: Callable[[], object]) -> None:
    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(call)  # type: ignore[arg-type]


def test_it_is_a_transport() -> None:
    transport: Transport = SimulatedWeb().transport()
    assert transport is not None


async def test_latency_runs_from_the_send_to_the_last_byte(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    client = Client(web)
    outcome = await client.get("http://a.example/x")
    assert trio.current_time() == pytest.approx(0.1)
    assert client.sent == [0.0]
    assert (outcome.started_at, outcome.sent_at) == (0.0, 0.0)
    assert outcome.first_byte_at == pytest.approx(0.1)
    assert outcome.ended_at == pytest.approx(0.1)
    assert outcome.response is not None
    assert outcome.response.status == 200
    assert outcome.response.css("title").get() == "<title></title>"
    assert outcome.response.request is outcome.request


async def test_h09_a_new_connection_takes_its_time_before_the_send_and_is_used_again(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1, connect=0.25)
    client = Client(web)
    first, second = await client.get("http://a.example/1"), await client.get("http://a.example/2")
    assert client.sent == pytest.approx([0.25, 0.35])
    assert first.latency == pytest.approx(0.35)
    assert second.latency == pytest.approx(0.1)
    assert second.started_at == second.sent_at


async def test_requests_at_once_each_need_a_connection(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=1, connect=0.25)
    client = Client(web)
    await run_together(*[lambda: client.get("http://a.example/")] * 2)
    assert client.sent == [0.25, 0.25]
    await run_together(*[lambda: client.get("http://a.example/")] * 3)
    assert client.sent[2:] == pytest.approx([1.25, 1.25, 1.5])


async def test_connections_belong_to_an_origin_and_are_closed_when_idle_too_long(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", connect=0.5, keep_alive=10)
    client = Client(web)
    for url, wait in [("http://a.example/", 0), ("https://a.example/", 10.0), ("http://a.example/", 0)]:
        await client.get(url)
        await trio.sleep(wait)
    assert client.sent == [0.5, 1.0, 11.5]
    await client.get("http://a.example/")
    assert client.sent[3] == 11.5


async def test_the_client_keeps_connections_no_longer_than_its_setting_says(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", connect=0.5)
    client = Client(web, TransportSettings(download_keepalive_timeout=2))
    await client.get("http://a.example/")
    await trio.sleep(3)
    await client.get("http://a.example/")
    assert client.sent == [0.5, 4.0]


async def test_latency_may_be_a_function_or_a_draw_that_the_seed_decides(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=lambda request: 2.0 if request.url.endswith("slow") else 0.5)
    web.add_host("b.example", latency=Uniform(0.1, 0.9))
    client = Client(web)
    await client.get("http://a.example/slow")
    await client.get("http://a.example/")
    assert trio.current_time() == 2.5

    async def drawn(seed: int) -> list[float]:
        client = Client(web, seed=seed)
        ends = [(await client.get("http://b.example/")).latency for _ in range(5)]
        return [round(latency or 0.0, 6) for latency in ends]

    first, again, other = await drawn(1), await drawn(1), await drawn(2)
    assert first == again
    assert first != other
    assert all(0.1 <= latency <= 0.9 for latency in first)


async def test_a_rate_limit_refuses_at_the_send_and_serves_each_run_afresh(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host(
        "a.example", limit=RateLimit(rate=1, burst=2, retry_after=3, latency=0.0, body="slow down"), latency=0.1
    )
    for _ in range(2):
        client = Client(web)
        outcomes = [await client.get("http://a.example/") for _ in range(3)]
        assert [outcome.response and outcome.response.status for outcome in outcomes] == [200, 200, 429]
        refused = outcomes[2].response
        assert refused is not None
        assert refused.headers["Retry-After"] == "3"
        assert refused.text == "slow down"
        assert outcomes[2].ended_at == outcomes[2].sent_at  # R2: it is quick


async def test_limits_together_all_have_to_allow(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", limit=[RateLimit(rate=10, burst=3), RateLimit(rate=0, burst=2, status=403)])
    client = Client(web)
    outcomes = [await client.get("http://a.example/") for _ in range(3)]
    assert [outcome.response and outcome.response.status for outcome in outcomes] == [200, 200, 403]


async def test_a_handler_answers_and_may_take_its_time(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()

    async def echo(request: Request) -> SimulatedResponse:
        await trio.sleep(0.5)
        return SimulatedResponse(201, request.method.encode() + request.body, {"X-A": request.headers["X-A"]}, 0.25)

    web.add_host("a.example", handler=echo, latency=9)
    client = Client(web)
    outcome = await client.get("http://a.example/", method="POST", body="!", headers={"X-A": "b"})
    assert outcome.ended_at == 0.75
    assert outcome.response is not None
    assert (outcome.response.status, outcome.response.body, outcome.response.headers["X-A"]) == (201, b"POST!", "b")


async def test_an_answer_without_a_latency_takes_what_its_host_takes(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(404), latency=0.5)
    assert (await Client(web).get("http://a.example/")).ended_at == 0.5


async def test_a_handlers_bug_is_loud(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: 404)  # type: ignore[arg-type, return-value]
    web.add_host("b.example", handler=lambda request: SimulatedResponse(1 // 0))
    with pytest.raises(TypeError, match="must return a SimulatedResponse"):
        await Client(web).get("http://a.example/")
    with pytest.raises(ZeroDivisionError):
        await Client(web).get("http://b.example/")


async def test_pages_go_before_robots_and_robots_before_the_handler(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(418), robots="User-agent: *\nDisallow: /x")
    web.add_host("b.example", handler=lambda request: SimulatedResponse(418))
    web.add_host("c.example", robots=SimulatedResponse(503))
    web.add_page("http://a.example/page", ["/x"], title="Page")
    client = Client(web)
    paths = [
        "a.example/page",
        "a.example/robots.txt",
        "a.example/robots.txt?x",
        "b.example/robots.txt",
        "c.example/robots.txt",
    ]
    responses = [(await client.get(f"http://{path}")).response for path in paths]
    assert [response and response.status for response in responses] == [200, 200, 418, 404, 503]
    assert responses[1] is not None
    assert responses[1].text.startswith("User-agent")
    assert responses[1].headers["Content-Type"].startswith("text/plain")


async def test_a_redirect_is_an_answer_like_others(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_redirect("http://a.example/old", "/new", status=301)
    response = (await Client(web).get("http://a.example/old")).response
    assert response is not None
    assert (response.status, response.headers["Location"]) == (301, "/new")


async def test_head_gets_no_body(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    response = (await Client(web).get("http://a.example/", method="HEAD")).response
    assert response is not None
    assert response.body == b""


@pytest.mark.parametrize(
    ("url", "kind"),
    [("http://nowhere.example/", NameNotResolved), ("ftp://a.example/", UnsupportedScheme)],
)
async def test_what_can_not_be_fetched_is_an_outcome(
    autojump_clock: MockClock, url: str, kind: type[DownloadError]
) -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    client = Client(web)
    outcome = await client.get(url)
    assert type(outcome.error) is kind
    assert client.sent == []
    assert client.transport.send_log.rows == []


@pytest.mark.parametrize("failure", [ConnectFailed, TLSFailed("expired"), lambda request: ConnectFailed])
async def test_an_error_of_connecting_comes_before_the_send(autojump_clock: MockClock, failure: object) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", connect=0.2, connect_error=failure)  # type: ignore[arg-type]
    client = Client(web)
    outcome = await client.get("http://a.example/")
    assert isinstance(outcome.error, ConnectFailed)
    assert outcome.error.url == "http://a.example/"
    assert (outcome.sent_at, outcome.ended_at, client.sent) == (None, 0.2, [])


async def test_a_connection_that_takes_too_long_times_out(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", connect=100)
    outcome = await Client(web, TransportSettings(download_connect_timeout=5)).get("http://a.example/")
    assert type(outcome.error) is ConnectTimeout
    assert outcome.ended_at == 5


@pytest.mark.parametrize(
    ("settings", "page", "kind", "ended_at"),
    [
        ({"download_timeout": 3}, {"latency": 5}, DownloadTimeout, 3),
        ({"download_timeout": 30, "download_read_timeout": 2}, {"latency": 5}, ReadTimeout, 2),
        ({"download_read_timeout": 2}, {"latency": 5, "first_byte": 1}, None, 5),
        ({"download_timeout": 3}, {"latency": 5, "first_byte": 1}, DownloadTimeout, 3),
        ({"download_maxsize": 10}, {"latency": 5, "first_byte": 1, "body": "x" * 11}, BodyTooLarge, 1),
        ({"download_maxsize": 0}, {"latency": 5, "body": "x" * 11}, None, 5),
        ({}, {"latency": 5, "error": ResponseBroken}, ResponseBroken, 5),
        ({"download_timeout": 3}, {"latency": 5, "error": ResponseBroken}, DownloadTimeout, 3),
    ],
)
async def test_the_clients_limits_hold_as_on_the_real_wire(
    autojump_clock: MockClock,
    settings: dict[str, float],
    page: dict[str, object],
    kind: type[DownloadError] | None,
    ended_at: float,
) -> None:
    web = SimulatedWeb()
    web.add_page("http://a.example/", **page)  # type: ignore[arg-type]
    client = Client(web, TransportSettings(**settings))  # type: ignore[arg-type]
    outcome = await client.get("http://a.example/")
    assert (outcome.error and type(outcome.error)) == kind
    assert outcome.ended_at == ended_at
    send = client.transport.send_log.sends(0.0, trio.current_time())[0]
    assert (send.time, send.finished, send.error) == (0.0, ended_at, kind and kind.__name__)


async def test_meta_goes_before_the_clients_limits(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_page("http://a.example/", latency=5, body="x" * 11)
    client = Client(web)
    first = await client.get("http://a.example/", meta={"download_timeout": 2})
    second = await client.get("http://a.example/", meta={"download_maxsize": 10})
    assert type(first.error) is DownloadTimeout
    assert type(second.error) is BodyTooLarge
    cut = await client.get("http://a.example/", meta={"download_maxsize": 10, "download_truncate": True})
    assert cut.response is not None
    assert (cut.response.body, cut.response.flags) == (b"x" * 10, ["truncated"])


@pytest.mark.parametrize(("read", "whole", "kind", "ended_at"), [(2, 30, ReadTimeout, 2), (9, 3, DownloadTimeout, 3)])
async def test_an_async_handler_is_not_waited_for_longer_than_a_server(
    autojump_clock: MockClock, read: float, whole: float, kind: type[DownloadError], ended_at: float
) -> None:
    web = SimulatedWeb()

    async def never(request: Request) -> SimulatedResponse:
        await trio.sleep_forever()
        raise AssertionError

    web.add_host("a.example", handler=never)
    settings = TransportSettings(download_read_timeout=read, download_timeout=whole)
    outcome = await Client(web, settings).get("http://a.example/")
    assert type(outcome.error) is kind
    assert outcome.ended_at == ended_at


async def test_a_handler_may_break_the_connection(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()

    def broken(request: Request) -> SimulatedResponse:
        raise ResponseBroken("reset by peer")

    web.add_host("a.example", handler=broken, connect=1)
    client = Client(web)
    outcome = await client.get("http://a.example/")
    assert isinstance(outcome.error, ResponseBroken)
    assert outcome.sent_at == 1
    await client.get("http://a.example/")
    assert client.sent == [1, 2]  # what broke is not used again


async def test_an_outage_fails_everything_while_it_holds(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    outages: list[Outage | tuple[float, float]] = [
        Outage(30, 40, error=ResponseBroken, latency=2),
        (10, 20),
        Outage(20, 30, error=ConnectFailed),
        Outage(40, 50, 502, retry_after=9),
    ]
    web.add_host("a.example", outages=outages, keep_alive=0)
    client = Client(web)
    told: list[tuple[float, object]] = []
    for _ in range(6):
        outcome = await client.get("http://a.example/")
        told.append((trio.current_time(), outcome.response.status if outcome.response else type(outcome.error)))
        await trio.sleep(10)
    assert told == [(0, 200), (10, 503), (20, ConnectFailed), (32, ResponseBroken), (42, 502), (52, 200)]


async def test_an_outage_of_connecting_cuts_open_connections(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", outages=[Outage(5, 10, error=ConnectFailed)])
    client = Client(web)
    await client.get("http://a.example/")
    await trio.sleep(5)
    first, second = await client.get("http://a.example/"), await client.get("http://a.example/")
    assert type(first.error) is ResponseBroken
    assert type(second.error) is ConnectFailed


async def test_cancelling_ends_a_send_where_it_is(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=10)
    client = Client(web)
    with trio.move_on_after(3):
        await client.get("http://a.example/")
    send = client.transport.send_log.sends(0.0, trio.current_time())[0]
    assert (send.time, send.finished, send.status, send.error) == (0.0, 3.0, None, None)


@pytest.mark.parametrize("url", ["http://a.example/", "http://nowhere.example/", "http://b.example/"])
async def test_sending_is_a_checkpoint(autojump_clock: MockClock, url: str) -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_host("b.example", connect_error=ConnectFailed)
    client = Client(web)
    with trio.testing.assert_checkpoints():
        await client.get(url)
    with trio.testing.assert_checkpoints():
        await client.transport.aclose()


async def test_every_send_is_noted_in_order(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=lambda request: 2.0 if request.url.endswith("1") else 0.5)
    client = Client(web)
    await trio.sleep(7)
    await run_together(lambda: client.get("http://a.example/1"), lambda: client.get("https://A.example:8443/2"))
    begun_at = client.transport.begun_at
    assert begun_at == 7
    sends = client.transport.send_log.sends(begun_at, trio.current_time())
    noted = {(send.url, send.host, send.time, send.finished, send.status) for send in sends}
    assert noted == {
        ("http://a.example/1", "a.example", 0.0, 2.0, 200),
        ("https://a.example:8443/2", "a.example:8443", 0.0, 0.5, 200),
    }
