"""robots.txt is a gate of its origin, asked for once, ahead of the pages."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any

import pytest
from trio.testing import MockClock

import trawl
from trawl.errors import NameNotResolved
from trawl.http import Request, Response
from trawl.middleware.proxies import Route
from trawl.testing import Outage, SimulatedResponse, SimulatedWeb


class Follows(trawl.Spider):
    name = "follows"
    start_urls: tuple[str, ...] = ("http://a.example/",)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield from response.follow_all(css="a")


async def test_robots_goes_first_at_concurrency_one_and_the_crawl_ends(autojump_clock: MockClock) -> None:  # P1
    web = SimulatedWeb()
    web.add_page("http://a.example/", links=["/private/1", "/public"])
    web.add_host("a.example", robots="User-agent: *\nDisallow: /private\n")
    run = await web.crawl(Follows, settings={"CONCURRENT_REQUESTS": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1})
    assert [send.url for send in run.sends] == [
        "http://a.example/robots.txt",
        "http://a.example/",
        "http://a.example/public",
    ]
    assert run.stats["robots_forbidden"] == 1
    assert run.reason == "finished"


async def test_one_host_with_a_slow_robots_holds_up_no_other(autojump_clock: MockClock) -> None:  # R17
    class Two(Follows):
        start_urls = ("http://slow.example/", "http://fast.example/")

    web = SimulatedWeb()
    web.add_host("slow.example", latency=lambda request: 30.0 if request.url.endswith("robots.txt") else 0.1)
    web.add_host("fast.example", latency=0.1)
    run = await web.crawl(Two)
    times = {send.url: send.time for send in run.sends}
    assert times["http://fast.example/"] < 2
    assert times["http://slow.example/"] >= 30


async def test_robots_is_asked_for_once_by_many_tasks(autojump_clock: MockClock) -> None:  # R17
    class Many(Follows):
        start_urls = tuple(f"http://a.example/{i}" for i in range(10))

    web = SimulatedWeb()
    web.add_host("a.example", latency=1.0)
    run = await web.crawl(Many, settings={"CONCURRENT_REQUESTS_PER_DOMAIN": 10, "DOWNLOAD_DELAY": 0.0})
    assert [send.url for send in run.sends].count("http://a.example/robots.txt") == 1
    assert len(run.items) == 10


async def test_a_404_allows_everything_whatever_its_page_says(autojump_clock: MockClock) -> None:  # R17
    web = SimulatedWeb()
    web.add_host(
        "a.example",
        handler=lambda request: SimulatedResponse(body="ok"),
        robots=SimulatedResponse(status=404, body="User-agent: *\nDisallow: /"),
    )
    run = await web.crawl(Follows)
    assert len(run.items) == 1


async def test_a_5xx_allows_nothing_until_it_is_over(autojump_clock: MockClock) -> None:  # R17
    web = SimulatedWeb()
    web.add_host("a.example", outages=[Outage(0.0, 60.0, status=503)])
    run = await web.crawl(Follows)
    urls = [send.url for send in run.sends]
    assert set(urls[:-2]) == {"http://a.example/robots.txt"}
    assert len(urls) >= 4
    assert urls[-2:] == ["http://a.example/robots.txt", "http://a.example/"]
    assert run.sends[-2].time >= 60


async def test_a_5xx_for_ever_ends_in_a_clear_outcome(autojump_clock: MockClock) -> None:  # R13 R17
    web = SimulatedWeb()
    web.add_host("a.example", robots=SimulatedResponse(status=503))
    run = await web.crawl(Follows)
    assert run.items == []
    assert {send.url for send in run.sends} == {"http://a.example/robots.txt"}
    assert run.stats["robots_forbidden"] == 1  # the throttle's patience with the scope is as long
    assert run.reason == "finished"
    assert 900 <= run.elapsed <= 1300


@pytest.mark.parametrize("status", [503, 500])  # the throttle backs off, or knows of nothing
@pytest.mark.parametrize("settings", [{}, {"RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0}])
async def test_an_outage_of_15_minutes_ends_nobody_who_waits_for_robots_txt_b20(
    autojump_clock: MockClock, status: int, settings: dict[str, Any]
) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.2, outages=[Outage(0.0, 900.0, status=status)])
    run = await web.crawl(Follows, settings=settings)
    assert len(run.items) == 1


async def test_time_that_a_server_asked_for_ends_nobody_who_waits_for_robots_txt_b20(
    autojump_clock: MockClock,
) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", outages=[Outage(0.0, 3000.0, retry_after=1700)])
    run = await web.crawl(Follows, settings={"BACKOFF_MAX_DELAY": 3600.0})
    assert len(run.items) == 1
    assert len([send for send in run.sends if send.url.endswith("robots.txt")]) == 3


async def test_a_request_may_ask_not_to_obey(autojump_clock: MockClock) -> None:
    class Rude(Follows):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}
            if response.url.endswith("/"):
                yield Request("http://a.example/private", meta={"dont_obey_robotstxt": True})

    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: *\nDisallow: /private\n")
    run = await web.crawl(Rude)
    assert len(run.items) == 2


@pytest.mark.parametrize("obey", [True, False])
async def test_obeying_can_be_turned_off(autojump_clock: MockClock, obey: bool) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: *\nDisallow: /\n")
    run = await web.crawl(Follows, settings={"ROBOTSTXT_OBEY": obey})
    assert len(run.items) == (0 if obey else 1)
    assert [send.url for send in run.sends] == ["http://a.example/robots.txt" if obey else "http://a.example/"]


async def test_rules_are_asked_for_again_when_they_have_expired(autojump_clock: MockClock) -> None:
    class Long(trawl.Spider):
        name = "long"
        start_urls = ("http://a.example/0",)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            n = int(response.url.rsplit("/", 1)[1])
            if n < 4:
                yield Request(f"http://a.example/{n + 1}", meta={"delay": 50.0})

    web = SimulatedWeb()
    web.add_host("a.example")
    run = await web.crawl(Long, settings={"ROBOTSTXT_MAX_AGE": 120.0})
    urls = [send.url.rsplit("/", 1)[1] for send in run.sends]
    assert urls == ["robots.txt", "0", "1", "2", "robots.txt", "3", "4"]  # when it is to go, not when it was found


@pytest.mark.interpreted
async def test_rules_of_hosts_without_pending_requests_are_not_kept_for_ever(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.engine.robots_gate.MAX_ORIGINS", 4)
    hosts = [f"h{i}.example" for i in range(10)]

    class Tours(trawl.Spider):
        name = "tours"
        start_urls = (f"http://{hosts[0]}/0",)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}
            n = int(response.url.rsplit("/", 1)[1]) + 1
            if n < 20:
                yield Request(f"http://{hosts[n % 10]}/{n}")
                yield Request(f"http://{hosts[n % 10]}/private/{n}")
            if n == 1:  # waits for long, apart from all lanes: its host's rules may be forgotten meanwhile
                yield Request("http://waits.example/20", meta={"delay": 500.0})
                yield Request("http://waits.example/private/20", meta={"delay": 500.0})

    web = SimulatedWeb()
    for host in [*hosts, "waits.example"]:
        web.add_host(host, robots="User-agent: *\nDisallow: /private\n")
    run = await web.crawl(Tours)
    asked = [send.host for send in run.sends if send.url.endswith("robots.txt")]
    assert asked.count("h1.example") == 2  # forgotten between its two pages
    assert asked.count("waits.example") == 2
    assert len(run.items) == 21
    assert run.stats["robots_forbidden"] == 20


async def test_who_waits_for_a_host_without_an_address_hears_of_that_error(autojump_clock: MockClock) -> None:
    class Lost(Follows):
        start_urls = ()

        async def start(self) -> Any:
            yield Request("http://nowhere.example/", errback=self.failed)

        def failed(self, error: NameNotResolved) -> Any:
            yield {"kind": type(error).__name__, "said": str(error), "is_a_name": bool(error.check(NameNotResolved))}

    web = SimulatedWeb()
    web.add_host("a.example")
    run = await web.crawl(Lost, errors="collect")
    (item,) = run.items
    assert item["kind"] == "NameNotResolved"
    assert item["is_a_name"]
    assert item["said"].startswith("GET http://nowhere.example/: robots.txt could not be read: no host")


Way = tuple[str, str | None, str | None, str | None]
ways: ContextVar[list[Way]] = ContextVar("ways")


class NotesWays:
    """A middleware next to the wire that notes which way each request is about to go."""

    def process_request(self, request: Request, spider: trawl.Spider) -> None:
        meta, path = request.meta, request.url.rpartition("/")[2]
        ways.get().append((path, meta.get("proxy"), meta.get("bindaddress"), request.headers.get("X-Visitor")))


async def ways_of(requests: list[Request], web: SimulatedWeb, **settings: Any) -> list[Way]:
    """Crawl ``requests`` and return the way of each send; the session ``anna`` has a proxy and a header."""

    class Routed(trawl.Spider):
        name = "routed"

        async def start(self) -> Any:
            self.session("anna", proxy="http://hers.example:80", headers={"X-Visitor": "anna"})
            for request in requests:
                yield request

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}

    noted: list[Way] = []
    ways.set(noted)
    run = await web.crawl(Routed, settings={"DOWNLOADER_MIDDLEWARES": {NotesWays: 950}, **settings})
    assert len(run.items) == len(requests)
    return noted


def one_host(robots: str | None = None, **options: Any) -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("a.example", robots=robots, **options)
    return web


OURS = "http://ours.example:80"


@pytest.mark.parametrize(
    ("meta", "way"),
    [
        ({}, (None, None, None)),
        ({"proxy": OURS}, (OURS, None, None)),
        ({"bindaddress": "127.0.0.2"}, (None, "127.0.0.2", None)),
        ({"session": "anna"}, ("http://hers.example:80", None, "anna")),
        ({"session": "anna", "proxy": OURS}, (OURS, None, "anna")),
        ({"session": "anna", "proxy": None}, (None, None, "anna")),
    ],
)
async def test_robots_txt_goes_the_way_of_the_request_that_waits_for_it(
    autojump_clock: MockClock, meta: dict[str, Any], way: tuple[str | None, ...]
) -> None:
    noted = await ways_of([Request("http://a.example/page", meta=meta)], one_host())
    assert noted == [("robots.txt", *way), ("page", *way)]


def test_credentials_for_a_proxy_go_with_it() -> None:
    page = Request("http://a.example/page", meta={"proxy": OURS}, headers={"Proxy-Authorization": "Basic eA=="})
    assert Route.of(page) == Route({"proxy": OURS}, {"Proxy-Authorization": "Basic eA=="})


async def test_robots_txt_goes_the_way_of_the_best_that_waits_and_then_of_the_others(autojump_clock: MockClock) -> None:
    pages = [
        Request("http://a.example/0", meta={"proxy": "http://p0.example:80"}),
        Request("http://a.example/1", meta={"proxy": "http://p1.example:80"}),
        Request("http://a.example/2", meta={"proxy": "http://p2.example:80"}, priority=5),
    ]
    noted = await ways_of(pages, one_host(outages=[Outage(0.0, 100.0)]))
    ways = [str(proxy)[8] for path, proxy, *_ in noted if path == "robots.txt"]
    assert ways == ["2", "0", "1", "2", "0"]


async def test_robots_txt_for_a_page_whose_time_has_not_come_goes_its_way(autojump_clock: MockClock) -> None:
    noted = await ways_of([Request("http://a.example/page", meta={"proxy": OURS, "delay": 50.0})], one_host())
    assert [(path, proxy) for path, proxy, *_ in noted] == [("robots.txt", OURS), ("page", OURS)]


async def test_robots_txt_that_is_asked_for_again_goes_the_way_of_the_page_that_needs_it(
    autojump_clock: MockClock,
) -> None:
    pages = [Request(f"http://a.example/{n}", meta={"proxy": OURS, "delay": 50.0 * n}) for n in range(4)]
    noted = await ways_of(pages, one_host(), ROBOTSTXT_MAX_AGE=60.0)
    assert len(noted) > len(pages) + 1
    assert {proxy for _, proxy, *_ in noted} == {OURS}


async def test_rules_read_through_one_proxy_hold_for_all(autojump_clock: MockClock) -> None:
    pages = [Request(f"http://a.example/{n}", meta={"proxy": f"http://p{n}.example:80"}) for n in range(3)]
    noted = await ways_of(pages, one_host())
    assert [path for path, *_ in noted] == ["robots.txt", "0", "1", "2"]


async def test_a_redirect_of_robots_txt_goes_the_same_way(autojump_clock: MockClock) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", robots=SimulatedResponse(301, "", {"Location": "http://a.example/rules"}))
    noted = await ways_of([Request("http://a.example/page", meta={"proxy": OURS})], web)
    assert [(path, proxy) for path, proxy, *_ in noted] == [("robots.txt", OURS), ("rules", OURS), ("page", OURS)]


LONG_RULES = "User-agent: *\n" + "".join(f"Disallow: /{n}x{'y' * 40}\n" for n in range(1_000))  # more than one step


@pytest.mark.interpreted
async def test_the_largest_rules_of_hosts_without_pending_requests_are_forgotten_first(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.engine.robots_gate.MAX_RULES_BYTES", 150_000)

    class Tours(trawl.Spider):
        name = "tours"
        start_urls = ("http://h0.example/0", "http://small.example/0")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}
            n = int(response.url.rsplit("/", 1)[1]) + 1
            if n < 20:
                host = "small" if "small" in response.url else f"h{n % 10}"
                yield Request(f"http://{host}.example/{n}")

    web = SimulatedWeb()
    web.add_host("small.example", robots="User-agent: *\nDisallow: /x\n")
    for n in range(10):
        web.add_host(f"h{n}.example", robots=LONG_RULES)
    run = await web.crawl(Tours)
    asked = [send.host for send in run.sends if send.url.endswith("robots.txt")]
    assert len(run.items) == 40
    assert asked.count("small.example") == 1
    assert asked.count("h1.example") == 2  # forgotten between its two pages


@pytest.mark.interpreted
async def test_if_all_rules_are_needed_the_largest_are_closed_with_one_warning(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trawl.engine.robots_gate.MAX_RULES_BYTES", 100_000)

    class Many(Follows):
        start_urls = tuple(f"http://h{n}.example/{page}" for n in range(6) for page in range(5))

    web = SimulatedWeb()
    for n in range(6):
        web.add_host(f"h{n}.example", robots=LONG_RULES if n < 5 else "User-agent: *\nDisallow: /x\n")
    run = await web.crawl(Many)
    hosts = [item["url"].split("/")[2] for item in run.items]
    assert hosts.count("h5.example") == 5
    assert run.stats["robots_forbidden"] + len(run.items) == 30
    told = [record for record in caplog.records if "the rules of all origins" in record.getMessage()]
    assert [record.levelno for record in told if record.levelno >= logging.WARNING] == [logging.WARNING]


async def test_a_url_that_costs_too_many_steps_is_not_sent_and_one_warning_says_so(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Three(Follows):
        start_urls = tuple(f"http://a.example/{n}" for n in range(3))

    web = one_host("User-agent: *\n" + "".join(f"Allow: /*{n}a*b\n" for n in range(8_000)))
    run = await web.crawl(Three)
    assert run.items == []
    assert run.stats["robots_forbidden"] == 3
    warnings = [record.getMessage() for record in caplog.records if "steps" in record.getMessage()]
    assert len(warnings) == 1
    assert "http://a.example/0 is taken as forbidden" in warnings[0]
