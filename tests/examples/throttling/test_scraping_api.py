"""examples/throttling/scraping_api.py: the API and the site behind it (G07, G08)."""

from __future__ import annotations

from collections.abc import Callable

from examples.throttling.scraping_api import API, ScrapingApiManager, ThroughApi, through_api
from trawl import Request
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate
from trawl.testing.simulation import Simulation

EXACT = {"RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0}


async def test_g07_both_are_charged_and_without_url_only_the_api() -> None:
    manager = ScrapingApiManager()
    for url, scopes in {
        "https://api.toscrape.com/?url=https://example.com": {API, "example.com"},
        through_api("https://example.com:8443/a?b=c"): {API, "example.com:8443"},
        "https://api.toscrape.com/": API,
        "https://api.toscrape.com/?url=": API,
        "https://books.toscrape.com/?url=https://example.com": "books.toscrape.com",
    }.items():
        assert await manager.get_scopes(Request(url)) == scopes


def crawled(refuses: Callable[[Request], SimulatedResponse | None]) -> Simulation:
    """The example, with an API that refuses some requests the first time."""
    refused: set[str] = set()

    def answer(request: Request) -> SimulatedResponse:
        if request.url not in refused and (refusal := refuses(request)) is not None:
            refused.add(request.url)
            return refusal
        return SimulatedResponse(body="<title>a page</title>")

    web = SimulatedWeb()
    web.add_host(API, latency=0.1, handler=answer)
    return simulate(ThroughApi, web, EXACT)


def test_g07_sites_behind_the_api_keep_their_own_pace() -> None:
    sim = crawled(lambda request: None)
    assert sim.times("example.com") == sim.times("example.org") == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(sim.of(API)) == 10
    assert [item["title"] for item in sim.items] == ["a page"] * 10


def test_g08_the_targets_exhaustion_backs_only_the_target_off() -> None:
    upstream = SimulatedResponse(429, headers={"X-Upstream-Status-Code": "429"})
    sim = crawled(lambda request: upstream if request.url == through_api("https://example.com/0") else None)
    assert sim.times("example.com")[:3] == [0.0, 2.1, 4.1]  # backing off: 2 s from the answer, then between sends
    assert sim.times("example.org") == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(sim.items) == 10
    by_scope = {report.scope: report for report in sim.report}
    assert (by_scope["example.com"].steps, by_scope["example.org"].steps, by_scope[API].steps) == (1, 0, 0)


def test_g08_the_apis_own_exhaustion_backs_only_the_api_off() -> None:
    own = SimulatedResponse(429, headers={"Retry-After": "30"})
    sim = crawled(lambda request: own if request.url == through_api("https://example.com/0") else None)
    assert sim.times(API)[:3] == [0.0, 0.0, 30.1]
    assert len(sim.items) == 10
    by_scope = {report.scope: report for report in sim.report}
    assert (by_scope["example.com"].steps, by_scope["example.org"].steps, by_scope[API].steps) == (0, 0, 1)


def test_g08_an_upstream_error_that_is_no_exhaustion_backs_nobody_off() -> None:
    missing = SimulatedResponse(404, headers={"X-Upstream-Status-Code": "404"})
    sim = crawled(lambda request: missing if request.url == through_api("https://example.com/0") else None)
    assert [report.steps for report in sim.report] == [0, 0, 0]
    assert len(sim.items) == 9
