"""``trawl check``: what can be known to be wrong with a spider before it crawls."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from trawl.cli import main
from trawl.cli.checks import check_spider, check_work
from trawl.cli.load import load_spiders
from trawl.errors import PartLoadError, SettingsError
from trawl.scrapy_names.moved import is_moved
from trawl.settings import Settings, load, of_spider
from trawl.spiders import Spider

HEAD = """
from __future__ import annotations
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypedDict
import trawl

@dataclass
class Quote:
    text: str

@dataclass
class LongQuote(Quote):
    more: str

@dataclass
class Author:
    name: str

class Row(TypedDict):
    a: str
"""


def checked(folder: Path, body: str) -> list[str]:
    """What is wrong with the spiders of a file, each as ``LINE: what``; lines are counted in ``body`` from 1.

    The spiders need nothing to begin with: that is looked at in ``test_nothing.py``.
    """
    path = folder / "spiders.py"
    path.write_text(HEAD + body, "utf-8")
    before = HEAD.count("\n")
    spiders = load_spiders(str(path))
    every = [
        (spider, each)
        for spider in spiders
        for each in check_spider(spider, is_moved=is_moved(spider), settings=_settings(spider))
    ]
    found = [each for spider, each in every if each not in check_work(spider)]
    assert {finding.path for finding in found} <= {str(path)}
    return [f"{finding.line - before}: {finding.message}" for finding in found]


def _settings(spider: type[Spider]) -> Settings | None:
    try:
        return load(of_spider(spider))
    except (SettingsError, PartLoadError):
        return None


def test_a_spider_with_nothing_wrong(tmp_path: Path) -> None:
    body = """
class Quotes(trawl.CrawlSpider[Quote | dict[str, Any]]):
    name = "quotes"
    start_urls = ["http://a.example/"]
    allowed_domains = ["a.example", "[::1]"]
    custom_settings = {"DOWNLOAD_DELAY": 1, "BOT_NAME": "x"}
    rules = [trawl.Rule(trawl.LinkExtractor(), "parse_one", {"title": "x"}, process_links=sorted)]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.later = self.parse_one

    async def start(self) -> AsyncIterator[Any]:
        yield trawl.Request("http://a.example/", self.later, errback=self.missed)

    def parse_one(self, response: trawl.Response, title: str) -> Iterator[LongQuote | Row | trawl.Request | None]:
        options = {"x": 1}
        yield response.follow("/x", self.many, cb_kwargs=options)
        yield response.follow("/x", callback=self.many, cb_kwargs=dict(x=1, **options))

    async def many(self, response: trawl.Response, x: int) -> AsyncIterator[Any]:
        yield None

    def missed(self, error: Exception) -> Iterable[Unknown]:
        return []
"""
    assert checked(tmp_path, body) == []


def test_the_state_that_a_spider_does_not_have(tmp_path: Path) -> None:
    body = """
class Counting(trawl.Spider):
    name = "counting"

    def parse(self, response):
        self.state["pages"] = self.state.get("pages", 0) + 1
        yield {"pages":
            self.state["pages"]}
"""
    words = "a spider has no state; keep what must be remembered in cb_kwargs or meta, which a job stores"
    assert checked(tmp_path, body) == [f"6: {words}", f"8: {words}"]
    assert checked(tmp_path, body.replace("    def parse", "    state = {}\n    def parse")) == []
    own = "    def __init__(self):\n        self.state = {}\n    def parse"
    assert checked(tmp_path, body.replace("    def parse", own)) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            '    start_urls = ["http://a.example/",\n      "a.example"]',
            r"3: Bad: start_urls\[1\]: .*did you mean 'https://a",
        ),
        ('    start_urls = "http://a.example/"', "2: Bad: start_urls must be a list of URLs, not a string"),
        (
            '    allowed_domains = ["a.example", "http://a.example/"]',
            r"2: allowed_domains must hold domains .*\(entry 1\)",
        ),
        ('    allowed_domains = "a.example"', "2: allowed_domains must be a list of domains"),
        ("    allowed_domains = [7]", "2: allowed_domains takes strings, not 7"),
        ('    custom_settings = {\n      "RETRY_TIMES": -1}', r"3: RETRY_TIMES must be .* \(in custom_settings\)"),
        ('    custom_settings = {"DOWNLOD_DELAY": 1}', "2: unknown setting DOWNLOD_DELAY .*did you mean DOWN"),
        ("    custom_settings = 1", "2: custom_settings: custom_settings must be a mapping"),
        ('    handle_httpstatus_list = "404"', "2: handle_httpstatus_list must be a list, not '404'"),
        ("    def start(self): return []", r"2: start\(\) must be an async generator"),
        ("    async def start_requests(self): yield", r"2: start_requests\(\) must not be async"),
        (
            "    @classmethod\n    def update_settings(cls, settings): settings.set('X', 1)",
            "3: unknown setting X",
        ),
        ("    @classmethod\n    def update_settings(cls, settings): 1 / 0", "3: update_settings: division by zero"),
    ],
)
def test_attributes_that_are_wrong(tmp_path: Path, body: str, expected: str) -> None:
    (found,) = checked(tmp_path, f"class Bad(trawl.Spider):\n{body}\n    name = 'bad'\n")
    assert re.match(expected, found), found


def test_a_spider_needs_a_name(tmp_path: Path) -> None:
    assert checked(tmp_path, "class Bad(trawl.Spider): ...\n") == ["1: Bad has no name; add a class attribute `name`"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('trawl.Rule(callback="parse_itme")', "rules[0]: callback is 'parse_itme', but Bad has no such method; did"),
        ('trawl.Rule(callback="one", cb_kwargs={"x": 1})', "rules[0]: callback one() can't be called: got an unexp"),
        ("trawl.Rule(callback=lambda: None)", "rules[0]: callback <function Bad.<lambda>"),
        ('trawl.Rule(errback="missed")', "rules[0]: errback is 'missed'"),
        ('trawl.Rule(process_links="static")', "rules[0]: process_links static() can't be called: missing"),
        ('trawl.Rule(process_request="one")', "rules[0]: process_request one() can't be called: too many"),
        ("trawl.LinkExtractor()", "rules[0] must be a Rule, not"),
    ],
)
def test_rules_that_name_what_is_not_there_or_does_not_fit(tmp_path: Path, rule: str, expected: str) -> None:
    body = f"""class Bad(trawl.CrawlSpider):
    name = "bad"
    rules = (
        {rule},
    )
    def one(self, response): ...
    def parse_item(self, response): ...
    @staticmethod
    def static(links, more): ...
"""
    (found,) = checked(tmp_path, body)
    assert found.startswith(f"4: {expected}")


def test_sitemaps_that_are_wrong(tmp_path: Path) -> None:
    body = """class Bad(trawl.SitemapSpider):
    name = "bad"
    sitemap_urls = ["/sitemap.xml"]
    sitemap_rules = [
        ("(", "parse"),
        ("", "parse_x"),
    ]
    sitemap_follow = ["["]
    def parse(self, response): ...
"""
    found = checked(tmp_path, body)
    assert [line.partition("]")[0] for line in found] == [
        "3: Bad: sitemap_urls[0",
        "5: sitemap_rules[0",
        "6: sitemap_rules[1",
        "8: sitemap_follow[0",
    ]


def test_rules_of_sitemaps_are_no_misspelled_sitemaps(tmp_path: Path) -> None:
    body = """class Good(trawl.SitemapSpider):
    name = "good"
    sitemap_rules = [("", "parse")]
    def __init__(self, host):
        self.sitemap_urls = [host]
    def parse(self, response): ...
"""
    assert checked(tmp_path, body) == []


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("trawl.Request('/', self.parse_itme)", "Bad has no method 'parse_itme'; did you mean self.parse_item?"),
        ("response.follow('/', callback=self.nothing_like_it)", "Bad has no method 'nothing_like_it'"),
        ("response.follow_all([], 'parse_item')", "callback is the string 'parse_item'; pass the method self."),
        ("trawl.Request.json('/', {}, errback=self.oops)", "Bad has no method 'oops'"),
        (
            "response.follow('/', self.parse_item, cb_kwargs={'titel': 1})",
            "callback parse_item() can't be called: got an unexpected keyword argument 'titel'",
        ),
        ("trawl.Request('/', self.parse_item, cb_kwargs=dict(titel=1))", "callback parse_item() can't be called"),
    ],
)
def test_callbacks_that_are_not_there_or_do_not_fit(tmp_path: Path, call: str, expected: str) -> None:
    body = f"""class Base(trawl.Spider):
    def parse(self, response):
        yield {call}
class Bad(Base):
    name = "bad"
    def parse_item(self, response, title): ...
"""
    (found,) = checked(tmp_path, body)
    assert found.startswith(f"3: {expected}")


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("def parse(self, response) -> Iterator[Author | None]: yield", "is annotated with spiders.Author, but the"),
        ("def parse(self, response) -> list[dict]: ...", "is annotated with dict, but the spider's items are"),
        ("async def parse(self, response) -> AsyncIterator[str]: yield", "is annotated with str, which is neither"),
        ("def parse(self, response) -> tuple[Quote, int]: ...", "is annotated with int, which is neither"),
        ("def parse(self, response) -> Quote: yield", "is a generator: annotate it Iterator[...], not spiders.Quote"),
        ("async def parse(self, response) -> Iterator[Quote]: yield", "is an async generator: annotate it AsyncIter"),
        ("async def parse(self, response) -> Author: ...", "is annotated with spiders.Author"),
    ],
)
def test_annotations_that_say_what_the_crawl_does_not_take_or_the_spider_does_not_give(
    tmp_path: Path, method: str, expected: str
) -> None:
    (found,) = checked(tmp_path, f"class Bad(trawl.Spider[Quote]):\n    name = 'bad'\n    {method}\n")
    spider = Path(tmp_path / "spiders.py").name.removesuffix(".py")
    assert re.sub(r"\bspider_spiders\.", f"{spider}.", found).startswith(f"3: parse() {expected}")


def test_a_spider_of_any_items_may_give_any(tmp_path: Path) -> None:
    body = """class Base(trawl.Spider[Quote]):
    name = "base"
class Good(Base):
    def parse(self, response) -> Iterator[Quote]: yield Quote("x")
class Any_(trawl.Spider):
    name = "any"
    def parse(self, response) -> Iterator[Author | Row | trawl.Item]: yield Author("x")
class Rows(trawl.Spider[Row]):
    name = "rows"
    def parse(self, response) -> Iterator[Row]: yield {"a": "x"}
"""
    assert checked(tmp_path, body) == []


def test_the_command_prints_a_line_each_and_says_so_by_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.py").write_text("import trawl\nclass Good(trawl.Spider): name, start_urls = 'good', []\n", "utf-8")
    Path("bad.py").write_text(
        "import trawl\nclass Base(trawl.Spider):\n    start_urls = ['x']; parse = print\n"
        "class One(Base): name = 'one'\nclass Two(Base):\n  name = 'two'\n  allowed_domains = ['/']\n",
        "utf-8",
    )
    Path("broken.py").write_text("import trawl\n\nclass:\n", "utf-8")
    assert main(["check", "good.py"]) == 0
    assert capsys.readouterr().out == "1 spider: nothing wrong\n"
    assert main(["check", "good.py", "bad.py:One", "broken.py", "none.py"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["bad.py:3", "broken.py, line 3", "none.py"]
    assert main(["check", "bad.py"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["bad.py:3", "bad.py:3", "bad.py:7"]


def test_the_command_looks_at_the_settings_around_a_spider_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import trawl\nclass One(trawl.Spider): name, start_urls = 'one', []\n"
    text += "class Two(One):\n  own_settings = {'MINE': 1}\n"
    Path("two.py").write_text(text, "utf-8")
    Path("pyproject.toml").write_text("[tool.trawl]\nMINE = 2\n", "utf-8")
    assert main(["check", "two.py"]) == 1
    assert capsys.readouterr().out.startswith(f"unknown setting MINE (in {tmp_path / 'pyproject.toml'})")
    assert main(["check", "two.py:Two"]) == 0
    Path("pyproject.toml").write_text("[tool.trawl]\nMINE = 'x'\n", "utf-8")
    assert main(["check", "two.py:Two"]) == 1
    assert "MINE must be a whole number, not 'x'" in capsys.readouterr().out


def test_a_spider_may_set_what_the_project_around_it_declares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import trawl\nclass A(trawl.Spider):\n  name, start_urls = 'a', []\n  custom_settings = {'MINE': 1.5}\n"
    Path("mine.py").write_text(text, "utf-8")
    assert main(["check", "mine.py"]) == 1
    assert capsys.readouterr().out.startswith("mine.py:4: unknown setting MINE (in custom_settings)")
    Path("pyproject.toml").write_text("[tool.trawl.own]\nMINE = 2.5\n", "utf-8")
    assert main(["check", "mine.py"]) == 0
    Path("mine.py").write_text(text.replace("1.5", "'x'"), "utf-8")
    assert main(["check", "mine.py"]) == 1
    assert "mine.py:4: MINE must be a number, not 'x'" in capsys.readouterr().out


def test_imports_of_scrapys_that_are_left_are_told_where_scrapy_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scrapy.py").write_text("class DropItem(Exception): pass\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    body = "from scrapy import DropItem\nclass A(trawl.Spider):\n    name = 'a'\n"
    assert checked(tmp_path, body) == ['1: change "from scrapy import DropItem" to "from trawl import DropItem"']
    del sys.modules["scrapy"]


def test_the_command_checks_all_files_with_spiders_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        Path("shop").mkdir(exist_ok=True)
        body = f"    name = {name!r}\n    start_urls = []\n"
        Path(f"shop/my_{name}.py").write_text(f"import trawl\nclass A(trawl.Spider):\n{body}", "utf-8")
    Path("shop/__init__.py").touch()
    Path("shop/items.py").write_text("import no_such_thing\n", "utf-8")
    assert main(["check", "shop"]) == 0
    assert capsys.readouterr().out == "2 spiders: nothing wrong\n"
    assert main(["check", "shop/__init__.py", "shop/my_first.py"]) == 0
    assert capsys.readouterr().out == "1 spider: nothing wrong\n"
    Path("shop/broken.py").write_text("import trawl\nclass B(trawl.Spider)\n", "utf-8")
    assert main(["check", "shop"]) == 1
    assert capsys.readouterr().out == "broken.py, line 2: SyntaxError: expected ':'\n"
    Path("empty").mkdir()
    assert main(["check", "empty"]) == 2
    assert "empty" in capsys.readouterr().out


TEXTS = "header values are str, not bytes; remove decode()"
BYTES = "header values are str, not bytes; remove the b before the quotes"
PAIRS = "dict(headers) has one value for each name; use dict(headers.items()) for lists of values"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = response.headers['A'].decode()", TEXTS),
        ("x = response.headers.get('A', '').decode('utf-8')", TEXTS),
        ("x = response.request.headers.getlist('A')[0].decode()", TEXTS),
        ("x = response.body.decode() + response.headers['A']", None),
        ("x = response.body_as_unicode()", "body_as_unicode() does not exist; use response.text"),
        ("x = trawl.Selector(response)", None),
        ("x = trawl.Selector(text='x')", None),
        ("x = response.headers.to_unicode_dict()", None),
        ("x = response.headers.get('A') == b'x'", BYTES),
        ("x = b'x' in response.headers['A']", BYTES),
        ("x = response.headers.get('A') in (b'x', b'y')", BYTES),
        ("x = response.headers['A'].split(b';')", BYTES),
        ("x = b'A' in response.headers and response.headers.get(b'A') == 'x'", None),
        ("x = response.body == b'x'", None),
        ("yield trawl.Request('http://a', flags=['x'])", "Request() does not support 'flags'; use meta instead"),
        ("yield trawl.FormRequest('http://a', encoding='latin-1')", None),
        (
            "yield trawl.Request('http://a', self.parse, 'POST')",
            "Request() takes only url and callback as positional arguments; pass the rest by keyword",
        ),
        ("x = urllib.request.Request('http://a', b'x', {})", None),
    ],
)
def test_scrapys_ways_that_fail_when_a_page_comes_are_told_before(
    tmp_path: Path, line: str, expected: str | None
) -> None:
    body = f"class A(trawl.Spider):\n    name = 'a'\n    def parse(self, response):\n        {line}\n"
    assert checked(tmp_path, body) == ([] if expected is None else [f"4: {expected}"])


def test_a_method_that_scrapy_calls_at_the_end_and_nothing_here_is_told(tmp_path: Path) -> None:
    body = "class A(trawl.Spider):\n    name = 'a'\n    def close(self, reason):\n        pass\n"
    assert checked(tmp_path, body) == ["3: close() is never called; name it closed(self, reason)"]


@pytest.mark.parametrize(("said", "is_told"), [("", True), ("SCRAPY_COMPAT = true\n", False)])
def test_what_a_moved_crawl_has_is_not_told_where_the_project_says_that_it_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str, is_told: bool
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.trawl]\n{said}")
    (tmp_path / "shop.py").write_text(
        "import trawl\nclass Shop(trawl.Spider):\n    name = 'shop'\n    start_urls = ['http://a.example/']\n"
        "    own_settings = {'BOT_NAME': 'shop'}\n"
        "    def parse(self, response):\n        yield {'a': response.headers['A'].decode()}\n"
        "    def close(self, reason):\n        pass\n"
    )
    assert main(["check", str(tmp_path / "shop.py")]) == int(is_told)
    output = capsys.readouterr().out
    told = ("remove decode()", "close() is never called", "BOT_NAME is a setting of Scrapy's")
    assert [words in output for words in told] == [is_told] * 3


def test_in_a_folder_every_file_is_looked_at_for_imports_of_scrapys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("depot").mkdir()
    Path("depot/my_depot.py").write_text("import trawl\nclass A(trawl.Spider):\n    name = 'depot'; start_urls = []\n")
    Path("depot/pipelines.py").write_text("\nfrom scrapy.exceptions import DropItem\n", "utf-8")
    Path("depot/broken.py").write_text("class:\n", "utf-8")
    assert main(["check", "depot"]) == 2
    line = "from {}.exceptions import DropItem"
    told = f'depot/pipelines.py:2: change "{line.format("scrapy")}" to "{line.format("trawl")}"'
    assert capsys.readouterr().out == f"{told}\n"


def test_a_setting_that_has_no_effect_is_told_once_and_is_nothing_wrong(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop_of_old.py"
    body = "    name, start_urls = 'a', []\n"
    body += "    custom_settings = {'DEPTH_PRIORITY': 1}\n    def parse(self, response): pass\n"
    file.write_text(f"import trawl\nclass A(trawl.Spider):\n{body}", "utf-8")
    assert main(["check", str(file)]) == 0
    told = f"DEPTH_PRIORITY (in custom_settings, {file}:4) is Scrapy's and has no effect: trawl always uses the order"
    assert capfd.readouterr() == (
        "1 spider: nothing wrong\n",
        f"{told} of 1 with FIFO queues; for another order, use DEPTH_FIRST or priorities\n",
    )


def test_a_part_that_settings_name_and_that_can_not_be_imported_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "named_parts.py").write_text("def Kept(fetch):\n    return fetch\n", "utf-8")
    (tmp_path / "failing_parts.py").write_text("class Old(Retry):\n    pass\n", "utf-8")
    parts = '{ "named_parts.Kept" = 1, "named_parts.Kep" = 2, "retry" = 550 }'
    (tmp_path / "pyproject.toml").write_text(f"[tool.trawl]\nDOWNLOADER_MIDDLEWARES = {parts}\n", "utf-8")
    spider = "import trawl\n\nclass One(trawl.Spider):\n    name = 'one'\n    start_urls = []\n"
    custom = '{"ITEM_PIPELINES": {"failing_parts.Old": 1, "failing_parts.Out": None}}'
    (tmp_path / "with_parts.py").write_text(f"{spider}    custom_settings = {custom}\n", "utf-8")
    assert main(["check", "with_parts.py"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2
    assert said[0].startswith("DOWNLOADER_MIDDLEWARES names 'named_parts.Kep', which can't be imported: ")
    assert said[1].startswith("ITEM_PIPELINES names 'failing_parts.Old', which can't be imported: failing_parts.py")


def test_a_method_of_a_throttling_manager_that_is_mistyped_is_told_and_none_that_is_right_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spider = "import trawl\n\nclass {0}:\n{1}\n\nclass One(trawl.Spider):\n"
    spider += "    name, start_urls = 'one', []\n    custom_settings = "
    right, wrong = "    def get_scopes(self, request): ...", "    def get_response_backof(self, response): ..."
    settings = "{'THROTTLING_MANAGER': MistypedManager}\n"
    (tmp_path / "mistyped.py").write_text(spider.format("MistypedManager", f"{right}\n{wrong}") + settings, "utf-8")
    assert main(["check", "mistyped.py"]) == 1
    right = "get_response_backof() is never called; did you mean get_response_backoff()?"
    assert capsys.readouterr().out.splitlines() == [f"THROTTLING_MANAGER: {right}"]
    settings = "{'THROTTLING_SCOPES': {'api': {'manager': ForeignManager}}}\n"
    (tmp_path / "foreign.py").write_text(spider.format("ForeignManager", wrong) + settings, "utf-8")
    assert main(["crawl", "foreign.py", "--quiet"]) == 2
    assert "THROTTLING_SCOPES['api']['manager']" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = response.headers['A'].decode()", None),
        ("x = response.headers.get('A') == b'x' or b'y' in response.headers['A']", None),
        ("x = b'; '.join(response.headers.getlist('Set-Cookie'))", BYTES),
        ("x = b'; '.join(response.body.split())", None),
        ("x = dict(response.headers)", PAIRS),
        ("x = dict(response.headers.items())", None),
    ],
)
def test_a_moved_spiders_header_values_pass_for_bytes_where_they_can(
    tmp_path: Path, line: str, expected: str | None
) -> None:
    settings = {"DOWNLOAD_VERIFY_CERTIFICATES": False, "ROBOTSTXT_OBEY": False}
    body = f"class A(trawl.Spider):\n    name = 'a'\n    custom_settings = {settings}\n"
    body += f"    def parse(self, response):\n        {line}\n"
    body = f"import trawl as scrapy\n{body}"
    assert checked(tmp_path, body) == ([] if expected is None else [f"6: {expected}"])
