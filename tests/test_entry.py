"""How a program begins a crawl: what can't work is told the way that does, and what is the program's own stays so."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

import trawl
from trawl._run import crawl_with
from trawl.compat.messages import ScrapyHeaders
from trawl.errors import TrawlError
from trawl.http import Headers, Request, Response
from trawl.settings import Layer, load
from trawl.testing import SimulatedWeb


class Pages(trawl.Spider):
    name = "pages"


@pytest.mark.parametrize("given", ["quotes", Pages(), object, None])
def test_what_is_not_a_spiders_class_is_refused_with_what_to_give(given: Any) -> None:
    with pytest.raises(TypeError, match=r"a crawl takes a spider's class, not .*; import the class and pass it"):
        trawl.run(given)


def test_a_name_is_what_the_command_takes() -> None:
    name: Any = "quotes"
    with pytest.raises(TypeError, match=r"or type `trawl crawl quotes`$"):
        trawl.run(name)


async def opened() -> None:
    async with trawl.open_crawl(Pages):
        pass


@pytest.mark.parametrize("begin", [lambda: trawl.crawl(Pages), opened])
def test_under_asyncio_a_crawl_names_the_function_for_asyncio(begin: Any) -> None:
    with pytest.raises(RuntimeError, match=r"under asyncio `await trawl.crawl_in_asyncio\(MySpider\)`"):
        asyncio.run(begin())


def test_run_inside_a_running_asyncio_loop_names_the_function_for_asyncio() -> None:
    async def main() -> None:
        trawl.run(Pages)

    with pytest.raises(RuntimeError, match=r"asyncio already runs .*; write `await trawl.crawl_in_asyncio\(Pages"):
        asyncio.run(main())


async def test_inside_trio_run_says_what_to_await() -> None:
    with pytest.raises(
        RuntimeError, match=r"Trio already runs in this thread; write `await trawl.crawl\(Pages, ...\)`"
    ):
        trawl.run(Pages)


def collector() -> tuple[Any, ...]:
    return gc.isenabled(), gc.get_threshold(), gc.callbacks.copy(), gc.get_freeze_count()


class Looking(trawl.Spider):
    """Notes how the garbage collector is set while it runs."""

    name = "looking"
    noted: tuple[Any, ...] = ()

    async def start(self) -> AsyncIterator[Any]:
        type(self).noted = collector()
        yield {}


def test_a_crawl_inside_a_program_leaves_its_garbage_collector_alone() -> None:
    before = collector()
    assert trawl.run(Looking).items == [{}]
    *kept, frozen = before
    *noted, still_frozen = Looking.noted
    assert noted == kept
    assert still_frozen <= frozen  # a frozen object may have been freed


async def test_a_crawl_leaves_the_header_class_of_its_caller() -> None:
    made = []
    inner = load(Layer("test", {"ROBOTSTXT_OBEY": False, "SCRAPY_COMPAT": True}))
    web = SimulatedWeb()
    web.add_page("http://a.example/")

    class Inner(trawl.Spider):
        name = "inner"
        start_urls = ("http://a.example/",)

        def parse(self, response: Response) -> Any:
            made.append(type(Request("http://b.example/", headers={"A": "1"}).headers))
            yield None

    for settings in (inner, load(Layer("test", {"JOB_DIR": "/dev/null/job"}))):
        with suppress(TrawlError):
            await crawl_with(Inner, settings, transport=web.transport())
        assert type(Request("http://b.example/", headers={"A": "1"}).headers) is Headers
    assert made == [ScrapyHeaders]
