"""Limits by resolved address, end to end: the crawl, its managers and the simulated web agree on who lives where."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

import trawl
from trawl.http import Request, Response
from trawl.testing import SimulatedWeb, simulate
from trawl.throttling import ThrottlingManager

EXACT = {"RANDOMIZE_DOWNLOAD_DELAY": False, "ROBOTSTXT_OBEY": False}
SHOPS = ("one.example", "two.example", "three.example")


def web(robots: str | None = None) -> SimulatedWeb:
    """Three shops on one machine, and a fourth on its own."""
    made = SimulatedWeb()
    for shop in SHOPS:
        made.add_host(shop, latency=0.25, address="192.0.2.7", robots=robots)
    made.add_host("other.example", latency=0.25)
    return made


class Shops(trawl.Spider):
    """Four pages of each of the shops."""

    name = "shops"
    start_urls = tuple(f"http://{host}/{page}" for page in range(4) for host in (*SHOPS, "other.example"))

    def parse(self, response: Response, **kwargs: Any) -> Any:
        """Nothing comes of a page."""


def by_address(**settings: object) -> Mapping[str, object]:
    return {"CONCURRENT_REQUESTS_PER_IP": 1, **EXACT, **settings}


def gaps(times: list[float]) -> list[float]:
    return [round(later - earlier, 9) for earlier, later in pairwise(times)]


def test_i05_hosts_of_one_address_share_its_delay() -> None:
    sim = simulate(Shops, web(), by_address())
    assert set(gaps(sim.times("192.0.2.7"))) == {1.0}
    assert len(sim.of("192.0.2.7")) == 12
    assert {scope for send in sim.sends for scope in send.scopes} == {"192.0.2.7", "198.18.0.4"}
    assert sim.times("198.18.0.4") == [0.0, 1.0, 2.0, 3.0]


def test_i05_without_it_each_host_has_its_own() -> None:
    sim = simulate(Shops, web(), EXACT)
    assert sim.times("one.example") == sim.times("two.example") == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_i05_its_number_is_the_concurrency_of_an_address(most: int) -> None:
    free = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "CONCURRENT_REQUESTS_PER_IP": most}
    sim = simulate(Shops, web(), by_address(**free))
    assert sim.most_in_flight("192.0.2.7") == most
    assert {send.slot for send in sim.of("192.0.2.7")} == set(range(1, most + 1))


def test_i05_autothrottle_adjusts_by_address() -> None:
    free = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "AUTOTHROTTLE_ENABLED": True}
    sim = simulate(Shops, web(), by_address(**free, AUTOTHROTTLE_START_DELAY=4.0))
    assert gaps(sim.times("192.0.2.7"))[:3] == [2.125, 1.1875, 0.71875]  # H04: the mean of 4.0 and 0.25, and so on


def test_i05_crawl_delay_of_any_of_its_hosts_slows_the_address() -> None:
    sim = simulate(Shops, web("User-agent: *\nCrawl-delay: 3"), by_address(ROBOTSTXT_OBEY=True))
    pages = [send.time for send in sim.of("192.0.2.7") if not send.url.endswith("/robots.txt")]
    assert min(gaps(pages)) >= 3.0


def test_i05_backoff_is_the_addresss_too() -> None:
    made = SimulatedWeb()
    made.add_host("one.example", status=429, address="192.0.2.7", latency=0.25, headers={"Retry-After": "20"})
    made.add_host("two.example", address="192.0.2.7", latency=0.25)

    class Two(Shops):
        start_urls = ("http://one.example/", "http://two.example/")

    sim = simulate(Two, made, by_address(BACKOFF_JITTER=0, BACKOFF_GIVE_UP_AFTER=30.0))
    assert sim.times("192.0.2.7")[:2] == [0.0, 20.25]


def test_i05_a_host_without_an_address_keeps_its_name(caplog: pytest.LogCaptureFixture) -> None:
    class Gone(Shops):
        start_urls = ("http://gone.example/",)

    sim = simulate(Gone, web(), by_address(), errors="collect")
    assert sim.reason == "finished"
    assert sim.sends == ()
    assert sim.stats["download_error_count/NameNotResolved"] == 3


def test_i05_an_address_in_the_url_is_itself_whatever_the_port() -> None:
    made = SimulatedWeb()
    made.add_host("192.0.2.9")
    made.add_host("[2001:db8::1]")

    class Numbers(Shops):
        start_urls = ("http://192.0.2.9/", "http://192.0.2.9:8080/", "https://[2001:db8::1]:4443/")

    sim = simulate(Numbers, made, by_address())
    assert [tuple(send.scopes) for send in sim.sends] == [("192.0.2.9",), ("[2001:db8::1]",), ("192.0.2.9",)]
    assert sim.times("192.0.2.9") == [0.0, 1.0]


class Beside(ThrottlingManager):
    """The default scopes, and one more."""

    async def get_scopes(self, request: Request) -> set[str]:
        own = await super().get_scopes(request)
        assert isinstance(own, str)
        return {own, "all"}


def test_i05_a_managers_super_names_the_address() -> None:
    sim = simulate(Shops, web(), by_address(THROTTLING_MANAGER=Beside))
    assert {scope for send in sim.sends for scope in send.scopes} == {"192.0.2.7", "198.18.0.4", "all"}


def test_i05_limits_of_hosts_that_their_addresses_replace_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="trawl.throttling"):
        scopes = {"one.example": {"delay": 5.0}, "192.0.2.7": {"delay": 2.0}}
        simulate(Shops, web(), by_address(THROTTLING_SCOPES=scopes))
    told = [record.getMessage() for record in caplog.records if "CONCURRENT_REQUESTS_PER_IP" in record.getMessage()]
    assert len(told) == 1
    assert "'one.example'" in told[0]


def test_i05_limits_are_configured_by_address() -> None:
    sim = simulate(Shops, web(), by_address(THROTTLING_SCOPES={"192.0.2.7": {"delay": 2.0}}))
    assert set(gaps(sim.times("192.0.2.7"))) == {2.0}


def test_a_spider_can_ask_for_addresses() -> None:
    class Asking(Shops):
        start_urls = ("http://other.example/",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            for host in ("one.example", "other.example:8080", "nobody.example", "192.0.2.1"):
                yield {"host": host, "address": await self.crawl.address_of(host)}

    sim = simulate(Asking, web(), EXACT)
    assert [item["address"] for item in sim.items] == ["192.0.2.7", "198.18.0.4", None, "192.0.2.1"]
