"""Refusals that look like pages: the scope slows down, the request is sent again, nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

import trawl
from trawl.errors import SettingsError, SoftBlocked
from trawl.http import Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

EXACT = {"ROBOTSTXT_OBEY": False, "RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": False}


def is_captcha(response: Response) -> bool:
    return "captcha" in response.text


class Pages(trawl.Spider):
    """Ten pages."""

    name = "pages"
    start_urls = tuple(f"http://a.example/{n}" for n in range(10))

    def parse(self, response: Response, **kwargs: Any) -> Any:
        return {"url": response.url, "body": response.text}


def test_the_scope_backs_off_and_every_page_comes_in_the_end() -> None:
    refused = {3, 4}  # by their number among all sends
    sends = 0

    def answer(request: Any) -> SimulatedResponse:
        nonlocal sends
        sends += 1
        return SimulatedResponse(body="captcha" if sends in refused else "page", latency=0.1)

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    sim = simulate(Pages, web, {**EXACT, "SOFT_BLOCK_DETECTOR": is_captcha})
    assert sorted(item["url"] for item in sim.items) == sorted(Pages.start_urls)
    assert {item["body"] for item in sim.items} == {"page"}
    gaps = sim.gaps("a.example")
    assert gaps[0] == 1.0
    assert gaps[3] > 2 * gaps[0]
    assert sim.stats["download_error_count/SoftBlocked"] == 2


def test_a_page_that_stays_one_goes_to_the_errback_with_the_page() -> None:
    class Hears(Pages):
        async def start(self) -> Any:
            yield Request("http://a.example/ok")
            yield Request("http://a.example/blocked", errback=self.blocked)
            for n in range(30):
                yield Request(f"http://a.example/{n}")

        def blocked(self, error: Exception) -> Any:
            assert isinstance(error, SoftBlocked)
            return {"blocked": error.response.text, "status": error.response.status}

    web = SimulatedWeb()
    web.add_host(
        "a.example",
        handler=lambda request: SimulatedResponse(body="captcha" if request.url.endswith("/blocked") else "page"),
    )
    sim = simulate(Hears, web, {**EXACT, "SOFT_BLOCK_DETECTOR": is_captcha, "BACKOFF_WINDOW": 5.0})
    assert {"blocked": "captcha", "status": 200} in sim.items
    assert len(sim.items) == 32
    assert len([send for send in sim.sends if send.url.endswith("/blocked")]) >= 3


def test_a_request_may_ask_not_to_be_looked_at() -> None:
    class Wants(Pages):
        async def start(self) -> Any:
            yield Request("http://a.example/", meta={"dont_detect_soft_block": True})

    web = SimulatedWeb()
    web.add_host("a.example", handler=lambda request: SimulatedResponse(body="captcha"))
    assert len(simulate(Wants, web, {**EXACT, "SOFT_BLOCK_DETECTOR": is_captcha}).items) == 1


def test_a_detector_that_fails_blocks_nothing_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def breaks(response: Response) -> bool:
        raise RuntimeError("no idea")

    web = SimulatedWeb()
    web.add_host("a.example")
    sim = simulate(Pages, web, {**EXACT, "SOFT_BLOCK_DETECTOR": breaks}, errors="collect")
    assert len(sim.items) == 10
    assert "SOFT_BLOCK_DETECTOR failed" in caplog.text


def test_a_detector_that_there_is_not_is_refused() -> None:
    with pytest.raises(SettingsError, match="SOFT_BLOCK_DETECTOR"):
        simulate(Pages, SimulatedWeb(), {"SOFT_BLOCK_DETECTOR": 5})
