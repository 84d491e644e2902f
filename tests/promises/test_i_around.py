"""I01-I04, I06-I08, I10, I12: forgetting, reporting, refusing, rates, connections, changes while it runs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, get_type_hints, is_typeddict

import msgspec
import pytest
import trio

import trawl
from tests.promises.crawling import EXACT, FREE, a_web, answering, crawled, found_at_once, page, spider_of, times
from trawl.exceptions import SettingsError
from trawl.http import Fetch, Outcome
from trawl.testing import Outage, SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.throttling import ThrottlingSettings

A = "http://a.example"


def told(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


def managed(urls: Callable[[], list[trawl.Request]], web: SimulatedWeb, **settings: Any) -> list[str]:
    """The ids of the scopes for which a manager was made: one a making."""
    made: list[str] = []

    class Counting:
        def __init__(self, config: Mapping[str, Any]) -> None:
            made.append(config["id"])

    crawled(urls, web, {**FREE, **settings}, THROTTLING_SCOPE_MANAGER=Counting)
    return made


def delayed(path: str, seconds: float, host: str = "a.example") -> trawl.Request:
    return trawl.Request(f"http://{host}/{path}", meta={"delay": seconds})


OTHERS = [f"h{number}.example" for number in range(60)]


def test_i01_scopes_idle_for_over_an_hour_are_dropped() -> None:
    def requests(after: float) -> list[trawl.Request]:
        return [delayed("0", 0.0), *(delayed("", after - 10.0, host) for host in OTHERS), delayed("1", after)]

    web = a_web("a.example", *OTHERS)
    assert managed(lambda: requests(3500.0), web).count("a.example") == 1
    assert managed(lambda: requests(3700.0), web).count("a.example") == 2


def test_i01_at_most_so_many_idle_ones_are_kept() -> None:
    def requests() -> list[trawl.Request]:
        return [delayed("0", 0.0), *(delayed("", 5.0, host) for host in OTHERS), delayed("1", 10.0)]

    web = a_web("a.example", *OTHERS)
    assert managed(requests, web, THROTTLING_SCOPE_LIMIT=100).count("a.example") == 1
    assert managed(requests, web, THROTTLING_SCOPE_LIMIT=10).count("a.example") == 2


def kept_through_a_flood(first: trawl.Request, again: trawl.Request, web: SimulatedWeb, **settings: Any) -> Simulation:
    """A scope is used, then 60 others pass with room for 5 kept, then it is used again."""
    flood = [delayed("", 20.0, host) for host in OTHERS]
    limits = {"THROTTLING_SCOPE_LIMIT": 5, "THROTTLING_SCOPE_MAX_IDLE": 1.0}
    for host in OTHERS:
        web.add_host(host)
    return crawled(lambda: [first, *flood, again], web, {**FREE, **limits, **settings})


def test_i01_p8_r11_never_one_that_backs_off() -> None:
    web = answering(SimulatedResponse(429), SimulatedResponse(429), SimulatedResponse(429))
    sim = kept_through_a_flood(delayed("0", 0.0), delayed("1", 30.0), web, DOWNLOAD_DELAY=10.0, BACKOFF_WINDOW=1e6)
    # 10 s doubled at each refusal; the flood passes before the second, and forgets nothing.
    assert sim.times("a.example") == [0.0, 20.1, 60.2, 140.3, 220.3]


def test_i01_p8_never_one_with_quota_spent() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1)
    limits = {"api": {"quota": 1, "window": 100.0}}
    sim = kept_through_a_flood(
        page(f"{A}/0", "api"), page(f"{A}/1", "api", meta={"delay": 40.0}), web, THROTTLING_SCOPES=limits
    )
    assert sim.times("api") == [0.0, 100.0]


def test_i01_p8_never_one_in_flight() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=lambda request: 50.0 if request.url.endswith("0") else 0.1)
    sim = kept_through_a_flood(delayed("0", 0.0), delayed("1", 40.0), web)
    assert sim.times("a.example") == [0.0, 50.0]


def test_i01_p8_never_one_that_holds_a_pending_delay() -> None:
    web = answering(SimulatedResponse(429, headers={"Retry-After": "70"}))
    sim = kept_through_a_flood(delayed("0", 0.0), delayed("1", 40.0), web)
    assert sim.times("a.example")[:2] == [0.0, 70.1]
    web = SimulatedWeb()
    web.add_host("a.example")
    sim = kept_through_a_flood(delayed("0", 0.0), delayed("1", 40.0), web, DOWNLOAD_DELAY=80.0)
    assert sim.times("a.example") == [0.0, 80.0]


def numbered(count: int, scopes: object = None) -> Callable[[], list[trawl.Request]]:
    return lambda: [page(f"{A}/{number}", scopes) for number in range(count)]


REPORTED: list[tuple[dict[str, Any], float, str, str]] = [
    ({"concurrency": 4, "delay": 10.0}, 4.0, "concurrency of 4 is not reached", "delay"),
    ({"concurrency": 4, "delay": 10.0}, 8.0, "concurrency of 4 is not reached", "delay"),
    ({"rate": 0.4, "concurrency": 2}, 10.0, "rate of 0.4/s is not reached", "concurrency"),
    ({"rate": 0.4, "quota": 1, "window": 10.0}, 1.0, "rate of 0.4/s is not reached", "quota"),
]


@pytest.mark.parametrize(("limits", "latency", "words", "reason"), REPORTED)
def test_i02_what_is_not_reached_for_five_minutes_is_reported_once_with_its_reason(
    limits: dict[str, Any], latency: float, words: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    web = a_web("a.example", latency=latency)
    crawled(numbered(25), web, FREE, THROTTLING_SCOPES={"a.example": limits})
    assert told(caplog, "is not reached") == []  # not five minutes yet
    crawled(numbered(130), web, FREE, THROTTLING_SCOPES={"a.example": limits})
    [warning] = told(caplog, words)
    assert warning.startswith("a.example: ")
    assert warning.endswith(f": {reason}")


def test_i02_too_few_requests_are_a_reason_too(caplog: pytest.LogCaptureFixture) -> None:
    def parse(spider: trawl.Spider, response: trawl.Response) -> Iterator[trawl.Request]:
        number = int(response.url.rpartition("/")[2])
        if number < 60:
            yield trawl.Request(f"{A}/{number + 1}")

    settings = {**FREE, "THROTTLING_SCOPES": {"a.example": {"concurrency": 4, "delay": 0.0}}}
    simulate(spider_of(numbered(1), parse), a_web("a.example", latency=10.0), settings=settings)
    [warning] = told(caplog, "its concurrency of 4 is not reached")
    assert warning.endswith(": too few requests at once")


ELSEWHERE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"shared": {"concurrency": 1}},
        {},
        "shared all slots are busy (THROTTLING_SCOPES['shared'])",
    ),
    (
        {"shared": {"delay": 9.0}},
        {},
        "shared delay (THROTTLING_SCOPES['shared'])",
    ),
    ({}, {"CONCURRENT_REQUESTS": 2}, "CONCURRENT_REQUESTS are under way (CONCURRENT_REQUESTS)"),
]


@pytest.mark.parametrize(("scopes", "settings", "reason"), ELSEWHERE)
@pytest.mark.parametrize(
    ("own", "figure"),
    [
        ({"concurrency": 3, "delay": 0.0}, "its concurrency of 3"),
        ({"rate": 2}, "its rate of 2/s"),
        (None, "AutoThrottle's target concurrency of 3"),
    ],
)
def test_i02_h16_a_figure_that_is_not_reached_for_something_else_than_the_scope_names_that(
    own: dict[str, Any] | None,
    figure: str,
    scopes: dict[str, Any],
    settings: dict[str, Any],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def requests() -> list[trawl.Request]:
        return [page(f"http://{host}/{number}", [host, "shared"]) for number in range(100) for host in hosts]

    hosts = [f"h{number}.example" for number in range(4)]
    limits = {**scopes, **(dict.fromkeys(hosts, own) if own is not None else {})}
    auto = {"AUTOTHROTTLE_ENABLED": own is None, "AUTOTHROTTLE_START_DELAY": 0, "AUTOTHROTTLE_TARGET_CONCURRENCY": 3.0}
    given = {**FREE, "CONCURRENT_REQUESTS_PER_DOMAIN": 8, **auto, **settings, "THROTTLING_SCOPES": limits}
    simulate(found_at_once(requests), a_web(*hosts, latency=4.0), settings=given)
    warnings = told(caplog, f"{figure} is not reached")
    assert len(warnings) == len(hosts)
    assert [warning for warning in warnings if not warning.endswith(f": {reason}")] == []


def led_on(requests: str, hosts: list[str]) -> type[trawl.Spider]:
    """A spider of ten pages a host: given by ``start()`` together, found at once, or each on the one before."""

    class Pages(trawl.Spider):
        name = "pages"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            for number in range(10 if requests == "start" else 1):
                for host in hosts:
                    yield page(f"http://{host}/{number}", [host, "shared"])

        def parse(self, response: trawl.Response, **kwargs: object) -> Iterator[trawl.Request]:
            host, number = response.url.removeprefix("http://").split("/")
            found = {"start": range(0), "found": range(1, 10), "chain": range(int(number) + 1, int(number) + 2)}[
                requests
            ]
            if requests == "chain" or number == "0":
                yield from (page(f"http://{host}/{each}", [host, "shared"]) for each in found if each < 10)

    return Pages


def waiting(fetch: Fetch) -> Fetch:
    async def send(request: trawl.Request) -> Outcome:
        await trio.sleep(0.05)
        return await fetch(request)

    return send


@pytest.mark.parametrize("middleware", [{}, {waiting: 560}])
@pytest.mark.parametrize("requests", ["start", "found", "chain"])
@pytest.mark.parametrize(
    ("scopes", "places", "scope", "limit"),
    [
        ({"shared": {"concurrency": 4}}, 64, "shared", "concurrency"),
        ({"shared": {"delay": 10.0}}, 64, "shared", "delay"),
        ({}, 4, "", "places"),
    ],
)
@pytest.mark.parametrize("own", [{"concurrency": 3, "delay": 0.0}, {"rate": 2}])
def test_i02_the_alarm_names_what_crawl_why_names_most_often(
    own: dict[str, Any],
    scopes: dict[str, Any],
    places: int,
    scope: str,
    limit: str,
    requests: str,
    middleware: dict[Any, float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    hosts = [f"h{number}.example" for number in range(12)]
    said: Counter[tuple[str, str]] = Counter()

    async def ask(crawl: Any) -> None:
        while True:
            await trio.sleep(13.7)
            said.update((each.reason.scope, each.reason.limit) for each in crawl.waiting(1))

    given = {
        **FREE,
        "CONCURRENT_REQUESTS": places,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 3,
        "THROTTLING_SCOPES": {**scopes, **dict.fromkeys(hosts, own)},
        "DOWNLOADER_MIDDLEWARES": middleware,
        "WATCHERS": {ask: 1},
    }
    draws = random.Random(1)
    simulate(led_on(requests, hosts), a_web(*hosts, latency=lambda request: draws.uniform(20.0, 60.0)), settings=given)
    warnings = told(caplog, "is not reached")
    assert len(warnings) >= len(hosts) / 3
    words = {"concurrency": "shared all slots are busy", "delay": "shared delay", "places": "CONCURRENT_REQUESTS are"}
    others = [warning for warning in warnings if f"what holds it up: {words[limit]}" not in warning]
    if requests == "chain" and limit == "places":  # one of four that go at once may never wait
        assert len(others) <= 4
    else:
        assert others == []
        # start() is not read on while nothing may be sent: then nothing is pending.
        assert said.most_common(1) == [((scope, limit), said[scope, limit])] or requests == "start"


def test_i02_a_figure_that_callbacks_keep_from_being_reached_names_them(caplog: pytest.LogCaptureFixture) -> None:
    async def parse(spider: trawl.Spider, response: trawl.Response) -> AsyncGenerator[trawl.Request, None]:
        if response.url == "http://start.example/":
            for request in numbered(60)():
                yield request
        else:
            await trio.sleep(8.0)

    spider = spider_of(lambda: [page("http://start.example/", [])], parse)
    settings = {**FREE, "CONCURRENT_CALLBACKS": 1, "THROTTLING_SCOPES": {"a.example": {"rate": 2, "concurrency": 1}}}
    simulate(spider, a_web("a.example", latency=0.1), settings=settings)
    [warning] = told(caplog, "its rate of 2/s is not reached")
    assert warning.endswith(": CONCURRENT_CALLBACKS are running (CONCURRENT_CALLBACKS)")


def test_i02_what_is_reached_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    web = a_web("a.example", latency=10.0)
    crawled(numbered(170), web, FREE, THROTTLING_SCOPES={"a.example": {"rate": 0.4}})
    crawled(numbered(70), web, FREE, THROTTLING_SCOPES={"a.example": {"concurrency": 2, "delay": 9.0}})
    assert told(caplog, "is not reached") == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"a.example": {"delais": 1}}, r"THROTTLING_SCOPES\['a\.example'\].*'delais'.*'delay'"),
    ({"a.example": {"delay": "x"}}, r"THROTTLING_SCOPES\['a\.example'\]\['delay'\]"),
    ({"a.example": {"delay": -1}}, r"\['delay'\]"),
    ({"a.example": {"delay": float("nan")}}, r"\['delay'\]"),
    ({"a.example": {"concurrency": 0}}, r"\['concurrency'\]"),
    ({"a.example": {"concurrency": 1.5}}, r"\['concurrency'\]"),
    ({"a.example": {"rate": 0}}, r"\['rate'\]"),
    ({"a.example": {"rate": 4, "delay": 1}}, "'rate' and 'delay'"),
    ({"a.example": {"jitter": [0.5]}}, r"\['jitter'\]"),
    ({"a.example": {"jitter": [0.5, 0.1]}}, r"\['jitter'\]"),
    ({"a.example": {"backoff": {"max_dela": 3}}}, r"\['backoff'\].*'max_dela'.*'max_delay'"),
    ({"a.example": {"backoff": {"delay_factor": 1}}}, r"\['delay_factor'\]"),
    ({"a.example": {"rampup": {"windw": 3}}}, r"\['rampup'\].*'windw'.*'window'"),
    ({"a.example": {"quota": 0}}, r"\['quota'\]"),
    ({"a.example": {"window": -1}}, r"\['window'\]"),
    ({"a.example": {"sliding": 1}}, r"\['sliding'\]"),
    ({"a.example": {"manager": "nowhere.Manager"}}, r"\['manager'\]"),
    ({"a.example": {"manager": 5}}, r"\['manager'\]"),
    ({"a.example": {"ignore_robots_txt": "yes please"}}, r"\['ignore_robots_txt'\]"),
    ({"a.example": None}, r"THROTTLING_SCOPES\['a\.example'\]"),
    ({"": {"delay": 1}}, "THROTTLING_SCOPES"),
]


@pytest.mark.parametrize(("scopes", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_i03_a16_unknown_keys_and_wrong_types_are_refused_naming_the_entry(scopes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        crawled(numbered(1), a_web("a.example"), FREE, THROTTLING_SCOPES=scopes)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"DOWNLOAD_DELEY": 1}, "DOWNLOAD_DELAY"),
        ({"THROTTLING_WINDOW": -1}, "THROTTLING_WINDOW"),
        ({"CONCURRENT_REQUESTS": -1}, "CONCURRENT_REQUESTS"),
        ({"THROTTLING_SCOPE_LIMIT": 0}, "THROTTLING_SCOPE_LIMIT"),
        ({"THROTTLING_SCOPES": 5}, "THROTTLING_SCOPES"),
        ({"BACKOFF_HTTP_CODES": "429"}, "BACKOFF_HTTP_CODES"),
    ],
)
def test_i03_so_are_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        crawled(numbered(1), a_web("a.example"), FREE, **settings)


def test_i04_every_settings_mapping_has_a_typed_definition() -> None:
    from trawl.throttling.configuration import BackoffConfig, RampupConfig, ScopeConfig

    assert all(is_typeddict(kind) for kind in (BackoffConfig, RampupConfig, ScopeConfig))
    assert set(get_type_hints(ScopeConfig)) == {
        "concurrency", "delay", "delay_per_slot", "rate", "jitter", "backoff", "rampup", "quota", "window", "sliding",
        "pages", "bandwidth", "manager", "shared", "ignore_robots_txt",
    }  # fmt: skip
    assert set(get_type_hints(RampupConfig)) == {"backoff_target", "delay_factor", "min_delay", "window"}
    assert set(get_type_hints(BackoffConfig)) == {
        "http_codes", "exceptions", "delay_factor", "max_delay", "min_delay", "jitter", "window", "concurrency_factor",
        "cls",
    }  # fmt: skip
    mappings = [field for field in msgspec.structs.fields(ThrottlingSettings) if "dict" in repr(field.type)]
    assert [field.encode_name for field in mappings] == ["THROTTLING_SCOPES"]
    assert "ScopeConfig" in repr(mappings[0].type)


def test_i06_a_rate_is_a_delay_and_nothing_else() -> None:
    def requests() -> Iterator[trawl.Request]:
        for number in range(40):
            yield trawl.Request(f"{A}/{number}")
            if number < 10:
                yield trawl.Request(f"http://b.example/{number}")

    scopes = {"a.example": {"rate": 4}, "b.example": {"rate": 1}}
    web = a_web("a.example", "b.example", latency=3.0)  # far more in flight than the per-domain 1
    settings = {**FREE, "DOWNLOAD_DELAY": 9.0, "DOWNLOAD_DELAY_PER_SLOT": 9.0, "THROTTLING_SCOPES": scopes}
    sim = simulate(found_at_once(requests), web, settings=settings)
    assert sim.times("a.example") == [number * 0.25 for number in range(40)]
    assert sim.times("b.example") == [float(number) for number in range(10)]


def test_i06_with_a_concurrency_of_its_own() -> None:
    sim = crawled(
        numbered(6),
        a_web("a.example", latency=3.0),
        FREE,
        THROTTLING_SCOPES={"a.example": {"rate": 4, "concurrency": 2}},
    )
    assert times(sim) == [0.0, 0.25, 3.0, 3.25, 6.0, 6.25]


@pytest.mark.parametrize("cap", [0, 300])
def test_i07_nothing_else_caps_what_is_open(cap: int) -> None:
    hosts = [f"h{number}.example" for number in range(100)]
    requests = [trawl.Request(f"http://{host}/{number}") for host in hosts for number in range(5)]
    settings = {**FREE, "CONCURRENT_REQUESTS": cap, "CONCURRENT_REQUESTS_PER_DOMAIN": 5}
    sim = simulate(found_at_once(lambda: requests), a_web(*hosts, latency=1.0), settings=settings)
    assert sim.most_in_flight() == (cap or 500)


def test_i08_a_request_inside_its_delay_waits_and_is_never_dropped() -> None:
    sim = crawled(numbered(8), a_web("a.example"), FREE, DOWNLOAD_DELAY=50_000.0)
    assert times(sim) == [number * 50_000.0 for number in range(8)]
    assert sim.stats["response_status_count/200"] == 8


def test_i10_an_unlisted_domain_gets_the_defaults() -> None:
    scopes = {"b.example": {"delay": 9.0}}
    sim = crawled(numbered(3), a_web("a.example", latency=0.1), EXACT, THROTTLING_SCOPES=scopes)
    assert times(sim) == [0.0, 1.0, 2.0]


def changing(
    at: float, change: Callable[[Any], None], requests: Callable[[], list[trawl.Request]]
) -> type[trawl.Spider]:
    """A spider that changes limits at an instant of its crawl."""

    class Changing(trawl.Spider):
        name = "changing"

        async def start(self) -> AsyncGenerator[trawl.Request, None]:
            yield trawl.Request("http://start.example/", meta={"throttling_scopes": []})

        async def parse(self, response: trawl.Response, **kwargs: object) -> AsyncGenerator[trawl.Request, None]:
            if response.url == "http://start.example/":
                for request in requests():
                    yield request
                yield trawl.Request("http://start.example/change", meta={"throttling_scopes": [], "delay": at})
            elif response.url.endswith("change"):
                change(self.crawl.throttling)

    return Changing


CHANGES: list[tuple[dict[str, Any], dict[str, Any], list[float]]] = [
    ({"delay": 10.0}, {"delay": 1.0}, [0.0, 4.0, 5.0, 6.0]),  # raised: the one that waits goes at once
    ({"delay": 10.0}, {"delay": 6.0}, [0.0, 6.0, 12.0, 18.0]),  # the change is felt by the send that waits (A20)
    ({"delay": 3.0}, {"delay": 5.0}, [0.0, 3.0, 8.0, 13.0]),
    ({"delay": 10.0}, {"rate": 2}, [0.0, 4.0, 4.5, 5.0]),
    ({"concurrency": 1}, {"concurrency": 3}, [0.0, 4.0, 4.0, 7.0]),
    ({"concurrency": 3}, {"concurrency": 1}, [0.0, 0.0, 0.0, 7.0]),
    ({"concurrency": 1, "delay_per_slot": 30.0}, {"delay_per_slot": 9.0}, [0.0, 9.0, 18.0, 27.0]),
    ({"quota": 1, "window": 50.0}, {"quota": 3}, [0.0, 4.0, 4.0, 50.0]),
    ({"quota": 1, "window": 50.0}, {"window": 8.0}, [0.0, 8.0, 16.0, 24.0]),
]


@pytest.mark.parametrize(("before", "change", "expected"), CHANGES)
def test_i12_p13_limits_change_while_it_runs_and_waiters_notice_at_once(
    before: dict[str, Any], change: dict[str, Any], expected: list[float]
) -> None:
    latency = {"{'concurrency': 1}": 7.0, "{'concurrency': 3}": 7.0}.get(str(before), 0.1)
    spider = changing(4.0, lambda throttling: throttling.set("api", **change), numbered(4, "api"))
    sim = simulate(spider, a_web("a.example", latency=latency), settings={**FREE, "THROTTLING_SCOPES": {"api": before}})
    assert times(sim) == expected


def test_i12_p13_more_slots_are_used_at_once_while_the_scope_backs_off() -> None:
    web = a_web("a.example", latency=9.0, outages=[Outage(0.0, 1.0)])
    scopes = {"api": {"concurrency": 1, "delay": 0.5, "backoff": {"min_delay": 0.0, "window": 900.0}}}
    spider = changing(11.0, lambda throttling: throttling.set("api", concurrency=4), numbered(6, "api"))
    sim = simulate(spider, web, settings={**FREE, "BACKOFF_JITTER": 0, "THROTTLING_SCOPES": scopes})
    # Refused at 9, with a delay of 1.0 from then on; the one slot is busy from 10 to 19, the others from 11.
    assert times(sim) == [0.0, 10.0, 11.0, 12.0, 13.0, 19.0, 20.0]


def test_p13_lowering_lets_what_is_in_flight_end_and_nothing_goes_negative() -> None:
    spider = changing(1.0, lambda throttling: throttling.set("api", concurrency=1), numbered(12, "api"))
    web = a_web("a.example", latency=lambda request: 5.0 + float(request.url.rpartition("/")[2]))
    sim = simulate(spider, web, settings={**FREE, "THROTTLING_SCOPES": {"api": {"concurrency": 8}}})
    # Eight are on the wire until 5, 6, ... 12; only then is one place free.
    assert times(sim) == [0.0] * 8 + [12.0, 25.0, 39.0, 54.0]


def test_i12_a_host_scope_may_be_set_before_it_is_used_in_any_spelling() -> None:
    spider = changing(
        0.0,
        lambda throttling: throttling.set("A.Example.", delay=3.0),
        lambda: [delayed(str(n), 1.0) for n in range(3)],
    )
    sim = simulate(spider, a_web("a.example", latency=0.1), settings=EXACT)
    assert sim.gaps("a.example") == [3.0, 3.0]


@pytest.mark.parametrize("wrong", [{"delais": 1.0}, {"delay": -1}, {"concurrency": 0}, {"delay": "x"}])
def test_i12_what_makes_no_sense_is_refused_and_changes_nothing(wrong: dict[str, Any]) -> None:
    def change(throttling: Any) -> None:
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            throttling.set("a.example", **wrong)

    sim = simulate(changing(0.5, change, numbered(3)), a_web("a.example", latency=0.1), settings=EXACT)
    assert sim.gaps("a.example") == [1.0, 1.0]
    assert "spider_exceptions" not in sim.stats


async def test_i12_in_an_open_crawl_the_change_may_come_from_outside(autojump_clock: trio.testing.MockClock) -> None:
    sent: list[float] = []

    def parse(spider: trawl.Spider, response: trawl.Response) -> None:
        sent.append(spider.crawl.elapsed)
        if len(sent) == 2:
            spider.crawl.throttling.set("a.example", delay=7.0)

    sim = await a_web("a.example").crawl(spider_of(numbered(4), parse), settings=EXACT)
    assert times(sim) == [0.0, 1.0, 8.0, 15.0]
