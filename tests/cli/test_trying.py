"""``trawl fetch``, ``parse`` and ``shell``: the whole crawl, for one page."""

from __future__ import annotations

import builtins
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fake_crawl import FakeEngine
from tests.cli.simulated import QUICK, WITHOUT_DELAY, crawl_on
from trawl.cli import main
from trawl.cli import shell as asking
from trawl.cli.fetch import exchange_lines
from trawl.http import Request, Response, Times
from trawl.testing import Rendered, SimulatedResponse, SimulatedWeb

UNHEARD = ("-s", "ROBOTSTXT_OBEY=false", "--log-level", "CRITICAL")

SPIDER = """
import trawl

class Quotes(trawl.Spider):
    name = "quotes"
    start_urls = ["https://a.example/never"]
    custom_settings = {"USER_AGENT": "quotes/1"}

    def parse(self, response):
        yield {"title": response.css("title::text").get(), "price": object}
        yield from response.follow_all(css="a", callback=self.parse_next, cb_kwargs={"n": 1})

    async def parse_next(self, response, n=0):
        yield {"next": response.url, "n": n}

    def broken(self, response):
        raise ValueError("no")
"""


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "quotes.py").write_text(SPIDER, "utf-8")


def a_web() -> SimulatedWeb:
    web = SimulatedWeb()
    web.add_host("a.example", robots="User-agent: *\nDisallow: /private")
    web.add_page("https://a.example/", body="<title>Home</title><a href='/next'>on</a>")
    web.add_page("https://a.example/next", body="<title>Next</title>")
    web.add_page("https://a.example/gone", body="gone", status=404)
    headers = {"Location": "https://b.example/", "X-Odd": "a"}
    web.add_host("c.example", handler=lambda request: SimulatedResponse(status=301, headers=headers))
    web.add_page("https://b.example/", body="there\x1b[31m")
    return web


def run(*words: str) -> int:
    return main([*words, *QUICK], crawl_with=crawl_on(a_web()))


def test_the_body_goes_to_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("fetch", "https://a.example/next") == 0
    assert capfdbinary.readouterr() == (b"<title>Next</title>", b"")


def test_headers_redirects_and_what_made_it_wait_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("fetch", "https://c.example/", "--headers", "--spider", "quotes.py") == 0
    lines = capfd.readouterr().out.splitlines()
    assert "* 301: https://c.example/ -> https://b.example/" in lines
    assert "> GET https://b.example/" in lines
    assert "> User-Agent: quotes/1" in lines
    assert "< 200" in lines
    assert lines[-1].startswith("* ")


def test_c12_where_the_time_of_a_fetch_went_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    response = Response("http://a.example/", request=Request("http://a.example/"))
    response.times = Times(throttled=2.0, connecting=0.25, fetching=0.02)
    assert "* throttled 2.0 s, connecting 0.2 s, fetching 20 ms" in list(exchange_lines(response, []))
    assert run("fetch", "https://b.example/", "--headers") == 0
    shown = [line for line in capfd.readouterr().out.splitlines() if line.startswith("* ")]
    assert len(shown) == 3  # how much it was, where its time went, and what made it wait


def test_a_redirect_is_not_followed_where_that_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("fetch", "https://c.example/", "--headers", "--no-redirect") == 0
    assert "< Location: https://b.example/" in capfd.readouterr().out.splitlines()


@pytest.mark.parametrize("command", ["fetch", "parse"])
def test_a_setting_without_effect_is_told_once(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(command, "https://a.example/", "--spider", "quotes.py", "-s", "TELNETCONSOLE_ENABLED=1") == 0
    assert capfd.readouterr().err.count("TELNETCONSOLE_ENABLED (in -s) is Scrapy's and has no effect") == 1


def test_robots_txt_holds(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("fetch", "https://a.example/private") == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "robots" in captured.err
    assert run("fetch", "https://a.example/private", "-s", "ROBOTSTXT_OBEY=false") == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["fetch", "nonsense"], 2, "nonsense"),
        (["fetch", "https://nowhere.example/", *UNHEARD], 1, "nowhere.example"),
        (["fetch", "https://a.example/", "--spider", "none.py"], 2, "no such file"),
        (["shell", "none.html"], 2, "trawl: none.html: no such file"),
        (["parse", "https://a.example/", "--spider", "quotes.py", "--callback", "parse_nxt"], 2, "parse_next?"),
        (["parse", "https://a.example/", "--spider", "quotes.py", "--meta", "[1]"], 2, "--meta takes a JSON object"),
        (["shell", "https://nowhere.example/", "-c", "1", *UNHEARD], 1, "nowhere.example"),
        (["shell", "-c", "1 +"], 2, "-c:"),
        (["shell", "-c", "rspns.status"], 1, "trawl: -c: NameError: name 'rspns' is not defined"),
        (["shell", "--spider", "quotes.py", "-c", "spider.broken(1)"], 1, "-c: quotes.py, line 17: ValueError: no"),
        (["parse", "https://a.example/gone", "--spider", "quotes.py"], 1, "trawl: answered 404, which is not in"),
        (["shell", "--spider", "quotes.py", "-a", "x=1", "-s", "DOWNLOAD_DELEY=1"], 2, "DOWNLOAD_DELAY?"),
    ],
)
def test_what_is_wrong_is_one_line(words: list[str], status: int, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == status
    captured = capfd.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("obeys", ["true", "false"])
@pytest.mark.parametrize("words", [["fetch"], ["shell", "-c", "1"], ["parse", "--spider", "quotes.py"]])
def test_a_host_that_can_not_be_connected_to_is_told_of_at_the_first_try(
    words: list[str], obeys: str, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = ("-s", f"ROBOTSTXT_OBEY={obeys}", "-s", "DOWNLOAD_DELAY=0", "--log-level", "DEBUG")
    command = [*words, "https://nowhere.example/", *settings]
    assert main(command, crawl_with=crawl_on(a_web())) == 1
    said = capfd.readouterr().err
    assert "GET https://nowhere.example/: " in said
    assert "no host of the simulated web is named 'nowhere.example'" in said
    assert "asking again" not in said
    assert "try 1 of it failed" not in said


def test_who_sets_how_often_it_is_tried_is_believed(tmp_path: Path) -> None:
    engine = FakeEngine()
    main(["fetch", "https://a.example/"], crawl_with=engine)
    assert engine.settings is not None
    assert (engine.settings["ROBOTSTXT_RETRY_TIMES"], engine.settings["DOWNLOAD_CONNECT_TIMEOUT"]) == (0, 10.0)
    (tmp_path / "pyproject.toml").write_text("[tool.trawl]\nROBOTSTXT_RETRY_TIMES = 1\n", "utf-8")
    main(["fetch", "https://a.example/", "-s", "DOWNLOAD_CONNECT_TIMEOUT=20"], crawl_with=engine)
    assert (engine.settings["ROBOTSTXT_RETRY_TIMES"], engine.settings["DOWNLOAD_CONNECT_TIMEOUT"]) == (0, 20.0)
    main(["fetch", "https://a.example/", "-s", "ROBOTSTXT_RETRY_TIMES=2"], crawl_with=engine)
    assert (engine.settings["ROBOTSTXT_RETRY_TIMES"], engine.settings["RETRY_ENABLED"]) == (2, False)
    main(["fetch", "https://a.example/", "--wait"], crawl_with=engine)
    assert (engine.settings["ROBOTSTXT_RETRY_TIMES"], engine.settings["RETRY_ENABLED"]) == (1, True)


def test_a_project_s_own_parts_are_found_where_no_spider_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sellers").mkdir()
    (tmp_path / "sellers" / "__init__.py").write_text("", "utf-8")
    stamp = "class Stamp:\n    def process_request(self, request):\n        request.headers['X-Stamp'] = 'mine'\n"
    (tmp_path / "sellers" / "middlewares.py").write_text(stamp, "utf-8")
    setting = '[tool.trawl]\nDOWNLOADER_MIDDLEWARES = { "sellers.middlewares.Stamp" = 543 }\n'
    (tmp_path / "pyproject.toml").write_text(setting, "utf-8")
    assert run("fetch", "https://a.example/next", "--headers") == 0
    assert "> X-Stamp: mine" in capfd.readouterr().out
    for name in ("sellers", "sellers.middlewares"):
        del sys.modules[name]
    monkeypatch.chdir(tmp_path / "sellers")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    assert run("shell", "https://a.example/", "-c", "response.status") == 0


def test_without_a_project_nothing_of_the_working_directory_can_be_imported(tmp_path: Path) -> None:
    assert main(["fetch", "https://a.example/"], crawl_with=crawl_on(a_web())) == 0
    assert str(tmp_path) not in sys.path
    assert run("fetch", "https://a.example/") == 0  # its settings may name parts
    assert sys.path[-1] == str(tmp_path)


FED = """
import trawl
from trawl import signals
from trawl.exceptions import DontCloseSpider

class Fed(trawl.Spider):
    name = "fed"

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.more, signal=signals.spider_idle)
        return spider

    def more(self):
        print("takes work")
        self.crawler.engine.close_spider(self)
        raise DontCloseSpider

    def parse(self, response):
        yield {"url": response.url}
"""


@pytest.mark.parametrize("words", ["fetch https://b.example/", "parse https://b.example/", "shell -c 1"])
def test_a_spider_that_is_fed_when_it_is_idle_is_not_asked_where_one_page_is_looked_at(
    words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fed.py").write_text(FED, "utf-8")
    assert run(*words.split(), "--spider", "fed.py") == 0
    assert "takes work" not in capfd.readouterr().out


def test_a_status_that_is_an_error_is_printed_all_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("fetch", "https://a.example/gone") == 1
    assert capfd.readouterr().out == "gone"


def test_what_a_callback_gives_is_shown_and_followed_as_deep_as_asked(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("parse", "https://a.example/", "--spider", "quotes.py") == 0
    first = [
        "# 200 https://a.example/ (depth 0, parse)",
        'item     {"title":"Home","price":"<class \'object\'>"}',
        'request  GET https://a.example/next -> parse_next {"n":1}',
    ]
    assert capfd.readouterr().out.splitlines() == first
    assert run("parse", "https://a.example/", "--spider", "quotes.py", "--depth", "2") == 0
    assert capfd.readouterr().out.splitlines() == [
        *first,
        "# 200 https://a.example/next (depth 1, parse_next)",
        'item     {"next":"https://a.example/next","n":1}',
    ]


RULED = """
import trawl
from trawl import LinkExtractor, Rule

class Ruled(trawl.CrawlSpider):
    name = "ruled"
    rules = [Rule(LinkExtractor(allow="/never"), callback="parse_item"), Rule(LinkExtractor(allow="/%s")%s)]

    def parse_item(self, response):
        yield {"got": response.url}
"""


@pytest.mark.parametrize(("rest", "told"), [("", "rules[1]"), (", callback='parse_item'", "rules[1], parse_item")])
def test_of_a_request_by_rules_it_is_told_which_and_its_callback(
    rest: str, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ruled.py").write_text(RULED % ("next", rest), "utf-8")
    run("parse", "https://a.example/", "--spider", "ruled.py", "--depth", "2")
    lines = capfd.readouterr().out.splitlines()
    assert f"request  GET https://a.example/next -> {told}" in lines
    assert f"# 200 https://a.example/next (depth 1, {told})" in lines


def test_a_callback_is_called_by_name_with_its_arguments(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("parse", "https://a.example/next", "--spider", "quotes.py", "--callback", "parse_next")
    assert run(*words, "--cb-kwargs", '{"n": 7}') == 0
    assert '"n":7' in capfd.readouterr().out


def test_a_callback_that_fails_and_a_page_that_none_gets_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("parse", "https://a.example/", "--spider", "quotes.py", "--callback", "broken") == 1
    assert "ValueError: no" in capfd.readouterr().err
    assert run("parse", "https://a.example/gone", "--spider", "quotes.py") == 1
    assert "handle_httpstatus_list" in capfd.readouterr().err
    assert run("parse", "https://a.example/private", "--spider", "quotes.py") == 1
    assert "robots.txt forbids it" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("response.css('title::text').get()", "Home\n"),
        ("(await spider.fetch(Request('https://a.example/next'))).status", "200\n"),
        ("[await trio.sleep(0), (await fetch('a.example/next')).url][1]", "https://a.example/next\n"),
        ("fetch('a.example/next').css('title::text').get()", "Next\n"),
        ("x = 1; print(settings['DOWNLOAD_DELAY'])", "0.0\n"),
        ("crawler.spider is spider, trawl.Request is Request", "(True, True)\n"),
        ("fetch('https://c.example/', redirect=False).status", "301\n"),
        ("fetch(Request('https://c.example/', meta={'a': 1}), redirect=False).meta['a']", "1\n"),
    ],
)
def test_one_line_is_run_in_the_crawl(code: str, printed: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("shell", "https://a.example/", "-c", code) == 0
    assert capfd.readouterr() == (printed, "")


def test_a_file_is_a_page_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a page.html").write_text("<title>Größe</title>", "utf-8")
    for target in ("a page.html", "./a page.html", (tmp_path / "a page.html").as_uri()):
        assert run("shell", target, "-c", "response.css('title::text').get()") == 0
        assert capfd.readouterr().out == "Größe\n"
    assert run("shell", "./none.html", "-c", "1") == 2
    assert capfd.readouterr().err == f"trawl: {tmp_path / 'none.html'} can't be read: No such file or directory\n"


def test_a_url_that_is_too_long_for_the_name_of_a_file_is_a_url(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("shell", f"b.example?{'x' * 300}", "-c", "response.url[:22]", *UNHEARD) == 0
    assert capfd.readouterr().out == "https://b.example/?xxx\n"


def test_what_there_is_in_a_shell_is_told_again(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("shell", "-c", "shelp()") == 0
    assert "await works: " in capfd.readouterr().out


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Lines that a person types, then the end of input."""
    left: Iterator[str] = iter(lines)

    def given(prompt: str = "") -> str:
        for line in left:
            return line
        raise EOFError

    monkeypatch.setattr(builtins, "input", given)
    monkeypatch.setattr(asking, "find_spec", lambda name: None)


def test_lines_are_asked_for_and_may_await(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    typed(
        monkeypatch,
        "print('title', response.css('title::text').get())",
        "later = await spider.fetch(Request('https://a.example/next'))",
        "print('status', later.status, response.url)",
        "fetch('https://a.example/private')",
        "await fetch('https://a.example/gone')",
        "print(response.status)",
        "1 / 0",
    )
    assert run("shell", "https://a.example/") == 0
    captured = capfd.readouterr()
    assert captured.out.splitlines()[:3] == [
        "title Home",
        "status 200 https://a.example/",
        "<404 https://a.example/gone>",
    ]
    assert captured.out.splitlines()[3:] == ["404"]
    assert "fetch a URL or a Request" in captured.err
    assert "IgnoreRequest: " in captured.err
    assert "ZeroDivisionError" in captured.err


def test_a_page_is_shown_in_a_browser_as_it_would_look(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run("shell", "https://a.example/", "-c", "view().read_text()") == 0
    assert '<base href="https://a.example/">' in capfd.readouterr().out
    assert opened[0].startswith("file://")
    assert run("shell", "-c", "view()") == 2
    assert "nothing was fetched yet" in capfd.readouterr().err


def test_ipython_awaits_in_the_crawl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    from IPython.core.interactiveshell import InteractiveShell

    seen: dict[str, Any] = {}

    def in_cells(session: asking.Session) -> None:
        shell = asking.ipython_shell(InteractiveShell, session)
        result = shell.run_cell("x = (await spider.fetch(Request('https://a.example/next'))).url\nx")
        seen["url"] = result.result
        shell.run_cell("fetch('https://a.example/next')")
        seen["response"] = shell.user_ns["response"].url
        shell.history_manager.end_session()

    monkeypatch.setattr(asking, "_ipython", in_cells)
    assert run("shell") == 0
    assert seen == {"url": "https://a.example/next", "response": "https://a.example/next"}


# The first answer, whatever it is.


def a_refusing_web(robots: SimulatedResponse | None = None) -> SimulatedWeb:
    web = SimulatedWeb()
    busy = SimulatedResponse(status=503, body="busy", headers={"Retry-After": "600"})
    web.add_host("busy.example", handler=lambda request: busy, robots=robots)
    return web


@pytest.mark.parametrize("project", ["", "RETRY_ENABLED = true\nROBOTSTXT_RETRY_TIMES = 9\nRETRY_TIMES = 9\n"])
def test_fetch_prints_the_first_answer_whatever_it_is(
    project: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.trawl]\n{project}", "utf-8")
    words = ["fetch", "https://busy.example/", *WITHOUT_DELAY, "--log-level", "ERROR"]
    assert main(words, crawl_with=crawl_on(a_refusing_web())) == 1
    out, err = capfdbinary.readouterr()
    assert out == b"busy"
    assert err == b"trawl: https://busy.example/ answered 503 (--wait retries until it is served)\n"


@pytest.mark.parametrize("words", [["fetch"], ["shell", "-c", "1"]])
def test_a_robots_txt_that_answers_503_is_told_of_at_once(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    web = a_refusing_web(robots=SimulatedResponse(status=503))
    command = [*words, "https://busy.example/", *WITHOUT_DELAY, "--log-level", "CRITICAL"]
    assert main(command, crawl_with=crawl_on(web)) == 1
    assert capfd.readouterr().err == (
        "trawl: GET https://busy.example/: robots.txt could not be read: answered 503"
        " (--wait retries; -s ROBOTSTXT_OBEY=false, for a site of your own)\n"
    )


@pytest.mark.parametrize("words", [["shell", "-c", "response.status"], ["parse", "--spider", "quotes.py"]])
def test_shell_and_parse_take_the_first_answer_too(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    command = [*words, "https://busy.example/", *WITHOUT_DELAY, "--log-level", "CRITICAL"]
    main(command, crawl_with=crawl_on(a_refusing_web()))
    captured = capfd.readouterr()
    assert "503" in captured.out + captured.err


def test_a_soft_block_is_printed_too(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    words = ["fetch", "https://a.example/next", "-s", "SOFT_BLOCK_DETECTOR=builtins.bool", *UNHEARD]
    assert main([*words, *WITHOUT_DELAY], crawl_with=crawl_on(a_web())) == 0
    assert capfdbinary.readouterr().out == b"<title>Next</title>"


def test_with_wait_a_page_is_sent_again_as_a_crawl_does(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    answers = iter([SimulatedResponse(status=503), SimulatedResponse(status=429), SimulatedResponse(body="at last")])
    web = SimulatedWeb()
    web.add_host("busy.example", handler=lambda request: next(answers))
    quick = ["BACKOFF_MIN_DELAY=0.001", "BACKOFF_MAX_DELAY=0.001", "RETRY_DELAY=0"]
    settings = [word for each in quick for word in ("-s", each)]
    words = ["fetch", "https://busy.example/", "--wait", *settings, *WITHOUT_DELAY, "--log-level", "ERROR"]
    assert main(words, crawl_with=crawl_on(web)) == 0
    assert capfdbinary.readouterr() == (b"at last", b"")


def test_the_status_of_robots_txt_is_not_the_pages(capfd: pytest.CaptureFixture[str]) -> None:
    command = ["parse", "https://busy.example/", "--spider", "quotes.py", "--log-level", "ERROR"]
    assert main([*command, *WITHOUT_DELAY], crawl_with=crawl_on(a_refusing_web())) == 1
    assert capfd.readouterr().err.startswith("trawl: answered 503, which is not in handle_httpstatus_list")


@pytest.mark.parametrize(
    ("path", "out", "err", "status"),
    [
        (
            "app",
            "200 XHR        GET https://a.example/next\n"
            "  - XHR        GET https://a.example/private (robots forbidden)\n"
            "  - XHR        GET https://a.example/2 (requests_limit)\n",
            "",
            0,
        ),
        ("data", "", "trawl: https://a.example/data is not a page that was rendered, so it has no requests and no", 1),
        ("gone", "", "trawl: https://a.example/gone answered 404", 1),
    ],
)
def test_the_requests_of_a_rendered_page_are_told(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, path: str, out: str, err: str, status: int
) -> None:
    monkeypatch.setattr("trawl.cli.fetch.check_browser", lambda settings: "")
    web = a_web()
    page = Rendered("<p></p>", [["/next"], ["/private"], ["/2"], ["/3"]])
    web.add_page("https://a.example/app", body="<p></p>", rendered=page)
    web.add_page("https://a.example/data", body="{}", headers={"Content-Type": "application/json"})
    words = ["fetch", f"https://a.example/{path}", "--browser", "--requests", "-s", "BROWSER_REQUESTS_LIMIT=2"]
    crawl = partial(crawl_on(web), open_page=web.open_page)
    assert main([*words, *QUICK], crawl_with=crawl) == status
    told = capfd.readouterr()
    assert told.out == out
    assert told.err.startswith(err)


def test_a_fetch_without_a_browser_that_starts_has_failed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trawl.cli.fetch.check_browser", lambda settings: "")
    web = a_web()
    words = ["fetch", "https://a.example/next", "--browser", "-s", "BROWSER_PATH=no-such-program"]
    assert main([*words, *QUICK], crawl_with=crawl_on(web)) == 1
    assert "BROWSER_PATH: 'no-such-program' is not a program that can be run" in capfd.readouterr().err
