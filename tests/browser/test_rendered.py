"""Pages with meta ``browser`` on the virtual clock: their requests obey every limit, at exact times."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trawl
from trawl.browser import BrowserPage, Opening
from trawl.browser.page import ScriptFailed
from trawl.http import Fetch, Outcome, Replace, Request, Response
from trawl.testing import Rendered, SimulatedResponse, SimulatedWeb, Simulation, simulate
from trawl.testing.web import SimulatedPage
from trawl.throttling import ThrottlingManager

A = "http://a.example"
CDN = "http://cdn.example"
EXACT = {"RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0, "ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 1.0}
SCRIPT = {"Content-Type": "text/javascript", "Cache-Control": "max-age=60"}


def shop(pages: int = 3) -> SimulatedWeb:
    """Return a site whose pages need two scripts, one of a CDN, and a request for their items."""
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.5)
    web.add_host("cdn.example", latency=0.1)
    web.add_page(f"{A}/app.js", body="js", headers=SCRIPT)
    web.add_page(f"{CDN}/lib.js", body="js", headers=SCRIPT)
    for n in range(pages):
        more = Rendered(f"<p class=item>{n}</p><p class=item>more</p>", [[f"/api/{n}?more"]], 0.1)
        first = Rendered(
            f"<p class=item>{n}</p><a class=more>more</a>",
            [["/app.js", f"{CDN}/lib.js"], [f"/api/{n}"]],
            0.25,
            {"click .more": more},
        )
        web.add_page(f"{A}/{n}", body="<body></body>", rendered=first)
    return web


class Shop(trawl.Spider):
    name = "shop"
    custom_settings = EXACT
    pages = 3
    how: Mapping[str, Any] | bool = {"wait_for": ".item", "run": "load_all"}

    async def start(self) -> Any:
        for n in range(self.pages):
            yield Request(f"{A}/{n}", meta={"browser": self.how}, errback=self.failed)

    async def load_all(self, page: Any) -> None:
        await page.click(".more")

    def failed(self, error: Any) -> Any:
        yield {"error": type(error).__name__, "at": self.crawl.elapsed}

    def parse(self, response: Response) -> Any:
        yield {"url": response.url, "items": response.css(".item::text").getall(), "at": round(self.crawl.elapsed, 6)}


def paths(sim: Simulation, host: str) -> list[tuple[float, str]]:
    return [(send.time, send.url.split(".example", 1)[1]) for send in sim.of(host)]


@pytest.mark.parametrize(("share", "end"), [(0, 11.6), (1 << 20, 9.6)])
def test_the_requests_of_pages_are_sent_at_the_hosts_delay_and_repeat_exactly(share: int, end: float) -> None:
    sim = simulate(Shop, shop(), {"BROWSER_SHARE": share})
    assert sim.elapsed == end
    own = ["/0", "/app.js", "/api/0", "/api/0?more"]
    for n in (1, 2):
        own += [f"/{n}", *([] if share else ["/app.js"]), f"/api/{n}", f"/api/{n}?more"]
    assert paths(sim, "a.example") == [(float(at), path) for at, path in enumerate(own)]
    assert paths(sim, "cdn.example") == [(at, "/lib.js") for at in ([0.5] if share else [0.5, 4.5, 8.5])]
    assert [item["items"] for item in sim.items] == [[str(n), "more"] for n in range(3)]
    assert simulate(Shop, shop(), {"BROWSER_SHARE": share}).sends == sim.sends


def test_sub_requests_do_not_count_as_pages() -> None:
    sim = simulate(Shop, shop(), {"BROWSER_SHARE": 0})
    assert sim.stats["response_count"] == sim.stats["browser/page_count"] == 3
    assert sim.stats["browser/response_count"] == sim.stats["browser/request_count"] == 12
    assert sim.stats["request_count"] == 15


@pytest.mark.parametrize("limit", ["CLOSESPIDER_PAGECOUNT", "pages of the scope"])
@pytest.mark.parametrize("most", [1, 2])
def test_a_page_limit_does_not_cut_off_the_requests_of_the_last_page(limit: str, most: int) -> None:
    settings: dict[str, Any] = {"CLOSESPIDER_PAGECOUNT": most}
    if limit != "CLOSESPIDER_PAGECOUNT":
        settings = {"THROTTLING_SCOPES": {"a.example": {"pages": most}}}
    sim = simulate(Shop, shop(), {"BROWSER_SHARE": 0, **settings})
    assert [item["items"] for item in sim.items] == [[str(n), "more"] for n in range(most)]
    assert sim.stats["response_count"] == most
    assert len(sim.sends) == 5 * most


def test_a_request_of_a_page_that_a_middleware_sends_elsewhere_needs_no_page_there() -> None:
    def moved(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            if not request.url.startswith(f"{CDN}/lib"):
                return await fetch(request)
            target = request.replace(url=f"{A}/lib.js", meta=dict(request.meta))
            return Outcome(request, then=Replace(target, reason="moved", is_new_target=True))

        return send

    web = shop()
    web.add_page(f"{A}/lib.js", body="js", headers=SCRIPT)
    scopes = {"THROTTLING_SCOPES": {"a.example": {"pages": 1}, "cdn.example": {"pages": 1}}}
    sim = simulate(Shop, web, {"BROWSER_SHARE": 0, "DOWNLOADER_MIDDLEWARES": {moved: 590}, **scopes})
    assert [item["items"] for item in sim.items] == [["0", "more"]]
    assert "/lib.js" in [path for _, path in paths(sim, "a.example")]
    assert sim.stats["response_count"] == 1


def passing(fetch: Fetch) -> Fetch:
    """Return a middleware that does nothing, so that requests are prepared before they get their places."""

    async def send(request: Request) -> Outcome:
        return await fetch(request)

    return send


@pytest.mark.parametrize("tabs", [1, 2, 5])
@pytest.mark.parametrize("has_middleware", [False, True])
def test_a_page_keeps_its_place_in_the_scope_browser_until_it_is_closed(tabs: int, has_middleware: bool) -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.5)
    for n in range(10):
        web.add_page(f"{A}/{n}", body="<p></p>", rendered=Rendered(f"<p class=item>{n}</p>", seconds=10.0))

    class Slow(Shop):
        pages = 10
        how = True
        custom_settings = {
            **EXACT,
            "DOWNLOAD_DELAY": 0,
            "DOWNLOAD_DELAY_PER_SLOT": 0,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
            "BROWSER_PAGES": tabs,
        }

    extra = {"DOWNLOADER_MIDDLEWARES": {passing: 560}} if has_middleware else {}
    sim = simulate(Slow, web, extra)
    assert len(sim.items) == 10
    # A page takes 0.5 s to fetch, 10 s to run and 0.5 s to settle.
    assert sorted(send.time for send in sim.sends) == [11.0 * (n // tabs) for n in range(10)]
    assert sim.elapsed == 11.0 * -(-10 // tabs)


def test_a_page_waits_for_its_requests_at_a_concurrency_of_one() -> None:
    settings = {"CONCURRENT_REQUESTS": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1, "BROWSER_PAGES": 1}
    sim = simulate(Shop, shop(), settings)
    assert len(sim.items) == 3
    assert sim.most_in_flight() == 1


def test_a_pages_timeout_does_not_run_while_one_of_its_requests_waits() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=0.5)
    asks = [["/app.js"], ["/api/0"], ["/api/1"]]
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p class=item>0</p>", asks, 1.0))
    web.add_page(f"{A}/1", body="<p></p>", rendered=Rendered("<p>nothing</p>", [["/api/2"]], 1.0))

    class Patient(Shop):
        pages = 2
        how = {"wait_for": ".item", "timeout": 5.0}

    sim = simulate(Patient, web, {"DOWNLOAD_DELAY": 60.0, "RETRY_TIMES": 0})
    assert [send.time for send in sim.sends] == [0.0, 60.0, 120.0, 180.0, 240.0, 300.0]
    rendered, failed = sim.items
    assert rendered["at"] == 181.5
    # Not ready after 5 s of its own time: the 59.5 s until its request is sent, and its response, do not count.
    assert failed["error"] == "PageNotReady"
    assert failed["at"] == pytest.approx(240.5 + 60.0 + 5.0)


def test_a_pages_timeout_does_not_run_while_its_browser_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = SimulatedWeb.open_page

    @asynccontextmanager
    async def slowly(web: SimulatedWeb, opening: Opening, **options: Any) -> AsyncGenerator[Any, None]:
        with opening.paused():
            await trio.sleep(25.0)
        async with opened(web, opening, **options) as page:
            yield page

    monkeypatch.setattr(SimulatedWeb, "open_page", slowly)

    class Quick(Shop):
        pages = 1
        how = {"wait_for": ".item", "timeout": 1.0}

    (item,) = simulate(Quick, shop(1)).items
    assert item["items"] == ["0"]


def test_a_page_that_was_not_ready_is_sent_again_and_its_error_has_the_html() -> None:
    web = SimulatedWeb()
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p>half</p>"))
    html: list[str] = []

    class Never(Shop):
        pages = 1
        how = {"wait_for": ".item", "timeout": 2.0}

        def failed(self, error: Any) -> Any:
            html.append(error.response.text)

    sim = simulate(Never, web, {"RETRY_TIMES": 1})
    assert len(sim.sends) == 2
    assert html == ["<p>half</p>"]
    assert sim.stats["browser/failed/PageNotReady"] == 2


def test_robots_txt_holds_for_the_requests_of_a_page() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: *\nDisallow: /api/\n")
    web.add_host("cdn.example", robots="User-agent: *\nDisallow: /\n")
    asks = [["/api/0", "/app.js", f"{CDN}/lib.js"]]
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p class=item>0</p>", asks))
    refused: list[Any] = []

    class Robots(Shop):
        pages = 1
        how = True

        def parse(self, response: Response) -> Any:
            refused.extend(each.url for each in response.page.requests if each.status is None)

    sim = simulate(Robots, web, {"ROBOTSTXT_OBEY": True})
    sent = {send.url for send in sim.sends}
    assert sent == {f"{A}/robots.txt", f"{A}/0", f"{A}/app.js", f"{CDN}/robots.txt"}
    assert sorted(refused) == [f"{A}/api/0", f"{CDN}/lib.js"]


def test_a_refused_request_of_a_page_slows_its_host_down_but_not_the_browser() -> None:
    web = SimulatedWeb()
    answers = iter([429, 200])  # the second is sent after the timeout of the page, which stops meanwhile
    web.add_host("api.example", handler=lambda request: SimulatedResponse(next(answers), "x"))
    asks = [["http://api.example/1"]]
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p class=item>0</p>", asks))

    class One(Shop):
        pages = 1
        how = {"timeout": 1.0}

    sim = simulate(One, web)
    assert [send.status for send in sim.of("api.example")] == [429, 200]
    assert sim.of("api.example")[1].time == 2.0
    assert sim.items[0]["items"] == ["0"]
    (backed_off,) = [report.scope for report in sim.report if report.triggers]
    assert backed_off == "api.example"


def test_the_soft_block_detector_does_not_see_the_requests_of_a_page() -> None:
    seen: list[str] = []

    def detect(response: Response) -> bool:
        seen.append(response.url)
        return False

    simulate(Shop, shop(), {"SOFT_BLOCK_DETECTOR": detect})
    assert seen.count(f"{A}/0") == 1
    assert f"{A}/api/0" not in seen


def test_blocked_kinds_and_third_parties_are_not_sent() -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_host("api.a.example")
    web.add_host("cdn.example")
    asks = [["/a.png", "/b.woff2", "/app.js", "http://api.a.example/x", f"{CDN}/lib.js"]]
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p class=item>0</p>", asks))

    class One(Shop):
        pages = 1
        how = True

    sim = simulate(One, web, {"BROWSER_THIRD_PARTY": "none"})
    assert {send.url for send in sim.sends} == {f"{A}/0", f"{A}/app.js", "http://api.a.example/x"}
    assert sim.stats["browser/refused/third_party"] == 1
    sim = simulate(One, web, {"BROWSER_THIRD_PARTY": ["cdn.example"], "BROWSER_REQUESTS_LIMIT": 2})
    assert sim.stats["browser/refused/requests_limit"] == 1


@pytest.mark.parametrize(("domain", "host"), [(".CDN.example", "cdn.example"), ("b\u00fccher.example",) * 2])
def test_the_domains_of_a_page_are_compared_in_normal_form(domain: str, host: str) -> None:
    web = SimulatedWeb()
    home = Request(f"http://{host}/").url
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p class=item>0</p>", [[f"{home}lib.js"]]))
    web.add_page(f"http://{host}/", body="<p></p>", rendered="<p class=item>other</p>")
    web.add_page(f"http://{host}/lib.js", body="js", headers=SCRIPT)

    class Goes(Shop):
        pages = 1
        allowed_domains = ["a.example", domain]

        async def load_all(self, page: Any) -> None:
            await page.goto(home)

    sim = simulate(Goes, web, {"BROWSER_THIRD_PARTY": [domain]})
    assert {send.url for send in sim.sends} == {f"{A}/0", f"{home}lib.js", home}


def test_cookies_of_sub_requests_are_stored_and_a_page_gets_the_cookies_of_its_jar() -> None:
    web = SimulatedWeb()
    seen: list[str] = []

    def respond(request: Request) -> SimulatedResponse:
        seen.append(f"{request.url.rpartition('/')[2]} {request.headers.get('Cookie', '')}")
        return SimulatedResponse(200, "x", {"Set-Cookie": "api=1; HttpOnly; SameSite=Lax"})

    web.add_host("a.example", handler=respond)
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p class=item>0</p>", [["/api"]]))

    class Twice(Shop):
        pages = 1
        how = True

        def parse(self, response: Response) -> Any:
            yield Request(f"{A}/next", self.last)

        def last(self, response: Response) -> Any:
            yield {}

    simulate(Twice, web)
    assert seen == ["api ", "next api=1"]


def test_a_page_that_does_not_merge_cookies_gets_and_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    openings: list[tuple[int, str | None]] = []
    opened = SimulatedWeb.open_page

    def noted(web: SimulatedWeb, opening: Opening, **options: Any) -> Any:
        openings.append((len(opening.cookies), opening.session))
        return opened(web, opening, **options)

    async def cookies(page: Any) -> list[dict[str, Any]]:
        await trio.lowlevel.checkpoint()
        return [{"name": "script", "value": "1", "domain": "a.example", "path": "/"}]

    monkeypatch.setattr(SimulatedWeb, "open_page", noted)
    monkeypatch.setattr(SimulatedPage, "cookies", cookies)
    web = SimulatedWeb()

    def respond(request: Request) -> SimulatedResponse:
        seen.append(f"{request.url.rpartition('/')[2]} {request.headers.get('Cookie', '')}")
        return SimulatedResponse(200, "x", {"Set-Cookie": f"{request.url.rpartition('/')[2]}=1"})

    web.add_host("a.example", handler=respond)
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p>0</p>", [["/api"]]))

    class Own(Shop):
        async def start(self) -> Any:
            yield Request(f"{A}/login", meta={"session": "anna"})

        def parse(self, response: Response) -> Any:
            meta = {"session": "anna", "browser": True, "dont_merge_cookies": True}
            yield Request(f"{A}/0", self.rendered, meta=meta)

        def rendered(self, response: Response) -> Any:
            yield Request(f"{A}/last", self.last, meta={"session": "anna"})

        def last(self, response: Response) -> Any:
            yield {}

    simulate(Own, web)
    assert openings == [(0, None)]
    assert seen == ["login ", "api ", "last login=1"]


async def test_a_drain_returns_a_page_whose_request_waits_and_the_job_renders_it_later(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    class Stops(Shop):
        async def load_all(self, page: Any) -> None:
            if not (tmp_path / "stopped").exists():
                (tmp_path / "stopped").touch()
                self.crawl.shutdown()
            await page.click(".more")

    web = shop()
    settings = {"JOB_DIR": str(tmp_path / "job"), "BROWSER_PAGES": 1}
    first = await web.crawl(Stops, settings)
    assert first.reason == "shutdown"
    assert first.items == []
    assert first.elapsed < 4.0
    second = await web.crawl(Stops, settings)
    assert [item["items"] for item in second.items] == [[str(n), "more"] for n in range(3)]


async def test_a_cancelled_crawl_closes_its_pages_and_a_job_renders_them_later(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    web = shop()
    settings = {"JOB_DIR": str(tmp_path / "job")}
    with trio.move_on_after(2.5):
        await web.crawl(Shop, settings)
    sim = await web.crawl(Shop, settings)
    assert [item["items"] for item in sim.items] == [[str(n), "more"] for n in range(3)]


def test_a_page_that_waits_for_a_tab_says_so() -> None:
    web = SimulatedWeb()
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p>0</p>", seconds=50.0))
    words: list[str] = []

    class Asks(Shop):
        how = True

        async def start(self) -> Any:
            yield Request(f"{A}/0", meta={"browser": True})
            yield Request("http://b.example/", meta={"browser": True})

    async def look(crawl: Any) -> None:
        await trio.sleep(10.0)
        words.append(str(crawl.why("browser")))
        crawl.shutdown()

    web.add_page("http://b.example/", body="<p></p>", rendered="<p>1</p>")
    simulate(Asks, web, {"BROWSER_PAGES": 1, "WATCHERS": {look: 1}})
    assert "1 of 1 tabs are in use (BROWSER_PAGES)" in words[0]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"wait": ".item"}, "unknown key 'wait'; the keys are wait_for"),
        ({"run": "nothing"}, "run names 'nothing', and the spider has no such method"),
        ({"run": "parse"}, "run names 'parse', which must be an async method"),
        ({"run": "__class__"}, "run names '__class__', and the spider has no such method"),
        ({"run": "crawl"}, "run names 'crawl', and the spider has no such method"),
        ({"timeout": -1.0}, "timeout"),
        ({"wait_for": "p["}, "wait_for is not a valid CSS selector: 'p['"),
        ({"wait_for": "//div"}, "wait_for is not a valid CSS selector: '//div'"),
        ({"block": ["pictures"]}, "block"),
        ("firefox", "meta browser is reserved for rendered pages: rename your own key, or use True or a trawl.Page"),
    ],
)
def test_a_wrong_page_is_refused_when_it_is_scheduled(how: Any, words: str, caplog: pytest.LogCaptureFixture) -> None:
    wrong = how

    class Wrong(Shop):
        pages = 1
        how = wrong

    sim = simulate(Wrong, shop(1), errors="collect")
    assert sim.sends == ()
    assert words in caplog.text
    assert any(record.levelno == logging.ERROR for record in caplog.records)


@pytest.mark.parametrize("empty", [{}, trawl.Page()])
def test_a_page_without_keys_is_rendered(empty: Any) -> None:
    class One(Shop):
        pages = 1
        how = empty

        def parse(self, response: Response) -> Any:
            yield {"flags": response.flags, "how": response.meta["browser"]}

    sim = simulate(One, shop(1))
    assert sim.items == [{"flags": ["browser"], "how": True}]
    assert sim.stats["browser/page_count"] == 1


def test_a_method_in_run_is_stored_by_its_name() -> None:
    class ByMethod(Shop):
        async def start(self) -> Any:
            yield Request(f"{A}/0", meta={"browser": trawl.Page(wait_for=".item", run=self.load_all)})

        def parse(self, response: Response) -> Any:
            yield response.meta["browser"]

    assert simulate(ByMethod, shop(1)).items == [{"wait_for": ".item", "run": "load_all"}]


def test_a_page_without_a_description_ends_the_simulation_with_its_name() -> None:
    web = SimulatedWeb()
    web.add_page(f"{A}/0", body="<p>skeleton</p>")

    class One(Shop):
        pages = 1
        how = True

    with pytest.raises(LookupError, match=r"no rendered page for http://a\.example/0"):
        simulate(One, web)


@pytest.mark.parametrize(
    ("action", "words", "error", "sends"),
    [
        ("wait_for", "SyntaxError: '.[' is not a valid selector.", "IgnoreRequest", 1),
        ("wait_for", "TypeError: querySelector is not a function", "PageCrashed", 2),
        ("html", "TypeError: XMLSerializer is not a constructor", "PageCrashed", 2),
    ],
)
def test_a_script_that_the_page_makes_fail_is_an_error_of_its_page_only(
    monkeypatch: pytest.MonkeyPatch, action: str, words: str, error: str, sends: int
) -> None:
    async def fails(page: Any, *args: Any) -> None:
        await trio.lowlevel.checkpoint()
        raise ScriptFailed(f"a script failed in the page: {words}")

    monkeypatch.setattr(SimulatedPage, action, fails)

    class One(Shop):
        pages = 1
        how = {"wait_for": ":is(["} if action == "wait_for" else True

    sim = simulate(One, shop(1), {"RETRY_TIMES": 1, "BROWSER_SHARE": 0}, errors="collect")
    assert [item["error"] for item in sim.items] == [error]
    assert len([send for send in sim.sends if send.url == f"{A}/0"]) == sends
    assert not sim.errors


def test_a_page_that_was_not_ready_and_whose_html_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(page: Any) -> str:
        await trio.lowlevel.checkpoint()
        raise ScriptFailed("a script failed in the page: TypeError")

    monkeypatch.setattr(SimulatedPage, "html", fails)

    class One(Shop):
        pages = 1
        how = {"wait_for": ".never", "timeout": 1.0}

    sim = simulate(One, shop(1), {"RETRY_TIMES": 0})
    assert [item["error"] for item in sim.items] == ["PageNotReady"]


def test_a_failed_action_is_an_error_of_its_page_only() -> None:
    class Fails(Shop):
        async def load_all(self, page: Any) -> None:
            if (await page.url()).endswith("/1"):
                raise KeyError("mine")
            await page.click(".more")

    sim = simulate(Fails, shop(), errors="collect")
    assert [item.get("error") for item in sim.items] == [None, "IgnoreRequest", None]
    assert sim.stats["spider_exceptions"] == 1
    assert [type(error) for error in sim.errors] == [KeyError]


def test_close_spider_in_an_action_ends_the_crawl() -> None:
    class Closes(Shop):
        async def load_all(self, page: Any) -> None:
            raise trawl.CloseSpider("enough")

    assert simulate(Closes, shop()).reason == "enough"


def test_a_page_may_not_navigate_to_another_site_than_the_allowed_domains() -> None:
    web = shop(1)
    web.add_page("http://other.example/", body="<p></p>", rendered="<p class=item>other</p>")

    class Leaves(Shop):
        pages = 1
        allowed_domains = ["a.example"]

        async def load_all(self, page: Any) -> None:
            await page.goto("http://other.example/")

    sim = simulate(Leaves, web, {"RETRY_TIMES": 0}, errors="collect")
    assert sim.stats["browser/refused/offsite_filtered"] == 1
    assert not sim.of("other.example")


def test_the_status_shows_the_open_pages_and_what_each_waits_for() -> None:
    web = SimulatedWeb()
    web.add_host("a.example", latency=1.0)
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p>0</p>", [["/api/0", "/api/1"]], 20.0))
    found: list[Any] = []

    async def look(crawl: Any) -> None:
        for at in (1.5, 3.5, 10.0, 40.0):
            await trio.sleep_until(crawl.started_at + at)
            found.append(crawl.status().browser)

    class One(Shop):
        pages = 1
        how = True

        async def start(self) -> Any:
            with self.crawl.stay_open():
                async for request in super().start():
                    yield request
                await trio.sleep(45.0)

    simulate(One, web, {"DOWNLOAD_DELAY": 3.0, "WATCHERS": {look: 1}})
    held, waiting, running, after = found
    assert held.pages == [
        f"{A}/0: open for 0 s, waits for {A}/api/0 (a.example delay 1.5 s (configuration)) and 1 more"
    ]
    assert (waiting.open, waiting.tabs, waiting.rendered) == (1, 4, 0)
    assert waiting.pages == [f"{A}/0: open for 2 s, waits for {A}/api/0 (in flight) and 1 more"]
    assert running.pages == [f"{A}/0: open for 8 s, runs its scripts"]  # as of the latest second
    assert (after.open, after.rendered, after.requests, after.pages) == (0, 1, 2, [])


def test_a_callback_renders_a_page_only_if_it_has_to_and_sends_nothing_twice() -> None:
    web = SimulatedWeb()
    web.add_page(f"{A}/0", body="<p class=price>1</p>")
    web.add_page(f"{A}/1", body="<p></p>", rendered=Rendered("<p class=price>2</p>", [["/api"]]))

    class Prices(trawl.Spider):
        name = "prices"
        start_urls = (f"{A}/0", f"{A}/1")

        async def parse(self, response: Response) -> Any:
            if not response.css(".price"):
                response = await self.crawl.render(response, wait_for=".price")
            yield {"price": response.css(".price::text").get(), "flags": response.flags}

    sim = simulate(Prices, web, EXACT)
    assert sim.items == [{"price": "1", "flags": []}, {"price": "2", "flags": ["browser"]}]
    assert [send.url for send in sim.sends] == [f"{A}/0", f"{A}/1", f"{A}/api"]


def test_a_page_that_is_held_open_for_a_block() -> None:
    seen: list[str] = []

    class Holds(trawl.Spider):
        name = "holds"
        start_urls = (f"{A}/0",)

        async def parse(self, response: Response) -> Any:
            async with self.crawl.open_page(response, session="anna") as page:
                await page.click(".more")
                yield {"html": await page.html()}
            for wrong in ({"wait": 1}, {"run": "nothing"}):
                with pytest.raises(ValueError, match="meta browser"):
                    await self.crawl.render(response, **wrong)
            with pytest.raises(ValueError, match="is not a page that a browser can open"):
                await self.crawl.render(Response(f"{A}/x", body=b"%PDF-", headers={"Content-Type": "application/pdf"}))
            with pytest.raises(trawl.errors.PageNotReady):
                await self.crawl.render(response, wait_for=".never", timeout=1.0)
            with pytest.raises(KeyError, match="mine"):
                await self.crawl.render(response, run=self.act)
            seen.append("all")

        async def act(self, page: Any) -> None:
            raise KeyError("mine")

    (item,) = simulate(Holds, shop(1), EXACT, errors="collect").items
    assert "more" in item["html"]
    assert seen == ["all"]


def test_a_rendered_page_may_not_be_larger_than_a_response() -> None:
    web = SimulatedWeb()
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered(f"<p>{'x' * 200}</p>"))

    class One(Shop):
        pages = 1
        how = True

    sim = simulate(One, web, {"DOWNLOAD_MAXSIZE": 100, "RETRY_TIMES": 2})
    assert [item["error"] for item in sim.items] == ["BodyTooLarge"]
    assert len(sim.sends) == 1


def test_credentials_and_headers_of_the_session_are_sent_with_the_requests_of_a_page() -> None:
    web = SimulatedWeb()
    seen: dict[str, Any] = {}

    def respond(request: Request) -> SimulatedResponse:
        seen[request.url] = (
            request.headers.get("Authorization"),
            request.headers.get("X-App"),
            request.meta.get("proxy"),
        )
        return SimulatedResponse(200, "x")

    for host in ("a.example", "cdn.example"):
        web.add_host(host, handler=respond)
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p>0</p>", [["/api", f"{CDN}/lib.js"]]))

    class One(Shop):
        async def start(self) -> Any:
            yield Request(f"{A}/0", meta={"browser": True, "session": "anna"})

    settings = {
        "HTTP_AUTH": {A: {"token": "secret"}},
        "SESSIONS": {"anna": {"proxy": "http://proxy.example:3128", "headers": {"X-App": "1"}}},
    }
    simulate(One, web, settings)
    assert seen == {
        f"{A}/api": ("Bearer secret", "1", "http://proxy.example:3128"),
        f"{CDN}/lib.js": (None, "1", "http://proxy.example:3128"),
    }


async def test_a_browser_does_not_run_on_a_virtual_clock(autojump_clock: MockClock) -> None:
    with pytest.raises(RuntimeError, match="a browser needs a real clock: the test must not use the fixture autojump"):
        await shop().crawl_in_browser(Shop)


def test_a_simulated_page_has_the_methods_of_a_real_page() -> None:
    for name, method in inspect.getmembers(BrowserPage, inspect.isfunction):
        if not name.startswith("_") and name != "call":
            names = list(inspect.signature(method).parameters)
            assert list(inspect.signature(getattr(SimulatedPage, name)).parameters) == names, name


def test_a_frame_of_a_simulated_page_takes_actions() -> None:
    web = SimulatedWeb()
    frame = Rendered("<input id=user><a class=go>go</a>", on={"click .go": Rendered("<p>in</p>", [["/api"]])})
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<iframe></iframe>", frames={"iframe": frame}))
    found: list[Any] = []

    class Acts(Shop):
        pages = 1
        how = {"run": "load_all"}

        async def load_all(self, page: Any) -> None:
            await page.frame("iframe").fill("#user", "anna")
            await page.frame("iframe").click(".go")
            found.append(await page.frame("iframe").text("p"))
            page.frame("frame")

    (error,) = simulate(Acts, web, errors="collect").errors
    assert "has no frame 'frame': name it in Rendered(frames=...)" in str(error)
    assert found == ["in"]


def test_a_request_of_a_page_that_fails_is_counted_and_the_page_continues() -> None:
    """Row: a sub-request fails or is refused."""
    web = SimulatedWeb()
    web.add_host("gone.example", connect_error=trawl.errors.ConnectFailed)
    asks = [["http://gone.example/lib.js", "http://unknown.example/"], ["/api"]]
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p class=item>0</p>", asks))
    rows: list[tuple[str, Any, bool]] = []

    class One(Shop):
        pages = 1
        how = True

        def parse(self, response: Response) -> Any:
            rows.extend((each.url, each.status, bool(each.refused)) for each in response.page.requests)

    sim = simulate(One, web, {"RETRY_TIMES": 0}, errors="collect")
    assert sorted(rows, key=str) == [
        (f"{A}/api", 200, False),
        ("http://gone.example/lib.js", None, True),
        ("http://unknown.example/", None, True),
    ]
    assert sim.stats["browser/refused/ConnectFailed"] == sim.stats["browser/refused/NameNotResolved"] == 1
    assert sim.stats["browser/page_count"] == 1


def test_a_page_waits_for_two_attempts_at_the_robots_txt_of_another_host_at_most() -> None:
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_host("busy.example", robots=SimulatedResponse(503, ""))
    web.add_page("http://busy.example/lib.js", body="js")
    for n in range(3):
        page = Rendered("<p class=item>0</p>", [["http://busy.example/lib.js"], ["/api"]])
        web.add_page(f"{A}/{n}", body="<p></p>", rendered=page)
    waits: list[tuple[str, float]] = []

    class Refused(Shop):
        how = True

        def parse(self, response: Response) -> Any:
            first = response.page.requests[0]
            waits.append((first.refused, first.ended_at - first.started_at))

    simulate(Refused, web, {"BROWSER_PAGES": 2, "ROBOTSTXT_OBEY": True})
    assert {words for words, _ in waits} == {"robots.txt could not be read"}
    assert [seconds for _, seconds in waits] == pytest.approx([10.0, 9.0, 0.0])  # until the second attempt


def test_the_201st_request_of_a_page_is_refused() -> None:
    """Row: endless requests."""
    web = SimulatedWeb()
    web.add_host("a.example")
    asks = [[f"/api/{n}"] for n in range(203)]
    web.add_page(f"{A}/0", body="<p></p>", rendered=Rendered("<p class=item>0</p>", asks))

    rows: list[Any] = []

    class One(Shop):
        pages = 1
        how = True

        def parse(self, response: Response) -> Any:
            rows.extend(response.page.requests)

    sim = simulate(One, web)
    assert len(sim.sends) == 1 + 200
    assert [(each.url, each.refused) for each in rows if each.refused] == [(f"{A}/api/200", "requests_limit")]
    assert sim.stats["browser/refused/requests_limit"] == 3


def test_a_cancelled_fetch_of_a_page_closes_it_and_its_requests_are_not_sent() -> None:
    """Row: a request is cancelled."""

    class Cancels(trawl.Spider):
        name = "cancels"
        custom_settings = {**EXACT, "BROWSER_PAGES": 1}
        start_urls = (f"{A}/start",)

        async def parse(self, response: Response) -> Any:
            with trio.move_on_after(2.2) as scope:
                await self.fetch(Request(f"{A}/0", meta={"browser": True}))
            yield {"cancelled": scope.cancelled_caught}
            page = await self.fetch(Request(f"{A}/1", meta={"browser": True}))
            yield {"flags": page.flags}

    web = shop()
    web.add_page(f"{A}/start", body="<p></p>")
    sim = simulate(Cancels, web)
    assert sim.items == [{"cancelled": True}, {"flags": ["browser"]}]
    assert f"{A}/api/0" not in {send.url for send in sim.sends}


def test_a_page_in_the_cache_is_rendered_and_nothing_is_sent(tmp_path: Path) -> None:
    class Twice(Shop):
        pages = 1

        def parse(self, response: Response) -> Any:
            yield {"items": response.css(".item::text").getall(), "cached": "cached" in response.flags}
            if not response.meta.get("again"):
                yield Request(response.url, meta={"browser": self.how, "again": True}, dont_filter=True)

    web = shop(1)
    settings = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path), "BROWSER_SHARE": 0}
    sim = simulate(Twice, web, settings)
    assert sim.items == [{"items": ["0", "more"], "cached": cached} for cached in (False, True)]
    assert len(sim.sends) == 5


@pytest.mark.parametrize("seed", [0, 1])
def test_with_the_default_settings_no_two_sends_to_a_host_are_closer_than_its_jittered_delay(seed: int) -> None:
    class Default(Shop):
        custom_settings = {"ROBOTSTXT_OBEY": True}

    sim = simulate(Default, shop(), {"BROWSER_SHARE": 0}, seed=seed)
    assert [item["items"] for item in sorted(sim.items, key=lambda item: item["url"])] == [
        [str(n), "more"] for n in range(3)
    ]
    for host in ("a.example", "cdn.example"):
        times = [send.time for send in sim.of(host)]
        assert min(later - earlier for earlier, later in pairwise(times)) >= 0.5 - 1e-6
    assert simulate(Default, shop(), {"BROWSER_SHARE": 0}, seed=seed).sends == sim.sends


def test_a_callback_that_holds_the_only_tab_may_open_more_pages() -> None:
    class Holds(trawl.Spider):
        name = "holds"
        custom_settings = {**EXACT, "BROWSER_PAGES": 1}
        start_urls = (f"{A}/0",)

        async def parse(self, response: Response) -> Any:
            other = await self.fetch(Request(f"{A}/1"))
            async with self.crawl.open_page(response) as first, self.crawl.open_page(other) as second:
                rendered = await self.crawl.render(response)
                yield {"urls": [await first.url(), await second.url(), rendered.url]}

    assert simulate(Holds, shop(3)).items == [{"urls": [f"{A}/0", f"{A}/1", f"{A}/0"]}]


class Holds(trawl.Spider):
    """Opens two pages in each callback, and fetches two more meanwhile."""

    name = "holds"
    custom_settings = {**EXACT, "DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0, "BROWSER_PAGES": 2}

    async def start(self) -> Any:
        for n in range(3):
            yield Request(f"{A}/{n}", self.hold)
        for n in range(3, 6):  # they wait for tabs in front of the fetches
            yield Request(f"{A}/{n}", meta={"browser": True})

    async def hold(self, response: Response) -> Any:
        found: list[str | None] = []

        async def fetch(n: int) -> None:
            page = await self.fetch(Request(f"{A}/{n}", meta={"browser": {"run": "act"}}, dont_filter=True))
            found.append(page.css(".item::text").get())

        async with self.crawl.open_page(response), self.crawl.open_page(response), trio.open_nursery() as nursery:
            nursery.start_soon(fetch, 6)
            nursery.start_soon(fetch, 7)
        yield {"found": sorted(map(str, found))}

    async def act(self, page: Any) -> None:
        await self.fetch(Request(f"{A}/8", meta={"browser": True}, dont_filter=True))

    def parse(self, response: Response) -> Any:
        yield {"flags": response.flags}


@pytest.mark.parametrize("extra", [{}, {"DOWNLOADER_MIDDLEWARES": {passing: 560}}])
@pytest.mark.parametrize("tabs", [1, 2, 6])
def test_a_task_that_holds_all_tabs_may_fetch_further_pages(tabs: int, extra: Mapping[str, Any]) -> None:
    sim = simulate(Holds, shop(9), {"BROWSER_PAGES": tabs, **extra})
    assert sorted(sim.items, key=str) == [{"flags": ["browser"]}] * 3 + [{"found": ["6", "7"]}] * 3
    assert sim.stats["browser/page_count"] == 15


def test_the_fetches_of_a_task_that_holds_tabs_get_one_more_tab_at_a_time() -> None:
    opened: list[int] = []

    class Watched(Holds):
        async def act(self, page: Any) -> None:
            opened.append(self.crawl.status().browser.open)
            await trio.sleep(10.0)

    simulate(Watched, shop(9), {"BROWSER_PAGES": 1})
    assert opened == [3] * 6  # with the two open pages of a callback


@pytest.mark.parametrize("is_in_flight", [False, True])
def test_a_copy_of_a_request_that_got_another_tab_waits_for_a_tab(is_in_flight: bool) -> None:
    opened: list[int] = []
    fetched: list[Request] = []

    class Copies(Holds):
        async def start(self) -> Any:
            first = await self.fetch(Request(f"{A}/0"))
            async with self.crawl.open_page(first):
                page = await self.fetch(Request(f"{A}/1", meta={"browser": {"run": "act"}}))
            assert page.request is not None
            source = fetched[0] if is_in_flight else page.request
            for n in range(2, 6):
                yield source.replace(url=f"{A}/{n}")

        async def act(self, page: Any) -> None:
            opened.append(self.crawl.status().browser.open)
            await trio.sleep(10.0)

    def copying(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            if request.url == f"{A}/1":
                fetched.append(request.copy())
            return await fetch(request)

        return send

    simulate(Copies, shop(6), {"BROWSER_PAGES": 1, "DOWNLOADER_MIDDLEWARES": {copying: 300}})
    assert sorted(opened) == [1, 1, 1, 1, 2]  # 2 during the fetch


@pytest.mark.parametrize(("callback", "beside"), [("hold", 1), ("queue", 2)])
def test_a_task_that_outlives_its_open_page_gets_no_more_tabs_than_others(callback: str, beside: int) -> None:
    opened: list[tuple[str, int]] = []

    class Outlives(Holds):
        async def start(self) -> Any:
            yield Request(f"{A}/0", getattr(self, callback))
            for n in range(1, 4):
                yield Request(f"{A}/{n}", meta={"browser": {"run": "act"}})

        async def hold(self, response: Response) -> Any:
            async with (
                trio.open_nursery() as outer,
                self.crawl.open_page(response),
                trio.open_nursery() as inner,
                self.crawl.open_page(response),
            ):
                inner.start_soon(self.later, 4, 10.0)  # the outer page waits for this task
                outer.start_soon(self.later, 5, 60.0)  # both pages are closed by then
            yield {}

        async def queue(self, response: Response) -> Any:
            async with trio.open_nursery() as outer, self.crawl.open_page(response):
                outer.start_soon(self.later, 4, 10.0)
                outer.start_soon(self.later, 5, 11.0)  # waits for 4, and the page is closed meanwhile
                await trio.sleep(12.0)
            yield {}

        async def later(self, n: int, delay: float) -> None:
            await trio.sleep(delay)
            await self.fetch(Request(f"{A}/{n}", meta={"browser": {"run": "act"}}))

        async def act(self, page: Any) -> None:
            opened.append(((await page.url())[-1], self.crawl.status().browser.open))
            await trio.sleep(20.0)

    simulate(Outlives, shop(6), {"BROWSER_PAGES": 1})
    assert sorted(opened) == [("1", beside), ("2", 1), ("3", 1), ("4", 2), ("5", 1)]


def test_a_manager_may_fetch_a_page_to_name_the_scopes_of_a_page_that_a_task_with_a_tab_fetches() -> None:
    crawls: list[Any] = []

    class Asks(ThrottlingManager):
        async def get_scopes(self, request: Request) -> Any:
            if request.url == f"{A}/1":
                await crawls[0].fetch(Request(f"{A}/2", meta={"browser": True}))
            return await super().get_scopes(request)

    class Fetches(trawl.Spider):
        name = "fetches"
        custom_settings = {**EXACT, "BROWSER_PAGES": 1, "THROTTLING_MANAGER": Asks}
        start_urls = (f"{A}/0",)

        async def parse(self, response: Response) -> Any:
            crawls.append(self.crawl)
            async with self.crawl.open_page(response):
                page = await self.fetch(Request(f"{A}/1", meta={"browser": True}))
            yield {"item": page.css(".item::text").get()}

    sim = simulate(Fetches, shop(3))
    assert sim.items == [{"item": "1"}]
    assert sim.stats["browser/page_count"] == 2


def test_the_middleware_of_a_page_or_of_its_requests_may_fetch_another_page() -> None:
    crawls: list[Any] = []

    class Starts(Shop):
        pages = 2

        async def start(self) -> Any:
            crawls.append(self.crawl)
            async for request in super().start():
                yield request

    def fetching(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            outcome = await fetch(request)
            if request.url in (f"{A}/0", f"{A}/api/1"):  # a page, and a request of a page
                await crawls[0].fetch(Request(f"{A}/2", meta={"browser": True}))
            return outcome

        return send

    sim = simulate(Starts, shop(), {"BROWSER_PAGES": 1, "DOWNLOADER_MIDDLEWARES": {fetching: 300}})
    assert [item["items"] for item in sim.items] == [["0", "more"], ["1", "more"]]
    assert sim.stats["browser/page_count"] == 4
