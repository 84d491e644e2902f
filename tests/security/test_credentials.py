"""What lets us in at one origin is told to no other, whoever sends us there (C10)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from trio.testing import MockClock

import trawl
from tests.net.badserver import BadServer, Connection, clock, serving
from tests.net.crawls import AT_ONCE
from trawl._run import crawl_with
from trawl.http import Response
from trawl.settings import Layer, load

__all__ = ["clock"]

SECRETS = [b"Authorization", b"s3cret", b"czNjcmV0", b"token", b"me:"]


class Logged(trawl.Spider):
    """Asks for one page with all the credentials there are, and follows what is on it."""

    name = "logged"
    url = ""

    async def start(self) -> AsyncIterator[Any]:
        url = self.url.replace("//", "//me:s3cret@") + "page"
        yield trawl.Request(url, headers={"Cookie": "token=s3cret"}, cookies={"session": "s3cret"})

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}
        yield from response.follow_all(css="a")


async def heads_of_another(kind: str) -> tuple[BadServer, BadServer]:
    """Crawl a server that sends us to another one; both, with what they heard."""

    async def other(connection: Connection) -> None:
        await connection.answer(b"hello", "200 OK", "Content-Type: text/html")

    async with serving(other) as second:

        async def first(connection: Connection) -> None:
            path = connection.head.split(b" ")[1]
            fields = ["Set-Cookie: sid=s3cret", "Content-Type: text/html"]
            if path != b"/page":
                await connection.answer(b"inside", "200 OK", *fields)
            elif kind == "redirect":
                await connection.answer(b"", "302 Found", f"Location: {second.url}there", *fields)
            elif kind == "link":
                await connection.answer(
                    f'<a href="{second.url}there">x</a><a href="/in">y</a>'.encode(), "200 OK", *fields
                )
            else:
                refresh = f'<meta http-equiv="refresh" content="0; url={second.url}there">'
                await connection.answer(f"<html><head>{refresh}</head></html>".encode(), "200 OK", *fields)

        async with serving(first) as server:
            settings = {**AT_ONCE, "METAREFRESH_ENABLED": True}
            result = await crawl_with(Logged, load(Layer("test", settings)), spider_args={"url": server.url})
            assert result.reason == "finished"
    return server, second


@pytest.mark.parametrize("kind", ["redirect", "link", "refresh"])
async def test_credentials_stay_at_their_origin_c10(clock: MockClock, kind: str) -> None:
    own, other = await heads_of_another(kind)
    assert b"Authorization: Basic bWU6czNjcmV0" in own.heads[0]
    assert b"token=s3cret; session=s3cret" in own.heads[0]
    (heard,) = other.heads
    if kind == "link":
        assert any(b"GET /in " in head and b"sid=s3cret" in head for head in own.heads)
    # Two ports of one host are one place to cookies (RFC 6265, 8.5), and two origins to everything else.
    without_jar = heard.replace(b"session=s3cret", b"").replace(b"sid=s3cret", b"")
    assert [secret for secret in SECRETS if secret in without_jar] == []
