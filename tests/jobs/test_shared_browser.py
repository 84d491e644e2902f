"""Rendered pages in a job of several processes: their third-party hosts are shared scopes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.jobs.test_shared import Fleet, store
from tests.simulated_store import SimulatedStore
from trawl.browser import BrowserSettings, shared_hosts
from trawl.errors import SettingsError
from trawl.http import Request, Response
from trawl.testing import Rendered, SimulatedWeb

__all__ = ["store"]

HOSTS, PAGES = 9, 3


class Rendering(trawl.Spider):
    name = "rendering"

    async def start(self) -> Any:
        for host in range(HOSTS):
            for page in range(PAGES):
                yield Request(f"http://host{host}.example/{page}", meta={"browser": True})

    def parse(self, response: Response) -> Any:
        statuses = [each.status for each in response.page.requests]
        yield {"url": response.url, "statuses": statuses, "html": response.text}


Plain = type("Plain", (trawl.Spider,), {"name": "plain", "__module__": "tests.jobs.test_shared"})
"""A spider of a module that renders no pages."""


def web() -> SimulatedWeb:
    made = SimulatedWeb()
    made.add_host("cdn.example", latency=0.05)
    for host in range(HOSTS):
        made.add_host(f"host{host}.example", latency=0.1)
        for page in range(PAGES):
            asks = [[f"http://cdn.example/{host}-{page}.json"], [f"/api/{page}"]]
            made.add_page(
                f"http://host{host}.example/{page}", body="<p></p>", rendered=Rendered("<p>done</p>", asks, 0.1)
            )
    return made


@pytest.mark.parametrize(
    "settings",
    [{"BROWSER_THIRD_PARTY": ["cdn.example"]}, {"BROWSER_THIRD_PARTY": "all"}, {}],
    ids=["named", "all hosts of sub-requests", "not named"],
)
async def test_three_processes_keep_the_delay_of_one_cdn_and_refuse_no_request(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore, settings: Mapping[str, Any]
) -> None:
    fleet = Fleet(tmp_path, store, **settings)
    fleet.web, fleet.spider = web(), Rendering
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(partial(fleet.work, number, feed=number == 0))
    assert {result.reason for result in fleet.results.values()} == {"finished"}
    assert Counter(line["url"] for line in fleet.lines) == Counter(
        f"http://host{host}.example/{page}" for host in range(HOSTS) for page in range(PAGES)
    )
    assert {tuple(line["statuses"]) for line in fleet.lines} == {(200, 200)}
    assert len([number for number, hosts in fleet.by.items() if hosts["cdn.example"]]) > 1
    sends = sorted(fleet.sends["cdn.example"])
    assert len(sends) == HOSTS * PAGES
    assert min(later - earlier for earlier, later in pairwise(sends)) >= 0.25 - 1e-6  # 0.5 s, ±50 %


@pytest.mark.parametrize(
    ("third", "allowed", "is_chosen", "shared", "own"),
    [
        ("all", [], False, [], ["cdn.example"]),
        ("all", ["shop.example"], False, [], ["cdn.example", "shop.example"]),
        ("all", ["shop.example"], True, ["cdn.example", "shop.example.evil"], ["shop.example", "www.shop.example"]),
        (
            "all",
            [".Shop.example", "b\u00fccher.example"],
            True,
            ["cdn.example"],
            ["shop.example", "xn--bcher-kva.example"],
        ),
        ("all", [], True, ["cdn.example", "shop.example"], []),
        ("none", ["shop.example"], True, [], ["cdn.example"]),
        (("cdn.example",), ["shop.example"], True, ["cdn.example", "a.cdn.example"], ["other.example", "shop.example"]),
        ((".CDN.example", "b\u00fccher.example"), [], True, ["a.cdn.example", "xn--bcher-kva.example"], ["example"]),
    ],
)
def test_the_settings_alone_decide_which_hosts_are_shared(
    third: Any, allowed: Sequence[str], is_chosen: bool, shared: Sequence[str], own: Sequence[str]
) -> None:
    spider = Plain()
    spider.allowed_domains = allowed
    is_shared = shared_hosts(BrowserSettings(browser_third_party=third), spider, is_chosen=is_chosen)
    assert [host for host in [*shared, *own] if is_shared is not None and is_shared(host)] == list(shared)


@pytest.mark.parametrize(("third", "expected"), [("all", None), ("none", False), (("shop.example",), False)])
def test_the_hosts_of_a_spider_that_renders_pages_are_shared_if_possible(third: Any, expected: Any) -> None:
    spider = Rendering()
    spider.allowed_domains = ["shop.example"]
    is_shared = shared_hosts(BrowserSettings(browser_third_party=third), spider, is_chosen=False)
    assert (False if is_shared is None else is_shared("cdn.example")) is expected


async def test_limits_that_cannot_be_shared_stay_as_they_are_if_no_host_is_named(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    fleet = Fleet(tmp_path, store, AUTOTHROTTLE_ENABLED=True)
    fleet.web, fleet.spider = web(), Rendering
    await fleet.work(0, feed=True)
    assert fleet.results[0].reason == "finished"
    assert len(fleet.lines) == HOSTS * PAGES


def test_many_allowed_domains_cost_a_host_no_comparison_with_each() -> None:
    class Text(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Text.compared += 1
            return super().__eq__(other)

        __hash__ = str.__hash__

        def endswith(self, *args: Any) -> bool:
            Text.compared += 1
            return super().endswith(*args)

        def removesuffix(self, suffix: str) -> Text:
            return self

    allowed = [f"shop{number}.example" for number in range(1000)]
    spider = Rendering()
    spider.allowed_domains = allowed
    is_shared = shared_hosts(BrowserSettings(), spider, is_chosen=True)
    assert is_shared is not None
    assert is_shared(Text("cdn.example"))
    assert Text.compared < 10


def test_a_third_party_that_is_no_domain_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"must hold domains such as 'cdn.example': not a domain: 'http://cdn.example/'"
    ):
        BrowserSettings(browser_third_party=("http://cdn.example/",))


async def test_an_open_page_keeps_its_hosts_until_it_is_closed_when_another_process_joins(
    tmp_path: Path, autojump_clock: MockClock, store: SimulatedStore
) -> None:
    fleet = Fleet(tmp_path, store, BROWSER_THIRD_PARTY="none")
    fleet.spider = Rendering
    slow = SimulatedWeb()
    for host in range(HOSTS):
        slow.add_host(f"host{host}.example", latency=0.1)
        for page in range(PAGES):
            rendered = Rendered("<p>done</p>", [[f"/api/{page}"]], 20.0)
            slow.add_page(f"http://host{host}.example/{page}", body="<p></p>", rendered=rendered)
    fleet.web = slow
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(fleet.work, 0, feed=True))
        await trio.sleep(5.0)  # its first pages are open
        nursery.start_soon(partial(fleet.work, 1))
    assert {result.reason for result in fleet.results.values()} == {"finished"}
    pages = Counter(line["url"] for line in fleet.lines)
    assert len(pages) == HOSTS * PAGES
    assert set(pages.values()) == {1}
    sends = Counter(url for _, url in fleet.sent)
    assert set(sends.values()) == {1}  # nothing was sent or rendered again
    assert all(fleet.by[number] for number in range(2)), fleet.by
    for name, times in fleet.sends.items():
        assert min(later - earlier for earlier, later in pairwise(sorted(times))) >= 0.25 - 1e-6, name
