"""A whole crawl through proxies of our own on loopback: the environment's, and a list of which one is gone."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

import trawl
from tests.net.badserver import Connection, clock, is_fine, serving
from tests.net.proxies import proxying

__all__ = ["clock"]


class Titles(trawl.Spider):
    name = "titles"
    custom_settings = {"DOWNLOAD_DELAY": 0.0, "RETRY_DELAY": 0.0, "ROBOTSTXT_OBEY": False}

    def __init__(self, port: int) -> None:
        super().__init__()
        self.start_urls = [f"http://a.example:{port}/{number}" for number in range(4)]

    def parse(self, response: trawl.Response) -> dict[str, object]:
        return {"title": response.css("title::text").get()}


async def test_the_environments_proxy_carries_a_crawl_and_its_robots_txt(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(is_fine) as server, proxying(names={"a.example": server.port}) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url())
        result = await trawl.crawl(Titles, {"ROBOTSTXT_OBEY": True}, port=server.port)
        assert result.items == [{"title": "fine"}] * 4
        assert len(proxy.asked) == 5
        await proxy.all_gone()


async def test_a_crawl_goes_on_through_the_proxies_that_are_well(clock: MockClock) -> None:
    async with proxying() as gone:
        pass
    async with serving(is_fine) as server, proxying(names={"a.example": server.port}) as proxy:
        settings = {"ROTATING_PROXY_LIST": [gone.url(), proxy.url("socks5")]}
        result = await trawl.crawl(Titles, settings, port=server.port)
        assert result.items == [{"title": "fine"}] * 4
        assert result.stats["proxy_failed_count"] >= 1
        assert result.stats["proxy_retry_count"] == result.stats["proxy_failed_count"]
        await proxy.all_gone()


@pytest.mark.parametrize("status", [403, 407])
async def test_a_proxy_that_is_banned_loses_no_page_and_opens_no_robots_txt(clock: MockClock, status: int) -> None:
    refusal = f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()

    async def answer(connection: Connection) -> None:
        is_robots = b"/robots.txt" in connection.head
        body = b"User-agent: *\nDisallow: /1\n" if is_robots else b"<title>fine</title>"
        await connection.answer(body, "200 OK", "Content-Type: text/html")

    async with (
        proxying(answer=refusal) as banned,
        serving(answer) as server,
        proxying(names={"a.example": server.port}) as good,
    ):
        settings = {
            "ROTATING_PROXY_LIST": [banned.url(), good.url()],
            "ROTATING_PROXY_BAN_CODES": [403],
            "ROBOTSTXT_OBEY": True,
        }
        result = await trawl.crawl(Titles, settings, port=server.port)
        assert result.items == [{"title": "fine"}] * 3
        assert result.stats["robots_forbidden"] == 1
        assert result.stats["proxy_retry_count"] >= 1
        await good.all_gone()
        await banned.all_gone()
