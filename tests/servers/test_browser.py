"""Pages rendered by a real Chromium over a simulated web. No request leaves the process."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import lxml.html
import pytest
import trio

import trawl
from tests.servers.rendering import TEXT, crawl, processes, profiles, site
from trawl.browser.page import BrowserPage
from trawl.errors import PageCrashed, PageNotReady
from trawl.http import Request, Response
from trawl.testing import SimulatedResponse

pytestmark = pytest.mark.servers

APP = """<!doctype html><html><body><h1></h1><button class=more>more</button><script>
fetch('/api/me').then(r => r.text()).then(t => {
  document.querySelector('h1').textContent = t; document.cookie = 'pref=dark; path=/' });
fetch('/private/x').then(r => r.text(), e => 'refused').then(t => {
  const p = document.createElement('i'); p.textContent = t; document.body.append(p) });
document.querySelector('.more').onclick = async () => {
  const r = await fetch('/api/more', {method: 'POST', body: 'page=2'});
  const p = document.createElement('p'); p.className = 'item'; p.textContent = await r.text();
  document.body.append(p) };
</script></body></html>"""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    assert processes() == []
    assert profiles() == []


def failing(url: str, how: Any = True, **settings: Any) -> type[trawl.Spider]:
    class One(trawl.Spider):
        name = "one"
        custom_settings = settings

        async def start(self) -> Any:
            yield Request(url, meta={"browser": how}, errback=self.failed)

        def failed(self, error: Any) -> Any:
            yield {"error": type(error).__name__, "html": getattr(getattr(error, "response", None), "text", None)}

        def parse(self, response: Response) -> Any:
            yield {"html": response.text, "url": response.url, "status": response.status, "page": response.page}

    return One


@pytest.mark.parametrize("cookie", [{}, {"Cookie": "own=1"}])
async def test_a_moved_spiders_page_is_rendered(cookie: dict[str, str]) -> None:
    def respond(path: str, request: Request) -> Any:
        seen = request.headers.get("Cookie", "")
        fields = {"Content-Type": "text/html", "Set-Cookie": "sid=7; Path=/"}
        return SimulatedResponse(200, f"<body>{seen}<script src=/x.js></script>", fields)

    class Moved(trawl.Spider):
        name = "moved"
        custom_settings = {"SCRAPY_COMPAT": True, "USER_AGENT": "moved"}

        async def start(self) -> Any:
            yield Request("http://a.example/", headers=cookie, meta={"browser": {"run": "act"}})

        async def act(self, page: BrowserPage) -> None:
            await page.settled(0.05)
            await page.goto(lxml.html.fromstring("<a href='http://a.example/2'>2</a>").xpath("//a/@href")[0])
            await page.settled(0.05)

        def parse(self, response: Response) -> Any:
            yield {"url": response.url, "text": response.css("body::text").get()}

    simulation = await crawl(Moved, site(respond))
    assert simulation.errors == ()
    (item,) = simulation.items
    sent = ("sid=7", *cookie.values())
    assert (item["url"], {*item["text"].split("; ")}) == ("http://a.example/2", {*sent})


async def test_a_page_is_rendered_with_its_session_its_cookies_and_the_spiders_actions() -> None:
    def respond(path: str, request: Request) -> Any:
        cookie = request.headers.get("Cookie", "")
        if path == "/login":
            who = request.body.decode()
            return SimulatedResponse(
                200, "in", {"Content-Type": "text/html", "Set-Cookie": f"sid={who}; HttpOnly; Path=/"}
            )
        if path == "/old":
            return SimulatedResponse(302, "", {"Location": "/app"})
        if path == "/app":
            return APP
        if path == "/api/me":
            return SimulatedResponse(200, f"hello {cookie}", TEXT)
        if path == "/api/more":
            return SimulatedResponse(200, f"{request.method} {request.body.decode()}", TEXT)
        return f"plain {cookie}"

    class Shop(trawl.Spider):
        name = "shop"

        async def start(self) -> Any:
            for who in ("anna", "ben"):
                yield Request(
                    "http://a.example/login",
                    self.logged_in,
                    method="POST",
                    body=who,
                    meta={"session": who},
                    dont_filter=True,
                )

        def logged_in(self, response: Response) -> Any:
            who = response.meta["session"]
            page = trawl.Page(run=self.act, screenshot=who == "anna")
            yield Request("http://a.example/old", self.app, meta={"session": who, "browser": page}, dont_filter=True)

        async def act(self, page: Any) -> None:
            await page.click(".more")
            await page.wait_for(".item")

        def app(self, response: Response) -> Any:
            assert response.page is not None
            shot = response.page.screenshot
            yield {
                "url": response.url,
                "status": response.status,
                "h1": response.css("h1::text").get(),
                "item": response.css(".item::text").get(),
                "robots": response.css("i::text").get(),
                "flags": response.flags,
                "redirects": response.meta["redirect_urls"],
                "shot": shot is not None and shot.startswith(b"\x89PNG"),
                "asked": sorted((each.url.rpartition("/")[2], each.status) for each in response.page.requests),
            }
            who = response.meta["session"]
            yield Request("http://a.example/plain", self.plain, meta={"session": who}, dont_filter=True)

        def plain(self, response: Response) -> Any:
            yield {"plain": response.text}

    web = site(respond, robots="User-agent: *\nDisallow: /private/\n")
    result = await crawl(Shop, web)
    assert result.reason == "finished"
    items = result.items or []
    for who in ("anna", "ben"):
        assert {
            "url": "http://a.example/app",
            "status": 200,
            "h1": f"hello sid={who}",
            "item": "POST page=2",
            "robots": "refused",
            "flags": ["browser"],
            "redirects": ["http://a.example/old"],
            "shot": who == "anna",
            "asked": [("me", 200), ("more", 200), ("x", None)],
        } in items
        assert any(
            item.get("plain") in (f"plain sid={who}; pref=dark", f"plain pref=dark; sid={who}") for item in items
        )
    assert result.stats["browser/page_count"] == 2
    assert result.stats["browser/response_count"] == 4
    assert result.stats["response_count"] == 9  # robots.txt; two logins, redirects, apps and plain pages


async def test_a_response_that_is_not_a_page_is_not_rendered() -> None:
    def respond(path: str, request: Request) -> Any:
        if path == "/missing":
            return SimulatedResponse(404, "<p>gone</p>")
        if path == "/file.html":
            return SimulatedResponse(200, "<p>file</p>", {"Content-Disposition": "Attachment; filename=file.html"})
        return SimulatedResponse(200, b"%PDF-1.4", {"Content-Type": "application/pdf"})

    class Files(trawl.Spider):
        name = "files"
        handle_httpstatus_list = ()
        start_urls = ["http://a.example/a.pdf", "http://a.example/missing", "http://a.example/file.html"]

        async def start(self) -> Any:
            for url in self.start_urls:
                yield Request(url, meta={"browser": True}, errback=self.failed)

        def failed(self, error: Any) -> Any:
            yield {"status": error.response.status}

        def parse(self, response: Response) -> Any:
            yield {"body": response.body}

    result = await crawl(Files, site(respond))
    assert sorted(map(str, result.items or [])) == [
        "{'body': b'%PDF-1.4'}",
        "{'body': b'<p>file</p>'}",
        "{'status': 404}",
    ]
    assert "browser/page_count" not in result.stats


NEVER_READY = {
    "a page without the element": "<p>text</p>",
    "a page that navigates forever": "<script>setTimeout(() => location.href = '?' + Math.random(), 5)</script>",
    "a script that never ends": "<p>text</p><script>setTimeout(() => { for (;;); }, 50)</script>",
    "a page that asks forever": "<script>setInterval(() => fetch('/api?' + Math.random()), 5)</script>",
    "dialogs": "<script>setInterval(() => alert('hi'), 5)</script>",
    "pop-ups": "<script>setInterval(() => open('/popup'), 20)</script>",
}


@pytest.mark.parametrize("name", NEVER_READY)
async def test_a_page_that_is_never_ready_ends_with_its_timeout(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    has_html = name == "a page without the element"
    if name != "a script that never ends":
        monkeypatch.setattr("trawl.browser.rendering.LAST_LOOK", 60.0)
    goto = BrowserPage.goto

    async def noted(page: BrowserPage, url: str) -> None:
        opened.append(url)
        await goto(page, url)

    monkeypatch.setattr(BrowserPage, "goto", noted)
    web = site(lambda path, request: NEVER_READY[name] if path.startswith("/page") or "?" in path else "ok")
    how = {"wait_for": ".never", "timeout": 10.0 if has_html else 2.0}
    spider = failing("http://a.example/page", how, BROWSER_REQUESTS_LIMIT=20, ROBOTSTXT_OBEY=False)
    with trio.fail_after(60):
        result = await crawl(spider, web)
    assert [item["error"] for item in result.items or []] == ["PageNotReady"]
    if has_html:
        assert [item["html"] for item in result.items] == ["<html><head></head><body><p>text</p></body></html>"]
    assert result.stats["browser/failed/PageNotReady"] == 1
    assert opened == ["http://a.example/page"]
    assert PageNotReady.is_retryable


async def test_a_page_that_uses_too_much_memory_crashes_alone() -> None:
    bomb = "<script>const all = []; for (;;) all.push(new Array(1e6).fill(Math.random()))</script>"

    class Both(failing("http://a.example/bomb", {"timeout": 60.0})):  # type: ignore[misc]
        async def start(self) -> Any:
            for path in ("bomb", "fine"):
                yield Request(f"http://a.example/{path}", meta={"browser": {"timeout": 60.0}}, errback=self.failed)

    web = site(lambda path, request: bomb if path == "/bomb" else "<p>fine</p>")
    result = await crawl(Both, web, {"BROWSER_MEMORY_MB": 64})
    assert {item.get("error", "fine") for item in result.items or []} == {"PageCrashed", "fine"}
    assert PageCrashed.is_retryable


async def test_a_killed_browser_loses_no_page_and_renders_none_twice() -> None:
    pages = 24

    class Many(trawl.Spider):
        name = "many"

        async def start(self) -> Any:
            for n in range(pages):
                yield Request(f"http://a.example/{n}", meta={"browser": {"wait_for": "h1"}})

        def parse(self, response: Response) -> Any:
            yield {"n": response.css("h1::text").get()}

    asked, killed = 0, 0

    def respond(path: str, request: Request) -> Any:
        nonlocal asked, killed
        if path != "/api":
            return f"<body>{script}</body>"
        asked += 1
        if asked in (5, 12, 19):  # each browser has rendered a page, because at most 4 pages are open
            for pid in processes():
                with suppress(ProcessLookupError):
                    if os.getpgid(pid) == pid:
                        os.killpg(pid, signal.SIGKILL)
                        killed += 1
        return SimulatedResponse(200, "ok", TEXT)

    script = "<script>fetch('/api').then(r => r.text()).then(t => { const h = document.createElement('h1');"
    script += "h.textContent = location.pathname; document.body.append(h) })</script>"
    result = await crawl(Many, site(respond), {"RETRY_TIMES": 5, "RETRY_DELAY": 0.0})
    assert killed == 3
    assert result.reason == "finished"
    assert sorted(item["n"] for item in result.items or []) == sorted(f"/{n}" for n in range(pages))


async def test_a_page_whose_browser_ends_is_rendered_again_from_the_same_response() -> None:
    """Row: the browser ends."""
    asked: list[str] = []

    def respond(path: str, request: Request) -> Any:
        asked.append(path)
        if asked.count("/api") == 1 and path == "/api":
            for pid in processes():
                with suppress(ProcessLookupError):
                    if os.getpgid(pid) == pid:
                        os.killpg(pid, signal.SIGKILL)
        return SimulatedResponse(200, "ok", TEXT) if path == "/api" else "<script>fetch('/api')</script><p>x</p>"

    result = await crawl(failing("http://a.example/page"), site(respond), {"ROBOTSTXT_OBEY": False})
    assert [item["status"] for item in result.items] == [200]
    assert asked == ["/page", "/api", "/api"]


async def test_dialogs_are_answered_pop_ups_closed_and_downloads_denied() -> None:
    """Row: dialogs, pop-ups, downloads."""
    script = """<a id=file download href=/file></a><p></p><script>
    const told = [alert('a'), confirm('b'), prompt('c'), open('/popup') !== null];
    document.querySelector('#file').click();
    onbeforeunload = e => e.preventDefault();
    document.querySelector('p').textContent = JSON.stringify(told)</script>"""

    class Leaves(failing("http://a.example/", {"run": "act"})):  # type: ignore[misc]
        async def act(self, page: Any) -> None:
            self.told = await page.text("p")
            await page.click("p")  # only after an action of the user, a page may ask before it is left
            await page.goto("http://a.example/next")
            await page.settled()

        def parse(self, response: Response) -> Any:
            kind = response.headers["Content-Type"]
            yield {"told": self.told, "url": response.url, "status": response.status, "kind": kind}

    def respond(path: str, request: Request) -> Any:
        if path == "/file":
            return SimulatedResponse(202, b"%PDF-", {"Content-Type": "application/pdf"})
        return (
            script
            if path == "/"
            else "<a download href=/file>x</a><script>document.querySelector('a').click()</script>"
        )

    (item,) = (await crawl(Leaves, site(respond), {"ROBOTSTXT_OBEY": False})).items
    told = item.pop("told")
    assert told == "[null,false,null,true]"
    assert item == {"url": "http://a.example/next", "status": 200, "kind": "text/html; charset=utf-8"}


async def test_a_wait_continues_in_the_document_to_which_a_script_navigates() -> None:
    """Row: a navigation ends a script that we wait for."""

    def respond(path: str, request: Request) -> Any:
        if path == "/":
            return "<script>setTimeout(() => location = 'http://other.example/two', 50)</script>"
        return "<p>soon</p><script>setTimeout(() => document.querySelector('p').className = 'two', 50)</script>"

    web = site(respond, "a.example", "other.example")
    (item,) = (await crawl(failing("http://a.example/", {"wait_for": ".two"}), web)).items
    assert item["url"] == "http://other.example/two"
    assert 'class="two"' in item["html"]


async def test_cookies_that_scripts_set_change_and_remove_reach_the_jar_with_their_attributes() -> None:
    script = """<script>document.cookie = 'gone=; max-age=0; path=/';
    document.cookie = 'kept=2; path=/; max-age=1000; samesite=strict';
    document.cookie = 'own=1; path=/deep'; document.write(document.cookie)</script>"""
    headers = {"Content-Type": "text/html"}

    class Jar(failing("http://a.example/app")):  # type: ignore[misc]
        async def start(self) -> Any:
            cookies = {"gone": "1", "kept": "1", "asked": "1"}
            yield Request("http://a.example/app", meta={"browser": True, "session": "anna"}, cookies=cookies)
            alone = {"browser": True, "dont_merge_cookies": True, "cookiejar": 2}
            yield Request("http://a.example/alone", self.parse_alone, meta=alone, cookies={"asked": "2"})

        def parse(self, response: Response) -> Any:
            kept = {each.name: each for each in self.session("anna").cookies}
            yield {"names": sorted(kept), "kept": kept["kept"], "html": response.text}

        def parse_alone(self, response: Response) -> Any:
            yield {"alone": response.css("body::text").get()}

    def respond(path: str, request: Request) -> Any:
        if path == "/app":
            return SimulatedResponse(200, script, {**headers, "Set-Cookie": "hidden=1; HttpOnly; SameSite=Lax"})
        return SimulatedResponse(200, "<body><script>document.write(document.cookie)</script>", headers)

    items = (await crawl(Jar, site(respond))).items
    (alone,) = [item["alone"] for item in items if "alone" in item]
    assert alone == "asked=2"  # the request's own cookies, and nothing else
    (item,) = [item for item in items if "kept" in item]
    assert item["names"] == ["asked", "hidden", "kept", "own"]
    assert (item["kept"].value, item["kept"].same_site) == ("2", "strict")
    assert item["kept"].expires_utc is not None
    assert "asked=1" in item["html"]
    assert "hidden=1" not in item["html"]


async def test_without_a_chromium_the_crawl_ends_with_one_clear_line(caplog: pytest.LogCaptureFixture) -> None:
    spider = failing("http://a.example/", True, BROWSER_PATH="no-such-chromium")
    result = await crawl(spider, site(lambda path, request: "<p>x</p>"))
    assert result.reason == "browser_failed"
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert lines == ["BROWSER_PATH: 'no-such-chromium' is not a program that can be run"]


async def test_browsers_that_end_at_once_end_the_crawl_with_their_last_output(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Row: the browser ends three times."""
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\necho no libnss3.so >&2\nexit 127\n")
    program.chmod(0o755)
    spider = failing("http://a.example/", True, BROWSER_PATH=str(program))
    result = await crawl(spider, site(lambda path, request: "<p>x</p>"), {"RETRY_TIMES": 5, "RETRY_DELAY": 0.0})
    assert result.reason == "browser_failed"
    assert result.items == []
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert line == f"3 browsers in a row ended before they rendered a page: {program} did not start: no libnss3.so"


async def test_each_navigation_to_another_site_ends() -> None:
    """Row: ``loadEventFired`` does not arrive in 1 of 8 to 15 navigations that change the page's process."""

    class Goes(failing("http://a.example/", {"run": "act", "timeout": 300.0})):  # type: ignore[misc]
        async def act(self, page: Any) -> None:
            for n in range(40):
                host = "other" if n % 2 else "a"
                await page.goto(f"http://{host}.example/{n}")
                assert await page.text("p") == f"/{n}"

    web = site(lambda path, request: f"<p>{path}</p>", "a.example", "other.example")
    (item,) = (await crawl(Goes, web, {"ROBOTSTXT_OBEY": False})).items
    assert item["url"] == "http://other.example/39"


async def test_third_parties_and_blocked_kinds_send_nothing() -> None:
    page = "<img src=/a.png><script src=http://cdn.example/lib.js></script><script src=/own.js></script><p>done</p>"
    seen: list[str] = []

    def respond(path: str, request: Request) -> Any:
        seen.append(request.url)
        return page if path == "/" else SimulatedResponse(200, "", {"Content-Type": "text/javascript"})

    web = site(respond, "a.example", "cdn.example")
    result = await crawl(failing("http://a.example/"), web, {"BROWSER_THIRD_PARTY": "none", "ROBOTSTXT_OBEY": False})
    assert sorted(seen) == ["http://a.example/", "http://a.example/own.js"]
    details = (result.items or [])[0]["page"]
    assert details.blocked == 1
    assert [(each.url, each.refused) for each in details.requests if each.refused] == [
        ("http://cdn.example/lib.js", "third_party")
    ]


@pytest.mark.parametrize(
    ("how", "script", "error"),
    [({"wait_for": "p:not(["}, "", "IgnoreRequest"), (True, "XMLSerializer = 1", "PageCrashed")],
)
async def test_a_script_that_fails_in_a_page_is_an_error_of_the_page(how: Any, script: str, error: str) -> None:
    web = site(lambda path, request: f"<!doctype html><p>x</p><script>{script}</script>")
    result = await crawl(failing("http://a.example/", how), web)
    assert [item["error"] for item in result.items or []] == [error]


async def test_an_action_that_fails_is_an_error_of_the_page(caplog: pytest.LogCaptureFixture) -> None:
    class Acts(failing("http://a.example/", {"run": "act"})):  # type: ignore[misc]
        async def act(self, page: Any) -> None:
            await page.click(".missing")

    result = await crawl(Acts, site(lambda path, request: "<p>x</p>"))
    assert [item["error"] for item in result.items or []] == ["IgnoreRequest"]
    assert result.stats["spider_exceptions"] == 1
    assert any("act of the spider failed" in record.getMessage() for record in caplog.records)


async def test_the_actions_of_a_form() -> None:
    form = """<form onsubmit="return false"><input id=user>
      <select id=kind><option value=a>A<option value=b>B</select></form>
      <div style='height:5000px'></div><p></p><script>
      const p = document.querySelector('p'), say = t => p.textContent += t + ';';
      document.querySelector('#user').addEventListener('input', e => say('input ' + e.target.value));
      document.querySelector('#user').addEventListener('keydown', e => say('key ' + e.key));
      document.querySelector('#kind').addEventListener('change', e => say('kind ' + e.target.value));
      addEventListener('scroll', () => { say('scroll'); p.className = 'scrolled' }, {once: true});
      setTimeout(() => history.pushState({}, '', '/later?x=1'), 100);
      </script>"""

    class Fills(failing("http://a.example/", {"run": "act", "pdf": True})):  # type: ignore[misc]
        async def act(self, page: Any) -> None:
            await page.fill("#user", "anna \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"))
            await page.press("Enter")
            await page.select("#kind", "b")
            await page.scroll()
            await page.wait_for("p.scrolled")
            await page.wait_for_url("*/later?x=*")
            assert await page.has("#user")
            assert await page.evaluate("1 + 1") == 2
            assert await page.evaluate("'\\ud800'") == "\ud800"
            with pytest.raises(RuntimeError, match="boom"):
                await page.evaluate("(() => { throw new Error('boom') })()")
            self.told = await page.text("p")

        def parse(self, response: Response) -> Any:
            yield {"told": self.told, "url": response.url, "pdf": response.page.pdf[:5]}

    (item,) = (await crawl(Fills, site(lambda path, request: form))).items or []
    assert item["told"].split(";")[:3] == ["input anna \U0001f600", "key Enter", "kind b"]
    assert "scroll" in item["told"]
    assert item["url"] == "http://a.example/later?x=1"
    assert item["pdf"] == b"%PDF-"
