"""Retries by the user's own rule, within a budget, and from a callback."""

from __future__ import annotations

import random
from typing import Any

import pytest

import trawl
from tests.middleware.web import Web
from trawl.errors import ConnectFailed, SettingsError
from trawl.http import Outcome, Replace, Request, Response
from trawl.middleware import MiddlewareSettings, get_retry_request, retry
from trawl.observe import Stats
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

URL = "https://a.example/"
FREE = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0}


def layer(**options: Any) -> Any:
    settings = MiddlewareSettings(**options.pop("settings", {}))
    return retry(settings, random.Random(0), **options)


async def test_a_predicate_goes_before_statuses_and_errors() -> None:
    def odd(request: Request, response: Response | None, error: Exception | None) -> bool | None:
        if response is None:
            return False
        return True if b"empty" in response.body else None

    retried = layer(predicate=odd)
    page = await Web(Response(URL, 200, body=b"empty")).through([retried], Request(URL))
    assert isinstance(page.then, Replace)
    assert page.then.request.meta["retry_times"] == 1
    assert (await Web(ConnectFailed("why")).through([retried], Request(URL))).then is None
    assert isinstance((await Web(Response(URL, 500)).through([retried], Request(URL))).then, Replace)
    assert (await Web(Response(URL, 200)).through([retried], Request(URL))).then is None
    last = Request(URL, meta={"retry_times": 2})
    assert (await Web(Response(URL, 200, body=b"empty")).through([retried], last)).then is None


async def test_a_request_that_was_held_before_the_wire_pays_nothing_into_the_budget() -> None:
    retried = layer(settings={"retry_budget": 0.5, "retry_budget_reserve": 0})

    def held(request: Request) -> Outcome:
        return Outcome(request, then=Replace(request, reason="deferred"))

    for _ in range(4):
        await Web(held).through([retried], Request(URL))
    assert (await Web(Response(URL, 500)).through([retried], Request(URL))).then is None


async def test_a_failure_beyond_the_budget_is_final_and_counted() -> None:
    stats = Stats()
    retried = layer(settings={"retry_budget": 0.5, "retry_budget_reserve": 1}, stats=stats)
    web = Web(Response(URL, 500))
    made = [(await web.through([retried], Request(f"{URL}{n}"))).then is not None for n in range(6)]
    assert made == [True, True, False, True, False, True]  # a reserve of 1, and half a retry for each try
    assert stats.count("retry_budget_spent") == 2


async def test_a_request_given_up_after_its_last_try_is_counted() -> None:
    stats = Stats()
    retried = layer(settings={"retry_times": 1}, stats=stats)
    web = Web(Response(URL, 500))
    for again in (Request(URL), Request(URL, meta={"dont_retry": True})):
        await web.through([retried], again)
    assert stats.get_value("retry/max_reached") is None
    await web.through([retried], Request(URL, meta={"retry_times": 1}))
    assert stats.get_value("retry/max_reached") == stats.count("retry_max_reached") == 1


async def test_a_retry_pays_nothing_in() -> None:
    retried = layer(settings={"retry_budget": 1.0, "retry_budget_reserve": 0})
    web = Web(Response(URL, 500))
    again = Request(URL, meta={"retry_times": 1})
    assert (await web.through([retried], again)).then is None


def test_a_storm_of_failures_stays_within_the_budget() -> None:
    class Many(trawl.Spider):
        name = "many"
        start_urls = tuple(f"http://a.example/{n}" for n in range(100))

    web = SimulatedWeb()
    web.add_host("a.example", status=500)
    settings = {**FREE, "RETRY_BUDGET": 0.1, "RETRY_BUDGET_RESERVE": 5, "RETRY_BUDGET_PER": "host"}
    sim = simulate(Many, web, settings)
    assert len(sim.sends) == 100 + sim.stats["retry_count"]
    assert 10 <= sim.stats["retry_count"] <= 15


class Unsure(trawl.Spider):
    """Asks for its page again while it says "wait"."""

    name = "unsure"
    start_urls = ("http://a.example/",)
    most: int | None = None

    def parse(self, response: Response, **kwargs: Any) -> Any:
        if response.text != "wait":
            return {"tries": response.meta.get("retry_times", 0)}
        assert response.request is not None
        return get_retry_request(response.request, spider=self, reason="not ready", max_retry_times=self.most)


@pytest.mark.parametrize(("most", "sends"), [(None, 3), (5, 4), (0, 1)])
def test_a_callback_may_ask_for_another_try(most: int | None, sends: int) -> None:
    answers = iter(["wait", "wait", "wait", "there"])
    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(body=next(answers)))
    sim = simulate(Unsure, web, FREE, most=most)
    assert len(sim.sends) == sends
    assert sim.items == ([{"tries": 3}] if most == 5 else [])
    assert sim.stats.get("retry_count", 0) == sends - 1
    assert sim.stats.get("retry_given_up_count", 0) == (most != 5)
    assert sim.stats.get("retry_max_reached", 0) == (most != 5)


def test_another_try_takes_the_arguments_of_scrapy() -> None:
    class Own(Unsure):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            assert response.request is not None
            own: dict[str, Any] = {"logger": self.logger, "give_up_log_level": "INFO", "stats_base_key": "unsure"}
            return get_retry_request(response.request, spider=self, max_retry_times=1, **own)

    web = SimulatedWeb()
    web.add_page("http://a.example/", body="wait")
    stats = simulate(Own, web, FREE).stats
    assert (stats["unsure/count"], stats["unsure/max_reached"]) == (1, 1)
    assert "retry_count" not in stats


def test_a_predicate_that_there_is_not_is_refused() -> None:
    with pytest.raises(SettingsError, match="RETRY_PREDICATE"):
        simulate(Unsure, SimulatedWeb(), {"RETRY_PREDICATE": "no.such.function"})
