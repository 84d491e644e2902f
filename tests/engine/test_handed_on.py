"""What a crawl keeps in the meta of a request is not handed on with ``meta=response.meta``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import trawl
from trawl.engine.leases import CRAWLS_OWN, forget_the_last
from trawl.http import Request, Response
from trawl.middleware import get_retry_request
from trawl.testing import SimulatedWeb, simulate
from trawl.throttling.outcomes import ADMITTED_AT, BAD_PAGE, REFUSALS, REFUSED_AT, UNCOUNTED

FREE = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "ROBOTSTXT_OBEY": False}


class HandsOn(trawl.Spider):
    name = "hands_on"
    start_urls = ["http://a.example/old"]
    allowed_domains = ["a.example"]

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        yield {"url": response.url, "meta": dict(response.meta)}
        if response.url.endswith("/1"):
            meta = {**response.meta, "mine": 1}
            yield response.follow("/2", meta=meta)
            yield Request("http://b.example/", meta=meta)


def test_the_next_request_begins_anew_and_domains_hold_for_it() -> None:
    web = SimulatedWeb()
    web.add_host("b.example")
    web.add_host("a.example")
    web.add_redirect("http://a.example/old", "http://a.example/1")
    sim = simulate(HandsOn, web, FREE)
    first, second = sim.items
    assert (first["meta"]["redirect_times"], first["meta"]["is_start_request"]) == (1, True)
    assert second["url"] == "http://a.example/2"
    assert second["meta"].keys() - {"download_latency"} == {"depth", "mine"}
    assert (sim.stats["offsite_filtered"], sim.stats.get("spider_exceptions")) == (1, None)


def test_the_whole_of_an_errbacks_meta_may_be_handed_on_too() -> None:
    class Fails(trawl.Spider):
        name = "fails"

        async def start(self) -> Any:
            yield Request("http://nowhere.example/", errback=self.failed)

        def failed(self, failure: Any) -> Any:
            return Request("http://a.example/2", meta=failure.request.meta)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            return {"meta": dict(response.meta)}

    web = SimulatedWeb()
    web.add_host("a.example")
    (item,) = simulate(Fails, web, {**FREE, "RETRY_TIMES": 1}).items
    assert item["meta"].keys() <= {"depth", "download_latency"}


def test_a_request_that_a_callback_tries_again_counts_its_tries() -> None:
    class Tries(trawl.Spider):
        name = "tries"
        start_urls = ["http://a.example/"]

        def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
            yield {"tries": response.meta.get("retry_times", 0)}
            assert response.request is not None
            again = get_retry_request(response.request, spider=self, reason="empty", max_retry_times=2)
            if again is not None:
                yield again

    web = SimulatedWeb()
    web.add_host("a.example")
    assert simulate(Tries, web, FREE).items == [{"tries": 0}, {"tries": 1}, {"tries": 2}]


@pytest.mark.parametrize("key", sorted(CRAWLS_OWN))
def test_only_what_is_as_it_was_is_taken_out(key: str) -> None:
    last = Request("http://a.example/", meta={"mine": 1, key: 1})
    same, other = last.replace(), last.replace(meta={"mine": 1, key: 2})
    for request in (same, other):
        forget_the_last([request], last)
    assert (same.meta, other.meta) == ({"mine": 1}, {"mine": 1, key: 2})
    forget_the_last([same], None)


def test_whatever_the_throttle_notes_in_meta_is_meant_for_one_request() -> None:
    assert {ADMITTED_AT, BAD_PAGE, REFUSALS, REFUSED_AT, UNCOUNTED} <= CRAWLS_OWN
