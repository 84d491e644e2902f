"""What each item passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trawl.errors import DropItem, SettingsError
from trawl.pipelines import PIPELINES_CLOSE_GRACE, Pipelines, PipelinesSettings

Item = dict[str, object]
SPIDER = object()


class Adds:
    def process_item(self, item: Item, spider: object) -> Item:
        assert spider is SPIDER
        return {**item, "steps": [*self.steps(item), "adds"]}

    @staticmethod
    def steps(item: Item) -> list[str]:
        steps = item.get("steps", [])
        assert isinstance(steps, list)
        return steps


class AddsLater(Adds):
    async def process_item(self, item: Item) -> Item:  # type: ignore[override]  # the spider may be left out
        await trio.sleep(1)
        return {**item, "steps": [*self.steps(item), "adds later"]}


class Drops:
    def process_item(self, item: Item, spider: object) -> Item:
        raise DropItem("no price")


class Fails:
    def process_item(self, item: Item, spider: object) -> Item:
        raise KeyError("price")


class Forgets:
    def process_item(self, item: Item, spider: object) -> None:
        item["seen"] = True


class FromCrawler(Adds):
    def __init__(self, crawl: object) -> None:
        self.crawl = crawl

    @classmethod
    def from_crawler(cls, crawler: object) -> FromCrawler:
        return cls(crawler)

    def process_item(self, item: Item, spider: object) -> Item:
        return {"crawl": self.crawl}


class Logs:
    """Logs what is done to it."""

    def __init__(self, name: str, log: list[str], fails: str = "") -> None:
        self.name, self.log, self.fails = name, log, fails

    def note(self, what: str) -> None:
        self.log.append(f"{what} {self.name}")
        if self.fails == what:
            raise RuntimeError(what)

    def open_spider(self, spider: object) -> None:
        self.note("open")

    async def close_spider(self) -> None:
        await trio.lowlevel.checkpoint()
        self.note("close")


def built(pipelines: dict[Any, float | None], crawl: object = None) -> Pipelines:
    return Pipelines.build(PipelinesSettings(item_pipelines=pipelines), crawl)


async def test_items_pass_in_the_order_of_the_numbers_plain_or_async(autojump_clock: MockClock) -> None:
    chain = built({Adds: 300, AddsLater: 100, Drops: None})
    assert (await chain.process({"a": 1}, SPIDER)) == {"a": 1, "steps": ["adds later", "adds"]}
    assert trio.current_time() == 1


async def test_equal_numbers_keep_their_order(autojump_clock: MockClock) -> None:
    chain = built({Adds: 1, AddsLater: 1})
    assert (await chain.process({}, SPIDER))["steps"] == ["adds", "adds later"]


async def test_without_pipelines_an_item_passes_as_it_is() -> None:
    item: Item = {}
    assert Pipelines().is_empty
    assert await Pipelines().process(item, SPIDER) is item
    assert not built({Adds: 1}).is_empty


async def test_a_pipeline_may_be_named_by_its_path_and_made_from_the_crawl() -> None:
    crawl = object()
    chain = built({f"{__name__}.FromCrawler": 1}, crawl)
    assert await chain.process({}, SPIDER) == {"crawl": crawl}


async def test_an_object_is_a_pipeline_too() -> None:
    assert (await built({Adds(): 1}).process({}, SPIDER))["steps"] == ["adds"]


async def test_a_dropped_item_goes_no_further() -> None:
    with pytest.raises(DropItem, match="no price"):
        await built({Drops: 1, Fails: 2}).process({}, SPIDER)


async def test_an_error_says_in_which_pipeline_it_was() -> None:
    with pytest.raises(KeyError) as caught:
        await built({Fails: 1}).process({}, SPIDER)
    assert caught.value.__notes__ == ["in the item pipeline Fails"]


async def test_a_pipeline_that_forgets_to_return_the_item_is_told_so() -> None:
    with pytest.raises(TypeError, match="process_item of Forgets returned None: return the item, or raise DropItem"):
        await built({Forgets: 1}).process({}, SPIDER)


async def test_pipelines_are_opened_in_order_and_closed_in_reverse() -> None:
    log: list[str] = []
    chain = Pipelines([Logs("a", log), Adds(), Logs("b", log)])
    async with chain.opened(SPIDER):
        log.append("crawl")
        assert (await chain.process({}, SPIDER))["steps"] == ["adds"]
    assert log == ["open a", "open b", "crawl", "close b", "close a"]


async def test_one_that_cannot_be_opened_closes_those_before_it() -> None:
    log: list[str] = []
    chain = Pipelines([Logs("a", log), Logs("b", log, fails="open"), Logs("c", log)])
    with pytest.raises(RuntimeError) as caught:
        async with chain.opened(SPIDER):
            log.append("crawl")
    assert log == ["open a", "open b", "close a"]
    assert caught.value.__notes__ == ["in open_spider of the item pipeline Logs"]


async def test_one_that_cannot_be_closed_is_logged_and_the_others_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []
    async with Pipelines([Logs("a", log), Logs("b", log, fails="close")]).opened(SPIDER):
        pass
    assert log[2:] == ["close b", "close a"]
    assert "close_spider of the item pipeline Logs failed" in caplog.text


async def test_pipelines_are_closed_when_the_crawl_is_cancelled() -> None:
    log: list[str] = []
    with trio.CancelScope() as scope:
        async with Pipelines([Logs("a", log)]).opened(SPIDER):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert log == ["open a", "close a"]


async def test_one_that_never_closes_holds_up_the_end_for_a_limited_time(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Stays:
        async def close_spider(self, spider: object) -> None:
            await trio.sleep_forever()

    async with Pipelines([Stays()]).opened(SPIDER):
        pass
    assert trio.current_time() == PIPELINES_CLOSE_GRACE
    assert "did not close within 30 s" in caplog.text


class NeedsArguments:
    def __init__(self, path: str) -> None: ...


class NoPipeline: ...


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("no.such.Pipeline", "ITEM_PIPELINES names 'no.such.Pipeline', which can't be imported: No module named 'no'"),
        ("decimal.Nothing", "ITEM_PIPELINES names 'decimal.Nothing', which can't be imported"),
        ("not a path", "ITEM_PIPELINES names 'not a path', which is not an import path; write package.module.Name"),
        (NeedsArguments, "ITEM_PIPELINES: NeedsArguments can't be made: .*'path'"),
        (NoPipeline, "ITEM_PIPELINES: NoPipeline has no process_item"),
        (len, "ITEM_PIPELINES: len has no process_item"),
    ],
)
def test_what_is_no_pipeline_is_refused_in_one_line(entry: object, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as caught:
        built({entry: 1})
    assert "\n" not in str(caught.value)


def test_a_callable_without_a_signature_is_given_all() -> None:
    class Odd:
        process_item: Callable[..., object] = max

    assert not Pipelines([Odd()]).is_empty


def test_a_method_that_takes_other_arguments_is_refused_before_an_item_is_lost() -> None:
    class Forgets:
        def process_item(self) -> None: ...

    class Wants:
        def open_spider(self, spider: Any, more: Any) -> None: ...

    class Names:
        process_item = "no"

    for pipeline, why in (
        (Forgets, r"Forgets.process_item has to take an item \(and the spider\): too many positional arguments"),
        (Wants, "Wants.open_spider has to take the spider, or nothing: missing a required argument: 'spider'"),
        (Names, "Names.process_item must be a function, not 'no'"),
    ):
        with pytest.raises(SettingsError, match=rf"^ITEM_PIPELINES: .*{why}$"):
            Pipelines([pipeline()])
