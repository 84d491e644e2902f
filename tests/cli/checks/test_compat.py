"""What `trawl check` and the first lines of `trawl crawl` tell of a project that was written for Scrapy."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from trawl.cli import main
from trawl.cli.checks import check_spider
from trawl.cli.checks.scrapy_only import asyncio_uses, plugin_meta_uses
from trawl.cli.load import load_spiders
from trawl.scrapy_names.names import PLUGIN_META
from trawl.settings import Layer, load, of_spider

STRICTER = " is true by default, and false in Scrapy: "
HEAD = "import re, hashlib\nimport trawl as scrapy\nfrom trawl.http import Request\n"


def told(folder: Path, body: str, settings: dict[str, object] | None = None, head: str = HEAD) -> list[str]:
    """What is told of a file, each as ``LINE: what``, with ``~`` before what only differs."""
    path = folder / "shop.py"
    path.write_text(head + body, "utf-8")
    [spider] = load_spiders(str(path))
    loaded = load(Layer("pyproject.toml", {"SCRAPY_COMPAT": True}), of_spider(spider), Layer("-s", settings or {}))
    found = [each for each in check_spider(spider, is_moved=True, settings=loaded) if STRICTER not in each.message]
    before = head.count("\n")
    return [f"{'' if each.is_wrong else '~'}{each.line - before}: {each.message}" for each in found]


def in_callback(line: str) -> str:
    return (
        "class A(scrapy.Spider):\n    name, start_urls = 'a', ['http://a.example/']\n"
        f"    def parse(self, response):\n        value = response.headers.get('X')\n        {line}\n"
    )


NO_B = "header values are str, not bytes; remove the b before the quotes"
REAL = "header values are str, which equal their bytes; this needs real bytes: write .encode() after the value"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("re.match(rb'text/(.*)', response.headers['Content-Type'])", NO_B),
        ("re.search(b'x', value)", NO_B),
        ("re.compile(rb'x').sub(b'', value)", NO_B),
        ("b';'.join([value, value])", NO_B),
        ("hashlib.md5(value)", REAL),
        ("scrapy.shell.inspect_response(response, self)", "scrapy.shell.inspect_response is not here: `trawl shell"),
        (
            "scrapy.utils.response.get_meta_refresh(response)",
            "scrapy.utils.response.get_meta_refresh is not here: METAR",
        ),
        (
            "scrapy.downloadermiddlewares.retry.RetryMiddleware",
            "scrapy.downloadermiddlewares.retry.RetryMiddleware",
        ),
        ("kind = type(response).__name__", "all responses have one class: isinstance(response, HtmlResponse)"),
        ("response.__class__ is Request", "all responses have one class: isinstance(response, HtmlResponse)"),
        ("scrapy.http.Request.to_dict", "Request has no to_dict, which is Scrapy's: with JOB_DIR, a job"),
        ("self.crawler.engine.slot.inprogress", "engine.slot is not here: it has no counterpart"),
        ("self.crawler.get_extension(int)", "crawler.get_extension is not here: keep a reference"),
        (
            "from scrapy.shell import inspect_response",
            'take out "from scrapy.shell import inspect_response"',
        ),
        ("dict(response.headers)", "dict(headers) has one value for each name"),
        ("self.crawler.engine.crawl(Request(response.url))", "engine.crawl() is for receivers of spider_idle"),
        ("self.crawler.settings.set('RETRY_TIMES', 5)", "settings do not change during a crawl, so set() raises"),
        ("settings = self.crawler.settings; settings.set('RETRY_TIMES', 5)", "settings do not change during a crawl"),
    ],
)
def test_a_line_that_fails_here_is_wrong(tmp_path: Path, line: str, words: str) -> None:
    [found] = told(tmp_path, in_callback(line))
    assert found.startswith(f"5: {words}")


@pytest.mark.parametrize(
    "line",
    [
        "re.match(r'text', value)",
        "re.match(rb'text', response.body)",
        "b';'.join([response.body])",
        "hashlib.md5(response.body)",
        "scrapy.http.Request('http://a.example/').url",
        "scrapy.utils.project.get_project_settings()",
        "self.crawler.engine.close_spider(self)",
        "dict(self.headers)",
        "self.settings.get('RETRY_TIMES')",
        "self.settings.get('LOG_LEVEL', 'x')",
        "self.crawler.stats.get_value('downloader/request_count')",
        "yield Request('http://a.example')",
        "yield Request(response.url, meta={'proxy': 'http://127.0.0.1:8118'})",
        "response.request.meta['proxy'] = 'http://127.0.0.1:8118'",
    ],
)
def test_a_line_that_does_what_it_did_is_not_told(tmp_path: Path, line: str) -> None:
    assert told(tmp_path, in_callback(line)) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("self.settings.get('LOG_LEVEL')", "LOG_LEVEL is 'INFO' by default; Scrapy's default is 'DEBUG'"),
        ("self.settings['ROBOTSTXT_OBEY']", "ROBOTSTXT_OBEY is True by default; Scrapy's default is False"),
        ("response.meta.get('retry_times', 0)", "retry_times does not count retries after a refusal (429, 502, 503, "),
    ],
)
def test_a_line_that_only_differs_is_told(tmp_path: Path, line: str, words: str) -> None:
    [found] = told(tmp_path, in_callback(line))
    assert found.startswith(f"~5: {words}")
    off: dict[str, object] = {
        "LOG_LEVEL": "INFO",
        "ROBOTSTXT_OBEY": False,
        "BACKOFF_HTTP_CODES": [],
        "BACKOFF_EXCEPTIONS": [],
    }
    assert told(tmp_path, in_callback(line), off) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "yield Request('http://a.example/x', errback=print)",
            "errbacks are not called for requests that are not allowed",
        ),
        (
            "yield Request('http://a.example/x', headers={'Cookie': value})",
            "a Cookie header is not sent after a redirect from http to https or to another port",
        ),
        ("yield Request('http://a.example:80', dont_filter=True)", "the URL is http://a.example here, also in respo"),
        ("self.start_urls = ['http://a.example:80/']", "the URL is http://a.example/ here, also in response.url; in "),
        (
            "yield response.follow(url='http://a.example:80')",
            "the URL is http://a.example here, also in response.url; in Scrap",
        ),
        ("yield Request('http://10.0.0.5/x')", "http://10.0.0.5/x is in your own network: requests to it are refused"),
        ("yield Request(f'http://localhost:8191/v1?x={value}')", "http://localhost:8191/v1?x= is in your own network"),
        ("print(failure.type)", "errors have other names and messages in trawl: for example, CannotResolveHostError"),
        (
            "failure.getErrorMessage()",
            "errors have other names and messages in trawl: for example, CannotResolveHostError",
        ),
        ("yield Request('http://a.example/a/../b')", "the URL is http://a.example/b here, also in response.url; in Sc"),
        ("yield Request('http://a.example:80/a')", "the URL is http://a.example/a here, also in response.url; in Scra"),
        ("response.request.headers.get(b'Cookie')", "the sent Cookie is in response.sent_headers"),
        ("response.request.headers['cookie']", "the sent Cookie is in response.sent_headers"),
        ("print(response.meta['proxy'])", "meta['proxy'] keeps its password"),
        ("response.meta.get('proxy')", "meta['proxy'] keeps its password"),
        ("response.request is self.first", "response.request equals the request that was yielded, but may be another"),
        ("stats.get_value('response_received_count')", "response_received_count counts all responses"),
        ("yield Request(value, meta={'verbatim_url': True})", "the key 'verbatim_url' of meta has no effect"),
        ("response.meta['cached_response']", "the key 'cached_response' of meta has no effect"),
        ("response.meta.get('give_up_log_level')", "the key 'give_up_log_level' of meta has no effect"),
    ],
)
def test_a_difference_that_no_setting_removes_is_told(tmp_path: Path, line: str, words: str) -> None:
    [found] = told(tmp_path, in_callback(line))
    assert found.startswith(f"~5: {words}")


@pytest.mark.parametrize(
    "line",
    [
        "yield Request('http://a.example/?x[y]=1|2')",  # the response has w3lib's form
        "yield Request('http://a.example/%s' % value)",
        "yield Request('http://' + value, meta={'proxy': 'http://user:password@proxy.example'}, errback=None)",
        "response.request is None",
        "response.request.headers.get('Referer')",
        "re.search('http://a.example/(a|b)/../x$', value)",
        "yield {'site': 'http://a.example'}",
        "request.meta['proxy'] = 'http://proxy.example/'",
    ],
)
def test_what_is_the_same_is_not_told(tmp_path: Path, line: str) -> None:
    assert told(tmp_path, in_callback(line)) == []


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("yield {'Cookie': value}", False),
        ("yield Request('http://a.example/', cookies={'Cookie': value})", False),
        ("print('http://www.w3.org/2005/Atom'); yield Request(value, headers={'Cookie': value})", False),
        ("headers = {'Cookie': value}; yield Request('http://' + value, headers=headers)", True),
        ("base = 'http://a.example'; yield Request(f'{base}/x', headers=dict({'Cookie': value}))", True),
        ("yield response.follow(url='http://a.example/', headers={'cookie': value})", True),
        ("self.start_urls = ['http://a.example/']; self.headers = {'Cookie': value}", True),
        ("self.start_urls = ['http://a.example/']; self.set({'DEFAULT_REQUEST_HEADERS': {'Cookie': 1}})", True),
    ],
)
def test_a_cookie_header_is_told_if_it_may_be_sent_to_an_http_url(tmp_path: Path, line: str, is_told: bool) -> None:
    body = in_callback(line).replace("'http://a.example/'", "'https://a.example/'", 1)
    found = [each for each in told(tmp_path, body) if "Cookie" in each]
    assert [each[:28] for each in found] == (["~5: a Cookie header is not s"] if is_told else [])


@pytest.mark.parametrize(
    ("lines", "told_lines"),
    [
        ("item = {}\nfor each in response:\n    item['x'] = each\n    yield item", [3]),
        ("item = A()\nwhile value:\n    item.x = value\n    yield item", [3]),
        ("item = {}\nfor a in value:\n    item.update(a=a)\n    for b in a:\n        yield item", [4]),
        ("for a in value:\n    item = {}\n    for b in a:\n        item['b'] = b\n        yield item", [4]),
        ("for each in response:\n    item = {}\n    item['x'] = each\n    yield item", []),
        ("item = {}\nfor each in response:\n    item['x'] = each\nyield item", []),
        ("for item in value:\n    item['x'] = 1\n    yield item", []),
        ("seen = {}\nfor each in value:\n    seen[each] = 1\n    yield each", []),
        ("item = {}\nfor a in value:\n    item['x'] = a\n    if a:\n        yield item\n        return", []),
        ("item = {}\nwhile value:\n    item.x = 1\n    try:\n        yield item\n        break\n    finally: pass", []),
        ("item = {}\nfor a in value:\n    item['x'] = a\nelse:\n    yield item", []),
        ("item = Request('http://a.example/')\nfor a in value:\n    item.priority += 1\n    yield item", []),
        ("for a in value:\n    request.priority += 1\n    yield request", []),
    ],
)
def test_one_item_that_a_loop_yields_with_new_values_is_told(tmp_path: Path, lines: str, told_lines: list[int]) -> None:
    found = told(tmp_path, in_callback(lines.replace("\n", f"\n{' ' * 8}")))
    assert [each.split(" may be yielded ")[0] for each in found] == [f"~{5 + line}: item" for line in told_lines]


@pytest.mark.parametrize(
    ("call", "is_told"),
    [
        ("set('RETRY_TIMES', 1, priority='cmdline')", True),
        ("set('RETRY_TIMES', 1, 'addon')", True),
        ("setdict({'RETRY_TIMES': 1}, priority='default')", True),
        ("set('RETRY_TIMES', 1, priority='spider')", False),
        ("set('RETRY_TIMES', 1)", False),
    ],
)
def test_a_priority_of_a_setting_is_told(tmp_path: Path, call: str, is_told: bool) -> None:
    method = f"    @classmethod\n    def update_settings(cls, settings):\n        settings.{call}\n"
    found = told(tmp_path, in_callback("pass") + method)
    assert [each.partition(" is ignored in update_settings(): ")[0][:14] for each in found] == (
        ["~8: priority='"] if is_told else []
    )


def test_code_that_counts_on_a_refused_request_is_told(tmp_path: Path) -> None:
    try_it = "try: yield {call}\n        except ({error}, KeyError): pass"
    [found] = told(tmp_path, in_callback(try_it.format(call="Request(value)", error="ValueError")))
    assert found.startswith("~5: Request() raises no ValueError for mailto:, javascript: or tel:, which are dropped")
    assert told(tmp_path, in_callback(try_it.format(call="response.follow(value)", error="ValueError"))) == []
    assert told(tmp_path, in_callback(try_it.format(call="Request(value)", error="IndexError"))) == []


_MADE = ("Request", "scrapy.Request", "FormRequest", "response.follow", "it().response.follow")


@pytest.mark.parametrize("made", _MADE)
def test_arguments_that_must_be_named_are_told_of_in_every_file(tmp_path: Path, made: str) -> None:
    name = made.rpartition(".")[2]
    words = f"{name}() takes only url and callback as positional arguments; pass the rest by keyword"
    part = f"def helped(response):\n    return {made}('http://a.example/x', None, 'POST')\n"
    assert told(tmp_path, part + in_callback("pass")) == [f"2: {words}"]
    assert told(tmp_path, in_callback(f"yield {made}('http://a.example/x', None, 'POST')")) == [f"5: {words}"]
    assert told(tmp_path, in_callback(f"yield {made}('http://a.example/x', None, method='POST')")) == []


def test_a_download_is_told_of_where_domains_are_allowed(tmp_path: Path) -> None:
    body = in_callback("self.crawler.engine.download_async(Request('http://b.example/'))")
    assert told(tmp_path, body) == []
    [found] = told(tmp_path, body + "    allowed_domains = ['a.example']\n")
    assert found.startswith(
        "~5: download() also fetches from sites outside allowed_domains; in Scrapy it raises IgnoreRequest"
    )


def test_a_robots_txt_that_can_not_be_read_is_told_of(tmp_path: Path) -> None:
    body = in_callback("pass") + "    custom_settings = {'ROBOTSTXT_OBEY': True}\n"
    [found] = told(tmp_path, body)
    assert found.startswith(
        "~6: ROBOTSTXT_OBEY: nothing is sent to a site whose robots.txt can't be read (5xx, no conn"
    )
    assert told(tmp_path, body.replace("True", "False")) == []


def test_an_address_in_the_users_network_is_told_of_where_it_is_refused(tmp_path: Path) -> None:
    body = in_callback("yield Request('http://localhost:8050/render')")
    assert len(told(tmp_path, body)) == 1
    assert len(told(tmp_path, body, {"ALLOW_PRIVATE_ADDRESSES": False})) == 1
    assert told(tmp_path, body, {"ALLOW_PRIVATE_ADDRESSES": True}) == []
    assert told(tmp_path, body.replace("http://a.example/", "http://192.168.0.1/")) == []


def test_a_setting_with_an_address_in_the_users_network_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        "[tool.trawl]\nSCRAPY_COMPAT = true\nROBOTSTXT_OBEY = false\nDOWNLOAD_VERIFY_CERTIFICATES = true\n\n"
        "[tool.trawl.own]\nSITE = 'http://a.example/'\nSOLVER = 'http://localhost:8191/v1'\n"
    )
    (tmp_path / "moved_solver.py").write_text(HEAD + in_callback("pass"))
    assert main(["check", "moved_solver.py"]) == 0
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("pyproject.toml:8: SOLVER: http://localhost:8191/v1 is in your own network")


def test_a_list_of_statuses_is_told_of_where_the_spider_lists_redirects(tmp_path: Path) -> None:
    body = in_callback("yield Request(value, meta={'handle_httpstatus_list': [404]})")
    assert told(tmp_path, body + "    handle_httpstatus_list = [500]\n") == []
    [found] = told(tmp_path, body + "    handle_httpstatus_list = [301, 302]\n")
    assert found.startswith("~5: handle_httpstatus_list in meta overrides the spider's for redirects too")


def test_errbacks_are_told_of_once_a_file_and_only_where_something_is_forbidden(tmp_path: Path) -> None:
    line = "yield Request(value, errback=print); yield Request(value, errback=repr)"
    assert told(tmp_path, in_callback(line), {"ROBOTSTXT_OBEY": False}) == []
    body = in_callback(line) + "    allowed_domains = ['a.example']\n"
    [found] = told(tmp_path, body, {"ROBOTSTXT_OBEY": False})
    assert "requests that are not allowed (allowed_domains)" in found
    [both] = told(tmp_path, body)
    assert "requests that are not allowed (robots.txt, allowed_domains)" in both


def test_where_a_retry_middleware_of_the_projects_own_counts_nothing_is_told(tmp_path: Path) -> None:
    own = {"DOWNLOADER_MIDDLEWARES": {"scrapy.downloadermiddlewares.retry.RetryMiddleware": None}}
    assert told(tmp_path, in_callback("response.meta['retry_times']"), dict(own)) == []


def test_a_request_class_of_the_projects_own_is_told_where_there_is_a_job(tmp_path: Path) -> None:
    body = "class Own(Request):\n    pass\n" + in_callback("pass")
    assert told(tmp_path, body) == []
    [found] = told(tmp_path, body, {"JOB_DIR": str(tmp_path / "job")})
    assert found.startswith("~1: a job can't store a request of this class, so its page fails")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("stats.get_value('scheduler/enqueued')", "the statistic scheduler/enqueued is not kept"),
        ("stats.get_value(f'retry/reason_count/{kind}')", "the statistic retry/reason_count/ is not kept"),
        ("self.crawler.stats.get_stats()", "get_stats() has trawl's names"),
    ],
)
def test_a_statistic_that_is_not_there_is_told(tmp_path: Path, line: str, words: str) -> None:
    [found] = told(tmp_path, in_callback(line))
    assert found.startswith(f"~5: {words}")


@pytest.mark.parametrize("name", ["CLOSESPIDER_ERRORCOUNT", "DEPTH_LIMIT"])
def test_a_limit_by_which_the_order_decides_is_told(tmp_path: Path, name: str) -> None:
    [found] = told(tmp_path, in_callback("pass"), {name: 3})
    assert f"{name}: the order is breadth-first (DEPTH_FIRST: depth-first); in Scrapy the newest goes first" in found


@pytest.mark.parametrize("name", ["CLOSESPIDER_ITEMCOUNT", "CLOSESPIDER_PAGECOUNT"])
def test_a_limit_that_ends_exactly_is_told_where_it_is_set(tmp_path: Path, name: str) -> None:
    body = in_callback("pass") + f"    custom_settings = {{\n        'RETRY_TIMES': 1,\n        '{name}': 3,\n    }}\n"
    [found] = told(tmp_path, body)
    assert found.startswith(f"~8: {name}: the crawl ends exactly at this count; in Scrapy requests in flight finish")


def test_the_parts_that_settings_name_are_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "moved_parts.py").write_text(
        "import moved_helpers\n\nclass Seen:\n    def process_response(self, request, response, spider):\n"
        "        b''.join(response.headers.getlist('X'))\n        return response\n"
    )
    (tmp_path / "moved_helpers.py").write_text("def tries(request):\n    return request.meta['retry_times']\n")
    middleware = 'DOWNLOADER_MIDDLEWARES = { "moved_parts.Seen" = 1 }'
    (tmp_path / "pyproject.toml").write_text(
        f"[tool.trawl]\n{middleware}\nCLOSESPIDER_PAGECOUNT = 3\nSCRAPY_COMPAT = true\n"
    )
    (tmp_path / "moved_shop.py").write_text(HEAD + in_callback("pass"))
    assert main(["check", "moved_shop.py"]) == 1
    said = capsys.readouterr()
    assert said.out == f"moved_parts.py:5: {NO_B}\n"
    places = ["moved_helpers.py:2:", "moved_shop.py:4:", "moved_shop.py:4:", "pyproject.toml:3:"]
    assert [line.split(" ")[0] for line in said.err.splitlines()] == places


@pytest.mark.parametrize("name", ["DOWNLOAD_VERIFY_CERTIFICATES", "ROBOTSTXT_OBEY"])
def test_a_default_that_may_skip_pages_is_told_of_unless_a_setting_decides(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop_with_robots.py"
    body = "import trawl as scrapy\nclass A(scrapy.Spider):\n    name, start_urls = 'a', ['http://a.example/']\n"
    body += "    def parse(self, response): pass\n"
    file.write_text(body, "utf-8")
    assert main(["check", str(file)]) == 0
    out, err = capfd.readouterr()
    assert out == "1 spider: nothing wrong\n"
    assert f"{file.name}:2: {name}{STRICTER}" in err
    (tmp_path / "pyproject.toml").write_text("[tool.trawl]\nSCRAPY_COMPAT = true\n", "utf-8")  # as `trawl move` does
    assert main(["check", str(file)]) == 0
    assert capfd.readouterr().err == err
    file.write_text(body + f"    custom_settings = {{'{name}': False}}\n", "utf-8")
    assert main(["check", str(file)]) == 0
    lines = [line for line in err.splitlines() if f"{name}{STRICTER}" not in line]
    assert capfd.readouterr().err.splitlines() == lines
    assert len(lines) == 1  # the other setting


def test_a_check_tells_that_what_marks_start_requests_can_not_be_taken_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop_with_starts.py"
    body = "import trawl as scrapy\nclass A(scrapy.Spider):\n    name, start_urls = 'a', ['http://a.example/']\n"
    entry = "scrapy.spidermiddlewares.start.StartSpiderMiddleware"
    body += (
        f"    custom_settings = {{'SPIDER_MIDDLEWARES': {{'{entry}': None}}}}\n    def parse(self, response): pass\n"
    )
    file.write_text(body, "utf-8")
    assert main(["check", str(file)]) == 1
    assert f"SPIDER_MIDDLEWARES: {entry} can't be removed" in capfd.readouterr().out


TRIO = "asyncio does not work in a crawl, which runs on Trio; use"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import asyncio\n\nasync def wait():\n    await asyncio.sleep(1)\n", f"4: {TRIO} trio.sleep()"),
        ("from asyncio import sleep as nap\n\nasync def wait():\n    await nap(1)\n", f"4: {TRIO} trio.sleep()"),
        (
            "import asyncio\n\nasync def wait():\n    async with asyncio.Lock():\n        pass\n",
            f"4: {TRIO} Trio's counter",
        ),
        ("import asyncio\n\ndef later(job):\n    asyncio.create_task(job)\n", f"4: {TRIO} a nursery of Trio's"),
        ("import aiohttp\n", "1: aiohttp needs asyncio, and a crawl runs on Trio; use `await self.fetch(request)`"),
        ("from aiohttp import ClientSession\n", "1: aiohttp needs asyncio, and a crawl runs on Trio; use `await self."),
        ("import redis.asyncio as redis\n", "1: redis.asyncio needs asyncio, and a crawl runs on Trio; use a client"),
        (
            "from motor.motor_asyncio import AsyncIOMotorClient\n",
            "1: motor needs asyncio, and a crawl runs on Trio; use",
        ),
        ("from web_poet import HttpClient, WebPage\n", "1: web_poet.HttpClient needs asyncio, and a crawl runs on"),
        ("from pymongo import AsyncMongoClient\n", "1: pymongo.AsyncMongoClient needs asyncio, and a crawl runs on"),
    ],
)
def test_what_needs_asyncio_is_told(code: str, words: str) -> None:
    [(line, said)] = asyncio_uses(ast.parse(code))
    assert f"{line}: {said}".startswith(words)


def test_meta_keys_of_scrapy_playwright_are_told_with_their_replacement() -> None:
    code = "meta = {\n 'playwright': True,\n 'playwright_page_methods': [], 'depth': 1}\n"
    (first, second) = sorted(plugin_meta_uses(ast.parse(code)))
    assert first == (2, "meta playwright has no effect; write meta `browser`: True", True, ())
    assert "run='METHOD'" in second[1]
    page = (Path(__file__).parents[3] / "docs" / "howto" / "coming-from-scrapy.md").read_text("utf-8")
    assert [key for key in PLUGIN_META if f"`{key}" not in page and f"{key}:" not in page] == []


@pytest.mark.parametrize(
    "code",
    [
        "Request(url, meta={**response.meta, X})",
        "Request(url, meta=old | {X} if needed else {})",
        "Request(url, meta=dict(old, playwright=True))",
        "kwargs = {'meta': {X}}",
        "request.meta['playwright'] = True",
        "request.meta.update({X})",
        "request.meta.setdefault('playwright', True)",
        "request.meta |= {X}",
        "options = {X}\nRequest(url, meta=options)",
        "class A:\n    RENDERED = {X}\n    def f(self):\n        return Request(url, meta=self.RENDERED)",
        "def f(self):\n    return {X}\nRequest(url, meta=self.f())",
        "f = lambda url: Request(url, meta={X})",
        "def f():\n    meta = {X}\ndef g():\n    meta = {'browser': True}",
    ],
)
def test_a_key_of_scrapy_playwright_is_told_wherever_meta_gets_it(code: str) -> None:
    [(_, words, is_wrong, _)] = plugin_meta_uses(ast.parse(code.replace("X", "'playwright': True")))
    assert (words, is_wrong) == ("meta playwright has no effect; write meta `browser`: True", True)


@pytest.mark.parametrize(
    "code",
    [
        "Request(url, meta={'playwright': True, 'browser': True})",
        "meta = {'playwright': True}\nmeta['browser'] = True",
        "request.meta['playwright'] = request.meta['browser'] = True",
        "Request(url, meta={**shared, 'playwright': True})",
        "Request(url, meta=dict(playwright=True, **self.shared))",
    ],
)
def test_meta_for_both_need_not_be_changed(code: str) -> None:
    assert [is_wrong for _, _, is_wrong, _ in plugin_meta_uses(ast.parse(code))] == [False]


@pytest.mark.parametrize(
    "code",
    [
        "yield {'playwright': True}",
        "item['playwright'] = True",
        "tools.update(playwright='1.50')",
        "Request(url, cb_kwargs={'playwright': True}, meta={'tools': {'playwright': True}})",
        "page = response.meta.get('playwright')",
        "meta = response.css('meta') or 'playwright'",
        "meta = metas['playwright']",
        "Request(url, meta=metas.get('playwright'))",
        "request.meta.setdefault('renderer', 'playwright')",
    ],
)
def test_a_word_of_scrapy_playwright_elsewhere_is_not_told(code: str) -> None:
    assert list(plugin_meta_uses(ast.parse(code))) == []


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio\n\ndef all_at_once(job):\n    return asyncio.run(job())\n",
        "import redis\nfrom pymongo import MongoClient\n",
        "from .motor import drive\n\nasync def sleep():\n    await drive()\n",
    ],
)
def test_what_has_a_loop_of_its_own_or_needs_none_is_not(code: str) -> None:
    assert list(asyncio_uses(ast.parse(code))) == []


def test_a_pipeline_that_needs_asyncio_is_told_with_its_line(tmp_path: Path) -> None:
    head = "import asyncio\nimport trawl as scrapy\n\n"
    body = (
        "class Slow:\n    async def process_item(self, item, spider):\n        await asyncio.sleep(1)\n"
        "        return item\n"
        "class A(scrapy.Spider):\n    name, start_urls = 'a', ['http://a.example/']\n"
        "    custom_settings = {'ITEM_PIPELINES': {Slow: 1}, 'ROBOTSTXT_OBEY': False}\n"
        "    def parse(self, response):\n        yield {}\n"
    )
    assert told(tmp_path, body, head=head) == [f"3: {TRIO} trio.sleep()"]


def test_middleware_that_changes_the_running_crawl_is_told(tmp_path: Path) -> None:
    middleware = (
        "class Closing:\n    def process_request(self, request, spider):\n"
        "        spider.crawler.engine.close_spider(spider)\n        spider.crawler.engine.crawl(request)\n"
        "class Idle:\n    def __init__(self, crawler):\n"
        "        crawler.signals.connect(self.more, signals.spider_idle)\n"
        "    def more(self, spider): spider.crawler.engine.crawl(Request('http://a.example/'))\n"
    )
    found = [line.partition(" ")[2][:30] for line in told(tmp_path, in_callback("pass") + middleware)]
    assert found == ["close_spider() in process_requ", "engine.crawl() is for receiver"]


def test_a_plugin_without_spiders_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plugin").mkdir()
    Path("plugin/__init__.py").touch()
    Path("plugin/fine.py").write_text("class Fine: ...\n", "utf-8")
    assert main(["check", "plugin"]) == 0
    assert capsys.readouterr().out == "0 spiders: nothing wrong\n"
    Path("plugin/part.py").write_text(
        "import trawl as scrapy\ndef from_crawler(crawler):\n    crawler.settings.set('RETRY_TIMES', 5)\n", "utf-8"
    )
    assert main(["check", "plugin"]) == 1
    assert capsys.readouterr().out.startswith("plugin/part.py:3: settings do not change during a crawl")


@pytest.mark.parametrize(
    "starts",
    [
        "process = CrawlerProcess({'LOG_LEVEL': 'WARNING'})\nprocess.crawl(A)\nprocess.start()\nprocess.results[0]",
        "trawl.run(A)",
        "trio.run(trawl.crawl, A)",
    ],
)
def test_a_script_without_a_main_guard_crawls_nothing_while_it_is_checked(
    tmp_path: Path, starts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "script.py"
    head = "import trawl\nimport trio\nfrom trawl.crawler import CrawlerProcess\n"
    spider = (
        "class A(trawl.Spider):\n    name = 'a'\n    async def start(self):\n        raise SystemExit('it runs')\n"
        "        yield\n    def parse(self, response): ...\n"
    )
    path.write_text(f"{head}{spider}{starts}\n", "utf-8")
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == "1 spider: nothing wrong\n"
