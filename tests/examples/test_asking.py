"""How pages are asked for: examples/scroll.py, graphql.py, signed.py and proxies.py, on simulated servers."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from examples.graphql import GraphQL
from examples.proxies import Proxies
from examples.scroll import Scroll
from examples.signed import Orders
from tests.examples.sandboxes import QUOTES, next_link, page, quote_block
from trawl import Request
from trawl.errors import ProxyFailed
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate

JSON = {"Content-Type": "application/json"}
START = datetime(2025, 1, 1, tzinfo=UTC)


def answer(value: object, status: int = 200, **fields: str) -> SimulatedResponse:
    return SimulatedResponse(status, json.dumps(value), {**JSON, **fields})


def scrolling(**arguments: Any) -> Simulation:
    """What Scroll does with an API of three pages."""

    def api(request: Request) -> SimulatedResponse:
        number = int(parse_qs(urlsplit(request.url).query)["page"][0])
        quotes = [{"text": f"“No. {number}”", "author": {"name": "Emma", "slug": "Emma"}, "tags": ["a", "b"]}]
        return answer({"has_next": number < 3, "page": number, "quotes": quotes, "tag": None})

    web = SimulatedWeb()
    web.add_host("127.0.0.1:8765", handler=api)
    return simulate(Scroll, web, **arguments)


def test_scroll_reads_page_after_page_while_there_are_more() -> None:
    items = scrolling().items
    assert [item["text"] for item in items] == ["No. 1", "No. 2", "No. 3"]
    assert items[0] == {"text": "No. 1", "author": "Emma", "tags": ["a", "b"]}


def test_scroll_stops_after_the_pages_that_it_was_told() -> None:
    assert len(scrolling(pages="2").items) == 2


class GitHub:
    """Answers as the API does to the one query."""

    def __init__(self, releases: int = 250) -> None:
        self.releases = releases
        self.tokens: list[str | None] = []

    def __call__(self, request: Request) -> SimulatedResponse:
        assert (request.method, request.headers["Content-Type"]) == ("POST", "application/json")
        self.tokens.append(request.headers.get("Authorization"))
        asked = json.loads(request.body)["variables"]
        if (asked["owner"], asked["name"]) != ("pytest-dev", "pytest"):
            return answer({"data": {"repository": None}, "errors": [{"message": "Could not resolve to a Repository"}]})
        first = int(asked["after"] or 0)
        last = min(first + 100, self.releases)
        nodes = [{"tagName": f"v{n}", "publishedAt": f"2024-05-01T00:00:{n % 60:02}Z"} for n in range(first, last)]
        more = {"hasNextPage": last < self.releases, "endCursor": str(last)}
        return answer({"data": {"repository": {"releases": {"nodes": nodes, "pageInfo": more}}}})


def asked_of(github: GitHub, **arguments: Any) -> Simulation:
    web = SimulatedWeb()
    web.add_host("api.github.com", handler=github)
    return simulate(
        GraphQL, web, {"HTTP_AUTH": {"https://api.github.com": {"token": "secret"}}}, errors="collect", **arguments
    )


def test_graphql_follows_the_cursor_to_the_last_release() -> None:
    github = GitHub()
    sim = asked_of(github)
    assert [item["tag"] for item in sim.items] == [f"v{number}" for number in range(250)]
    assert sim.items[0]["day"] == "2024-05-01"
    assert github.tokens == ["Bearer secret"] * 3


def test_graphql_takes_an_error_in_a_200_for_one(caplog: pytest.LogCaptureFixture) -> None:
    sim = asked_of(GitHub(), repository="no/such")
    assert (sim.items, sim.stats["spider_exceptions"]) == ([], 1)
    assert "Could not resolve to a Repository" in caplog.text


def is_signed(request: Request) -> bool:
    """As the server of the example looks: the signature is good, and not from yesterday."""
    at = request.headers.get("X-Signed-At", "")
    body = hashlib.sha256(request.body).hexdigest()
    target = request.url.removeprefix("https://api.example")
    signed = hmac.new(b"secret", f"{request.method}\n{target}\n{at}\n{body}".encode(), "sha256").hexdigest()
    is_fresh = bool(at) and START <= datetime.fromisoformat(at) < START + timedelta(days=1)
    return is_fresh and request.headers.get("X-Key-Id") == "me" and request.headers.get("X-Signature") == signed


def test_signed_signs_each_send_with_its_own_time() -> None:
    at: list[str] = []

    def server(request: Request) -> SimulatedResponse:
        assert is_signed(request)
        at.append(request.headers["X-Signed-At"])
        return answer([{"order": 1}]) if len(at) > 1 else answer([], 500)

    web = SimulatedWeb()
    web.add_host("api.example", handler=server, robots=answer("User-agent: *\nAllow: /\n"))
    given = {"SIGNING_KEY_ID": "me", "SIGNING_SECRET": "secret"}
    sim = simulate(Orders, web, given, url="https://api.example/orders?since=2024&all=1")
    assert sim.items == [{"order": 1}]
    assert len(set(at)) == 2


def test_signed_sends_no_signature_elsewhere() -> None:
    seen: dict[str, list[str]] = {}

    def note(request: Request) -> None:
        seen[urlsplit(request.url).netloc] = [name for name in request.headers if name.lower().startswith("x-")]

    def first(request: Request) -> SimulatedResponse:
        note(request)
        return SimulatedResponse(302, "", {"Location": "https://elsewhere.example/orders"})

    def second(request: Request) -> SimulatedResponse:
        note(request)
        return answer([{"order": 2}])

    web = SimulatedWeb()
    web.add_host("api.example", handler=first)
    web.add_host("elsewhere.example", handler=second)
    sim = simulate(Orders, web, {"SIGNING_KEY_ID": "me", "SIGNING_SECRET": "secret"})
    assert sim.items == [{"order": 2}]
    assert sorted(seen["api.example"]) == ["X-Key-Id", "X-Signature", "X-Signed-At"]
    assert seen["elsewhere.example"] == []


def test_signed_is_left_out_without_a_secret() -> None:
    web = SimulatedWeb()
    web.add_host("api.example", handler=lambda request: answer([{"signed": "X-Signature" in request.headers}]))
    assert simulate(Orders, web).items == [{"signed": False}]


def test_proxies_take_turns_and_the_sites_limits_hold() -> None:
    one, two, three = (f"http://me:secret@{name}.example:3128" for name in ("one", "two", "three"))

    def gone(request: Request) -> ProxyFailed | None:
        return ProxyFailed("refused", is_of_proxy=True) if request.meta["proxy"] == two else None

    def site(request: Request) -> SimulatedResponse:
        number = int(urlsplit(request.url).path.strip("/") or 0)
        more = next_link(f"/{number + 1}") if number < 5 else ""
        return SimulatedResponse(body=page(quote_block(*QUOTES[0]) + more))

    web = SimulatedWeb()
    web.add_host("quotes.toscrape.com", handler=site, latency=0.1, keep_alive=0, connect_error=gone)
    sim = simulate(Proxies, web, {"ROTATING_PROXY_LIST": [one, two, three], "RANDOMIZE_DOWNLOAD_DELAY": False})
    through = [item["through"] for item in sim.items]
    assert len(through) == 6
    assert set(through) == {"one.example", "three.example"}
    assert sim.stats["pages_through/one.example"] + sim.stats["pages_through/three.example"] == 6
    assert sim.stats["proxy_failed_count"] >= 1
    assert min(sim.gaps("quotes.toscrape.com")) >= 0.5
