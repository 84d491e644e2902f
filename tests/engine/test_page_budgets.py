"""C11: the pages of one scope are counted exactly, whatever is on its way when the last of them comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
import trio

import trawl
from trawl.engine.limits import CrawlLimits
from trawl.engine.settings import EngineSettings
from trawl.engine.state import State
from trawl.exceptions import IgnoreRequest, ResponseBroken
from trawl.http import Request, Response
from trawl.scheduler import Scheduler
from trawl.testing import Outage, SimulatedResponse, SimulatedWeb, Simulation, Uniform, simulate
from trawl.throttling.limits import Limits
from trawl.throttling.scope import Scope

FREE: Mapping[str, object] = {
    "DOWNLOAD_DELAY": 0.0,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "ROBOTSTXT_OBEY": False,
}


class Follows(trawl.Spider):
    """Every link of three hosts."""

    name = "follows"
    start_urls: tuple[str, ...] = ("http://a.example/", "http://b.example/", "http://c.example/")

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield from response.follow_all(css="a")


def hosts() -> SimulatedWeb:
    web = SimulatedWeb()
    for name in "abc":
        web.add_site(f"{name}.example", 200, latency=Uniform(0.05, 0.5))
    return web


def pages_of(sim: Simulation, scope: str) -> int:
    return len([send for send in sim.of(scope) if not send.url.endswith("/robots.txt")])


def links_of(url: str) -> list[str]:
    """The links of a page of a site: ten, as long as there are pages."""
    start, _, number = url.rpartition("/")
    first = int(number or 0) * 10 + 1
    return [f"{start}/{each}" for each in range(first, min(first + 10, 200))]


@pytest.mark.parametrize("most", [1, 2, 8, 9, 31])
@pytest.mark.parametrize("obey", [False, True])
def test_c11_a_host_gives_so_many_pages_and_not_one_more(most: int, obey: bool) -> None:
    sim = simulate(Follows, hosts(), {**FREE, "ROBOTSTXT_OBEY": obey, "PAGES_PER_DOMAIN": most})
    assert sim.reason == "finished"
    assert [pages_of(sim, f"{name}.example") for name in "abc"] == [most] * 3
    assert len(sim.items) == 3 * most
    found = {link for item in sim.items for link in links_of(item["url"])}
    assert sim.stats["pages_filtered"] == 3 + len(found) - 3 * most  # each that was found has one end


def test_c11_a_scope_has_a_budget_of_its_own_beside_that_of_its_host() -> None:
    class Both(Follows):
        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(40):
                name = "abc"[number % 3]
                yield Request(
                    f"http://{name}.example/{number}",
                    meta={"throttling_scopes": {f"{name}.example", "api"}} if number % 2 else None,
                )

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}

    settings = {**FREE, "THROTTLING_SCOPES": {"api": {"pages": 7}, "a.example": {"pages": 9}}}
    sim = simulate(Both, hosts(), settings)
    assert pages_of(sim, "api") == 7
    assert pages_of(sim, "a.example") == 9
    assert sim.stats["item_scraped_count"] + sim.stats["pages_filtered"] == 40


def test_redirects_and_failures_give_their_page_back_also_to_another_host() -> None:
    def answer(request: Request) -> SimulatedResponse:
        number = int(request.url.rsplit("/", 1)[1])
        if number % 2:
            return SimulatedResponse(302, headers={"Location": f"http://b.example/{number}"})
        if number % 4:
            raise ResponseBroken("gone")
        return SimulatedResponse()

    class Many(Follows):
        start_urls = tuple(f"http://a.example/{number}" for number in range(60))

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}

    web = SimulatedWeb()
    web.add_host("a.example", latency=Uniform(0.05, 0.5), handler=answer)
    web.add_host("b.example", latency=Uniform(0.05, 0.5))
    settings = {**FREE, "PAGES_PER_DOMAIN": 5, "RETRY_TIMES": 0, "BACKOFF_EXCEPTIONS": []}
    sim = simulate(Many, web, settings)
    given = [item["url"].split("/")[2] for item in sim.items]
    assert (given.count("a.example"), given.count("b.example")) == (5, 5)
    assert len(sim.of("b.example")) == 5


def test_what_waits_behind_a_spent_budget_ends_at_once_though_its_host_backs_off() -> None:
    class Many(Follows):
        start_urls = tuple(f"http://a.example/{number}" for number in range(20))

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}

    web = SimulatedWeb()
    web.add_host("a.example", latency=0.1, outages=[Outage(0.0, 30.0, retry_after=40)])
    settings = {**FREE, "PAGES_PER_DOMAIN": 1, "DOWNLOAD_DELAY": 500.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
    sim = simulate(Many, web, settings)
    assert sim.reason == "finished"
    assert len(sim.items) == 1
    assert sim.elapsed == sim.sends[-1].finished  # not a delay later
    assert sim.stats["pages_filtered"] == 19


def test_a_direct_fetch_beyond_the_budget_is_refused_and_the_callback_goes_on() -> None:
    class Asks(Follows):
        start_urls = ("http://a.example/",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            got, refused = 0, 0
            for number in range(6):
                try:
                    await self.fetch(Request(f"http://b.example/{number}"))
                    got += 1
                except IgnoreRequest as error:
                    refused += "pages filtered" in str(error)
            return {"got": got, "refused": refused}

    sim = simulate(Asks, hosts(), {**FREE, "PAGES_PER_DOMAIN": 4})
    assert sim.items == [{"got": 4, "refused": 2}]


def test_a_budget_that_is_raised_while_the_crawl_runs_lets_more_through() -> None:
    class Raises(Follows):
        async def start(self) -> AsyncGenerator[Any, None]:
            for number in range(10):
                yield Request(f"http://a.example/{number}")
            await trio.sleep(60)
            self.crawl.throttling.set("a.example", pages=6)
            for number in range(10, 20):
                yield Request(f"http://a.example/{number}")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}

    sim = simulate(Raises, hosts(), {**FREE, "PAGES_PER_DOMAIN": 3})
    assert len(sim.items) == 6
    assert sim.stats["pages_filtered"] == 14


def test_an_origin_whose_host_is_spent_is_asked_for_its_rules_and_nothing_else() -> None:
    class Two(Follows):
        async def start(self) -> AsyncGenerator[Any, None]:
            yield Request("http://a.example/")
            await trio.sleep(60)
            yield Request("https://a.example:80/one", meta={"throttling_scopes": {"a.example"}})

        def parse(self, response: Response, **kwargs: Any) -> Any:
            yield {"url": response.url}

    sim = simulate(Two, hosts(), {**FREE, "ROBOTSTXT_OBEY": True, "PAGES_PER_DOMAIN": 1})
    assert sim.reason == "finished"
    assert pages_of(sim, "a.example") == 1


def test_requests_of_rendered_pages_that_are_older_than_the_budget_are_not_counted_below_nothing() -> None:
    scope = Scope("a.example", Limits(pages=1))
    scheduler = Scheduler(lambda id, now: scope, places=1)
    limits = CrawlLimits(EngineSettings(), state=State(1), scheduler=scheduler, changed=lambda scope, now: None)
    limits.count_sub_requests(-1, [scope])
    limits.count_sub_requests(1, [scope])
    assert scope.pages is not None
    assert scope.pages.sub_requests == 1
