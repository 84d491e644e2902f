"""How a program begins a crawl: what can't work is told the way that does, and what is the program's own stays so."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

import trawl


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
def test_under_asyncio_a_crawl_says_how_it_is_run_there(begin: Any) -> None:
    with pytest.raises(RuntimeError, match=r"under asyncio `await asyncio.to_thread\(trawl.run, MySpider\)`"):
        asyncio.run(begin())


def test_what_it_says_works() -> None:
    async def main() -> trawl.CrawlResult:
        return await asyncio.to_thread(trawl.run, Pages)

    assert asyncio.run(main()).reason == "finished"


async def test_inside_trio_run_says_what_to_await() -> None:
    with pytest.raises(
        RuntimeError, match=r"Trio already runs in this thread; write `await trawl.crawl\(Pages, ...\)`"
    ):
        trawl.run(Pages)


def collector() -> tuple[object, ...]:
    return gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.callbacks.copy()


class Looking(trawl.Spider):
    """Notes how the garbage collector is set while it runs."""

    name = "looking"
    noted: tuple[object, ...] = ()

    async def start(self) -> AsyncIterator[Any]:
        type(self).noted = collector()
        yield {}


def test_a_crawl_inside_a_program_leaves_its_garbage_collector_alone() -> None:
    before = collector()
    assert trawl.run(Looking).items == [{}]
    assert Looking.noted == before
