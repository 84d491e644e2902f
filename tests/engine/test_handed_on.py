"""What a crawl keeps in the meta of a request is not handed on with ``meta=response.meta``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trawl
from trawl.engine.leases import CRAWLS_OWN, forget_the_last
from trawl.http import Request, Response
from trawl.http.notes import NO_NOTES, RequestNotes, notes_of, set_notes
from trawl.middleware import get_retry_request
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

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
    (item,) = simulate(Fails, web, {**FREE, "RETRY_TIMES": 1}, errors="collect").items
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


NOTES = RequestNotes(refused_at=1.0, refusals=2, is_bad_page=True, proxy="http://p.example:1", session="anna")


def answered(**meta: Any) -> Request:
    """A request whose callback is called."""
    request = Request("http://a.example/", meta={"proxy": "http://p.example:1", "depth": 0, **meta})
    set_notes(request, NOTES)
    return request


def test_the_refusals_of_a_page_are_not_those_of_the_next() -> None:
    last = answered()
    for following in (last.replace(url="http://a.example/2"), Request("http://a.example/2", meta=last.meta)):
        forget_the_last([following], last)
        assert notes_of(following) == RequestNotes(proxy="http://p.example:1", session="anna")
        assert following.meta == last.meta


def test_a_proxy_that_is_handed_on_by_its_name_is_the_spiders_choice() -> None:
    last = answered()
    following = Request("http://a.example/2", meta={"proxy": last.meta["proxy"]})
    forget_the_last([following], last)
    assert notes_of(following) is NO_NOTES


@pytest.mark.parametrize("meta", [{}, {"retry_times": 1}])
def test_a_request_that_is_tried_again_keeps_its_notes(meta: dict[str, Any]) -> None:
    last = answered(**meta)
    more = {**last.meta, "retry_times": last.meta.get("retry_times", 0) + 1}
    for again in (last.replace(meta=more), Request(last.url, meta=more)):
        forget_the_last([again], last)
        assert notes_of(again) == NOTES


def test_meta_has_no_key_that_the_documentation_does_not_name() -> None:
    seen: list[dict[str, Any]] = []

    class Sees(trawl.Spider):
        name = "sees"
        custom_settings = {
            "SESSIONS": {"anna": {"headers": {"X-A": "1"}}},
            "ROTATING_PROXY_LIST": ["http://p.example:1", "http://q.example:1"],
        }

        async def start(self) -> Any:
            for number in range(4):
                yield Request(f"http://a.example/{number}", meta={"session": "anna"}, errback=self.failed)

        def parse(self, response: Response, **kwargs: Any) -> Any:
            seen.append(dict(response.meta))
            if response.url.endswith("/3"):
                yield Request("http://a.example/4", meta=response.meta)

        def failed(self, error: Any) -> None:
            seen.append(dict(error.request.meta))

    asked: Counter[str] = Counter()

    def answer(request: Any) -> SimulatedResponse:
        asked[request.url] += 1
        status = 503 if asked[request.url] == 1 else 404 if request.url.endswith("/1") else 200
        return SimulatedResponse(status=status)

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    sim = simulate(Sees, web, {**FREE, "RETRY_TIMES": 3})
    assert sim.stats["backoff_count"] > 0  # it was refused
    assert len(seen) == 5
    documented = Path("docs/howto/coming-from-scrapy.md").read_text("utf-8")
    table = documented.partition("## The keys of `meta`")[2].partition("\n## ")[0]
    for meta in seen:
        assert {key for key in meta if f"`{key}`" not in table} == set()


def test_a_handed_on_meta_gets_the_next_proxy_of_the_list() -> None:
    class Rotates(trawl.Spider):
        name = "rotates"
        start_urls = ["http://a.example/1"]
        custom_settings = {"ROTATING_PROXY_LIST": ["http://p.example:1", "http://q.example:1"]}

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            again = await self.crawl.fetch(Request("http://a.example/2", meta=response.meta))
            yield {"proxies": [response.meta["proxy"], again.meta["proxy"]]}
            yield Request("http://a.example/3", self.third, meta=again.meta | response.meta)

        def third(self, response: Response) -> Any:
            yield {"proxies": [response.meta["proxy"]]}

    web = SimulatedWeb()
    web.add_host("a.example")
    items = simulate(Rotates, web, FREE).items
    p, q = "http://p.example:1", "http://q.example:1"
    assert [item["proxies"] for item in items] == [[p, q], [p]]
