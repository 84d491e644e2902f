"""Each import of Scrapy's is told with what to write in its place, and what is told is so."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import trawl.exceptions
from trawl.scrapy_names.imports import changes
from trawl.scrapy_names.names import MOVED, REPLACEMENTS, TWISTED, TWISTED_WAYS, name_advice, place
from trawl.settings import definitions

SETTINGS = {definition.name for definition in definitions()}
NO_SETTINGS = {"DEBUG", "FILE", "JSON", "POST"}


def told(source: str) -> list[str]:
    return [str(change) for change in changes(source)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import scrapy", "import trawl as scrapy"),
        ("import scrapy as s", "import trawl as s"),
        ("import scrapy.http", "import trawl as scrapy"),
        ("import scrapy.http as h", "import trawl.http as h"),
        ("import scrapy.http.response.html", "import trawl as scrapy"),
        ("import json, scrapy", "import json; import trawl as scrapy"),
        ("from scrapy import Request, Spider", "from trawl import Request, Spider"),
        ("from scrapy import signals", "from trawl import signals"),
        ("from scrapy.spiders import CrawlSpider, Rule", "from trawl.spiders import CrawlSpider, Rule"),
        ("from scrapy.linkextractors import LinkExtractor as L", "from trawl.linkextractors import LinkExtractor as L"),
        ("from scrapy.http import HtmlResponse, Request", "from trawl.http import HtmlResponse, Request"),
        ("from scrapy.http.request import Request", "from trawl.http.request import Request"),
        ("from scrapy.http.response.html import HtmlResponse", "from trawl.http import HtmlResponse"),
        ("from scrapy.item import Item, Field", "from trawl.item import Item, Field"),
        (
            "from scrapy.core.scraper import logger as log",
            "from logging import getLogger; log = getLogger('scrapy.core.scraper')",
        ),
        ("from scrapy.link import Link", "from trawl.link import Link"),
        ("from scrapy.loader import ItemLoader", "from trawl.loader import ItemLoader"),
        ("from scrapy.loader.processors import TakeFirst", "from itemloaders.processors import TakeFirst"),
        ("from scrapy.selector import Selector", "from trawl.selector import Selector"),
        ("from scrapy.crawler import CrawlerProcess", "from trawl.crawler import CrawlerProcess"),
        ("from scrapy.exceptions import DropItem", "from trawl.exceptions import DropItem"),
        ("from scrapy.pipelines.images import ImagesPipeline", "from trawl.pipelines.images import ImagesPipeline"),
        ("from scrapy.spidermiddlewares.httperror import HttpError", "from trawl.exceptions import HttpError"),
        (
            "from scrapy.downloadermiddlewares.retry import get_retry_request",
            "from trawl.middleware import get_retry_request",
        ),
        ("from scrapy.settings import BaseSettings", "from trawl.spiders import CustomSettings as BaseSettings"),
        (
            "from twisted.internet.error import DNSLookupError, TimeoutError",
            "from trawl.exceptions import NameNotResolved as DNSLookupError, DownloadTimeout as TimeoutError",
        ),
        (
            "from scrapy.exceptions import DropItem, CannotResolveHostError as C",
            "from trawl.exceptions import DropItem, NameNotResolved as C",
        ),
        (
            "from scrapy.utils.project import get_project_settings",
            "from trawl.utils.project import get_project_settings",
        ),
        (
            "from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter",
            "from trawl.compat import BaseDupeFilter, RFPDupeFilter",
        ),
        ("from scrapy.utils.misc import load_object", "from trawl.utils.misc import load_object"),
        ("from scrapy.utils.log import configure_logging", "from trawl.utils.log import configure_logging"),
        ("from scrapy.utils.response import get_base_url", "from trawl.utils.response import get_base_url"),
        ("from scrapy.utils.request import request_fingerprint", "from trawl.utils.request import request_fingerprint"),
        ("from scrapy.utils.test import get_crawler", "from trawl.utils.test import get_crawler"),
        ("from scrapy.utils.python import to_bytes, to_unicode", "from trawl.utils.python import to_bytes, to_unicode"),
    ],
)
def test_an_import_of_scrapys_is_written_for_trawl(before: str, after: str) -> None:
    assert told(before) == [f'change "{before}" to "{after}"']
    exec(after.replace("; ", "\n"), {})
    assert told(after.replace("; ", "\n")) == []


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("from scrapy.utils.project import init_env", "init_env is not here: trawl.run() and the command read"),
        ("from scrapy.utils.log import TopLevelFormatter", "the command sets up the log"),
        ("from scrapy.utils.reqser import request_to_dict", "a job (JOB_DIR) stores its requests"),
        ("from scrapy.crawler import CrawlerRunner", "trawl.run(Spider"),
        ("from scrapy.extensions.closespider import CloseSpider", "CLOSESPIDER_ITEMCOUNT"),
        ("from scrapy.extensions.mine import Mine", "WATCHERS"),
        ("from scrapy.downloadermiddlewares.cookies import CookiesMiddleware", "COOKIES_ENABLED"),
        *[
            (f"from scrapy.downloadermiddlewares.{module} import {name}", "whose process_request")
            for module, name in (
                *(("cookies", "CookiesMiddleware"), ("defaultheaders", "DefaultHeadersMiddleware")),
                *(("downloadtimeout", "DownloadTimeoutMiddleware"), ("httpauth", "HttpAuthMiddleware")),
                ("offsite", "OffsiteMiddleware"),
            )
        ],
        *[
            (f"from scrapy.spidermiddlewares.{module} import {name}", "whose process_spider_output")
            for module, name in (
                *(("depth", "DepthMiddleware"), ("referer", "RefererMiddleware"), ("urllength", "UrlLengthMiddleware")),
            )
        ],
        ("from scrapy.spidermiddlewares.httperror import HttpErrorMiddleware", "an errback, whose HttpError has the"),
        ("from scrapy.shell import inspect_response", "`breakpoint()` in the callback"),
        ("from scrapy.utils.request import request_to_dict, request_from_dict", "a job (JOB_DIR) stores its requests"),
        ("from scrapy.exceptions import NotSupported", "css() and xpath()"),
        ("from scrapy.cmdline import execute", "trawl.cli.main"),
        ("from scrapy.nothing import nothing", "the guide 'Coming from Scrapy'"),
        ("from twisted.internet.defer import inlineCallbacks", "inlineCallbacks is Twisted's: write `async def`"),
        ("from twisted.internet.defer import DeferredList", "trio.open_nursery()"),
        ("from twisted.internet.defer import Deferred", "a trio.Event"),
        ("from twisted.internet.threads import deferToThread", "await trio.to_thread.run_sync"),
        (
            "from twisted.internet import reactor, task",
            "reactor is Twisted's: for callLater, `await trio.sleep(",
        ),
        ("from twisted.enterprise import adbapi", "in an async process_item, `await trio.to_thread.run_sync"),
        ("from twisted.words import xish", "trawl runs on Trio, without Twisted"),
        ("import twisted.internet.reactor", "twisted.internet.reactor is Twisted's: for callLater"),
        ("from scrapy.utils.defer import maybe_deferred_to_future", "await self.fetch(request)"),
        ("import scrapy.utils.gz", "use the gzip module"),
        ("from trawl.utils.project import init_env", "read [tool.trawl]"),
        ("from trawl.exceptions import StopDownload", "download_maxsize"),
    ],
)
def test_what_is_not_here_is_told_with_what_takes_its_place(before: str, said: str) -> None:
    (change,) = told(before)
    assert change.startswith(f'take out "{before}": ')
    assert said in change


def test_an_import_of_which_some_is_here_is_divided() -> None:
    (change,) = told("from scrapy.exceptions import DropItem, StopDownload, CloseSpider")
    assert ' to "from trawl.exceptions import DropItem, CloseSpider": StopDownload is not here: ' in change


@pytest.mark.parametrize(
    "source",
    [
        "import trawl\nimport trawl.http\nfrom trawl.spiders import Spider, Rule\nfrom trawl.loader import ItemLoader",
        "from trawl.spiders import Sipder\nfrom trawl.middleware import no_such_name",
        "import json\nfrom .scrapy import x\nfrom scrapyard import y",
        "try:\n    import scrapy\nexcept ImportError:\n    scrapy = None",
    ],
)
def test_what_is_right_and_what_is_only_misspelled_is_left_alone(source: str) -> None:
    assert told(source) == []


def test_an_import_inside_a_function_counts() -> None:
    source = "class A:\n    def later(self):\n        with x:\n            from scrapy.shell import inspect_response"
    assert [change.line for change in changes(source)] == [4]


def test_a_conditional_import_counts_where_that_is_asked_for() -> None:
    source = "def late():\n    try:\n        import scrapy\n    except OSError:\n        pass\nif x:\n import twisted"
    assert changes(source) == []
    assert [change.line for change in changes(source, is_whole=True)] == [3, 7]


@pytest.mark.parametrize("name", MOVED)
def test_where_a_name_is_said_to_be_it_is(name: str) -> None:
    home, ours = MOVED[name]
    assert hasattr(import_module(home), ours)


@pytest.mark.parametrize("name", TWISTED.values())
def test_so_is_what_stands_for_an_error_of_twisteds(name: str) -> None:
    assert issubclass(getattr(trawl.exceptions, name), trawl.exceptions.DownloadError)


@pytest.mark.parametrize("words", [*REPLACEMENTS.values(), *TWISTED_WAYS.values()])
def test_what_takes_the_place_of_a_name_is_there(words: str) -> None:
    assert set(re.findall(r"\b[A-Z][A-Z_]{3,}\b", words)) <= SETTINGS | NO_SETTINGS
    for path in re.findall(r"\btrawl(?:\.\w+)+", words):
        if path not in ("trawl.commands", "trawl.feeds"):  # groups of entry points
            module, _, found = path.partition("trawl.")[2].rpartition(".")
            assert place(module, found) is not None, path


def test_what_is_not_here_is_really_not() -> None:
    import_module("trawl.utils")
    for name in REPLACEMENTS:
        module, _, last = name.rpartition(".")
        is_module = f"trawl.{name}" in sys.modules and name.startswith("utils")
        if not is_module and name not in ("loader", "pipelines.files", "middleware"):  # some of what is in them is
            assert place(module, last) is None, name


def test_a_name_of_scrapys_that_is_asked_of_the_package_says_what_to_use() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'mail': use smtplib"):
        _ = trawl.__getattribute__("mail")
    assert trawl.__getattribute__("utils").python.to_bytes("a") == b"a"
    assert not hasattr(trawl, "statscollectors")
    assert name_advice("no.such") == ""


def test_a_package_that_extends_scrapy_is_named_with_what_to_use_instead() -> None:
    (splash, redis) = changes("import os, scrapy_redis.spiders\nfrom scrapy_splash import SplashRequest\n")[::-1]
    assert splash.after == ()
    assert "render.html" in str(splash)
    assert "JOB_DIR to redis://" in str(redis)
    (method,) = changes("from scrapy_playwright.page import PageMethod\n")
    assert "instead of PageMethod objects, meta `browser` with trawl.Page(wait_for=..., run='METHOD')" in str(method)
    assert changes("from scrapy_user_agents.middlewares import RandomUserAgentMiddleware") == []


@pytest.mark.parametrize(
    "line",
    [
        "from trawl.http.headers import Headers",
        "from trawl.exporters import CsvItemExporter",
    ],
)
def test_an_import_of_trawls_that_works_as_it_is_written_is_right(line: str) -> None:
    exec(line)
    assert changes(line) == []


def test_a_file_of_the_users_with_the_name_of_a_plugin_is_not_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "from rotating_proxies import PROXIES"
    assert len(changes(line)) == 1
    (tmp_path / "rotating_proxies.py").write_text("PROXIES = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert changes(line) == []
