"""Sessions: cookies, proxy, fields and throttling of their own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

import trawl
from trawl.cookies import Jars
from trawl.errors import SettingsError
from trawl.http import Request, Response
from trawl.middleware.cookies import Sessions
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

HOST = "http://a.example"
EXACT = {"ROBOTSTXT_OBEY": False, "RANDOMIZE_DOWNLOAD_DELAY": False}


def web_of(seen: list[tuple[str, str | None]]) -> SimulatedWeb:
    """Greets who has no cookie with one, and notes what each request had."""

    def answer(request: Any) -> SimulatedResponse:
        cookie = request.headers.get("Cookie")
        seen.append((request.url.removeprefix(HOST), cookie))
        fields = {} if cookie else {"Set-Cookie": f"id={len(seen)}"}
        return SimulatedResponse(body=cookie or "", headers=fields, latency=0.1)

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    return web


class Two(trawl.Spider):
    """Two sessions, three pages each."""

    name = "two"

    async def start(self) -> AsyncGenerator[Request, None]:
        for name in ("anna", "ben"):
            yield self.session(name).request(f"{HOST}/{name}/1", self.parse)

    def parse(self, response: Response, **kwargs: Any) -> Any:
        name, number = response.url.split("/")[-2:]
        if number != "3":
            yield self.session(name)(Request(f"{HOST}/{name}/{int(number) + 1}"))


def test_each_session_has_its_own_cookies() -> None:
    seen: list[tuple[str, str | None]] = []
    simulate(Two, web_of(seen), EXACT)
    assert dict(seen) == {
        "/anna/1": None, "/anna/2": "id=1", "/anna/3": "id=1", "/ben/1": None, "/ben/2": "id=2", "/ben/3": "id=2",
    }  # fmt: skip


def test_a_session_is_charged_to_its_own_scope_besides_the_sites_p15() -> None:
    free = {**EXACT, "DOWNLOAD_DELAY": 0.5, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    sessions = {"anna": {"throttling": {"concurrency": 1, "delay": 3.0}}}
    sim = simulate(Two, web_of([]), {**free, "SESSIONS": sessions})
    assert sim.gaps("session:anna") == [3.0, 3.0]
    assert min(sim.gaps("a.example")) >= 0.5
    assert len(sim.of("session:ben")) == 3
    assert all(set(send.scopes) == {"a.example", f"session:{send.url.split('/')[3]}"} for send in sim.sends)


def test_meta_that_names_the_scopes_names_all_of_them() -> None:
    class Named(Two):
        async def start(self) -> AsyncGenerator[Request, None]:
            yield Request(f"{HOST}/x/3", meta={"session": "anna", "throttling_scopes": "mine"})

    assert [dict(send.scopes) for send in simulate(Named, web_of([]), EXACT).sends] == [{"mine": 1.0}]


def test_a_manager_of_the_users_does_not_keep_a_session_from_its_scope() -> None:
    class Manager:
        async def get_scopes(self, request: Request) -> str:
            return "theirs"

    sim = simulate(Two, web_of([]), {**EXACT, "THROTTLING_MANAGER": Manager})
    assert {scope for send in sim.sends for scope in send.scopes} == {"theirs", "session:anna", "session:ben"}


def test_a_session_lasts_across_a_direct_fetch_and_a_redirect() -> None:
    seen: list[tuple[str, str | None]] = []

    class Login(trawl.Spider):
        name = "login"
        start_urls = (f"{HOST}/",)

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            anna = self.session("anna")
            await anna.fetch(f"{HOST}/login")
            again = await anna.fetch(Request(f"{HOST}/account"))
            return {"body": again.text, "cookies": [cookie.pair for cookie in anna.cookies]}

    def answer(request: Any) -> SimulatedResponse:
        seen.append((request.url.removeprefix(HOST), request.headers.get("Cookie")))
        if request.url.endswith("/login"):
            return SimulatedResponse(status=302, headers={"Location": "/in", "Set-Cookie": "id=7"})
        return SimulatedResponse(body=request.headers.get("Cookie") or "nobody")

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    sim = simulate(Login, web, EXACT)
    assert sim.items == [{"body": "id=7", "cookies": ["id=7"]}]
    assert seen == [("/", None), ("/login", None), ("/in", "id=7"), ("/account", "id=7")]


def test_a_session_dresses_its_requests_where_they_say_nothing_themselves() -> None:
    sessions = Sessions(Jars())
    sessions.get("anna", proxy="http://proxy.example:8080", headers={"User-Agent": "anna", "X-A": "1"})
    request = Request(HOST, headers={"User-Agent": "mine"}, meta={"session": "anna"})
    sessions.apply(request)
    assert request.meta["proxy"] == "http://proxy.example:8080"
    assert dict(request.headers) == {"User-Agent": "mine", "X-A": "1"}
    other = Request(HOST, meta={"session": "nobody", "proxy": "mine"})
    sessions.apply(other)
    assert other.meta == {"session": "nobody", "proxy": "mine"}


def test_a_cookie_that_was_got_elsewhere_can_be_put_in_and_all_can_be_forgotten() -> None:
    jars = Jars()
    anna = Sessions(jars).get("anna")
    anna.set_cookie("id", "7", url=f"{HOST}/some/page")
    assert [(cookie.pair, cookie.domain, cookie.path) for cookie in anna.cookies] == [("id=7", "a.example", "/")]
    anna.cookies.clear()
    assert len(anna.cookies) == 0


def test_a_session_is_the_same_for_the_same_name_and_keeps_what_it_has() -> None:
    sessions = Sessions(Jars())
    anna = sessions.get("anna", proxy="http://p.example")
    assert sessions.get("anna") is anna
    assert anna.proxy == "http://p.example"


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_session_has_a_name(name: Any) -> None:
    with pytest.raises(ValueError, match="a session's name must be a non-empty string"):
        Sessions(Jars()).get(name)


async def test_a_session_outside_a_crawl_fetches_nothing() -> None:
    with pytest.raises(RuntimeError, match="has not started"):
        await Sessions(Jars()).get("anna").fetch(HOST)


def test_a_limit_that_there_is_not_ends_the_crawl_before_it_begins() -> None:
    with pytest.raises(SettingsError, match="concurency"):
        simulate(Two, web_of([]), {"SESSIONS": {"anna": {"throttling": {"concurency": 1}}}})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"headers": {"User Agent": "x"}}, "'User Agent' is not a header name"),
        ({"headers": {"X-A": "a\r\nb"}}, "X-A"),
        ({"proxy": "gopher://me:secret@x"}, "a proxy's scheme must be http, https, socks5 or socks5h, not 'gopher'"),
        ({"proxy": "http://me:secret@:80"}, "':80' is not a host and port of a proxy"),
    ],
)
def test_what_can_be_no_session_is_refused_before_anything_is_sent(config: Any, said: str) -> None:
    seen: list[tuple[str, str | None]] = []
    with pytest.raises(SettingsError, match=r"^SESSIONS\['anna'\]: ") as caught:
        simulate(Two, web_of(seen), settings={"SESSIONS": {"anna": config}})
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not seen
    with pytest.raises(ValueError, match=said.replace("(", "\\(")):
        Sessions(Jars()).get("anna", **config)
