"""E06-E12, E17, E18: managers of the user's own, sync and async, classes and paths, whole and in part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio

import trawl
from tests.promises.crawling import EXACT, FREE, a_web, answering, crawled, page, shown, times
from trawl.exceptions import SettingsError
from trawl.testing import SimulatedResponse
from trawl.throttling import ThrottlingManager, ThrottlingScopeManager

A = "http://a.example"
TOO_MANY = SimulatedResponse(429)


def pages(count: int = 3) -> Callable[[], list[trawl.Request]]:
    return lambda: [trawl.Request(f"{A}/{number}") for number in range(count)]


class Nothing:
    """A manager that lacks everything."""


class Sync:
    """All four, sync."""

    def get_scopes(self, request: trawl.Request) -> Any:
        return {"api": 1.0}

    def get_initial_backoff(self) -> Any:
        return {"api": {"delay": 2.0}}

    def get_response_backoff(self, response: trawl.Response) -> Any:
        return {"api": {"delay": 4.0}} if response.url.endswith("0") else None

    def get_exception_backoff(self, request: trawl.Request, exception: Exception) -> Any:
        return {"api": {"delay": 9.0}}


class Async:
    """All four, async, each taking its time."""

    async def get_scopes(self, request: trawl.Request) -> Any:
        await trio.lowlevel.checkpoint()
        return ["api"]

    async def get_initial_backoff(self) -> Any:
        await trio.lowlevel.checkpoint()
        return {"api": {"delay": 2.0}}

    async def get_response_backoff(self, response: trawl.Response) -> Any:
        await trio.lowlevel.checkpoint()
        return {"api": {"delay": 4.0}} if response.url.endswith("0") else None

    async def get_exception_backoff(self, request: trawl.Request, exception: Exception) -> Any:
        await trio.lowlevel.checkpoint()
        return {"api": {"delay": 9.0}}


class Inheriting(ThrottlingManager):
    """Asks the default first."""

    async def get_scopes(self, request: trawl.Request) -> Any:
        own = await super().get_scopes(request)
        return {own: 1.0, "all": 1.0} if isinstance(own, str) else own

    async def get_initial_backoff(self) -> Any:
        assert await super().get_initial_backoff() is None
        return {"all": {"delay": 2.0}}

    async def get_response_backoff(self, response: trawl.Response) -> Any:
        found = await super().get_response_backoff(response)
        return found and {"all": {"delay": 4.0}}

    async def get_exception_backoff(self, request: trawl.Request, exception: Exception) -> Any:
        return await super().get_exception_backoff(request, exception)


@pytest.mark.parametrize(
    "manager", [Nothing, f"{__name__}.Nothing", ThrottlingManager, "trawl.throttling.ThrottlingManager"]
)
def test_e06_a_class_or_a_path_and_what_it_lacks_is_the_default_managers(manager: object) -> None:
    sim = crawled(pages(), answering(TOO_MANY), EXACT, THROTTLING_MANAGER=manager)
    # The default's scopes (the host), its backoff (B03: 2 s from the answer on), its retry at the back.
    assert shown(sim) == [(0.0, "0"), (2.1, "1"), (4.1, "2"), (6.1, "0")]


def test_e06_it_is_made_by_from_crawler_where_it_has_that_else_without_arguments() -> None:
    made: list[object] = []

    class Made:
        def __init__(self, *arguments: object) -> None:
            made.append(arguments)

    class MadeFor:
        def __init__(self, crawl: trawl.Spider) -> None:
            made.append(crawl)

        @classmethod
        def from_crawler(cls, crawl: Any) -> MadeFor:
            assert crawl.settings["DOWNLOAD_DELAY"] == 1.0
            assert crawl.spider.name == "listed"
            return cls(crawl)

        def get_scopes(self, request: trawl.Request) -> str:
            return "made"

    crawled(pages(), a_web("a.example"), EXACT, THROTTLING_MANAGER=Made)
    assert made == [()]
    sim = crawled(pages(), a_web("a.example"), EXACT, THROTTLING_MANAGER=MadeFor)
    assert len(made) == 2
    assert times(sim) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("wrong", ["nowhere.Manager", "trawl.throttling.Managre", 5, Nothing(), lambda: None])
@pytest.mark.parametrize("setting", ["THROTTLING_MANAGER", "THROTTLING_SCOPE_MANAGER"])
def test_e06_e17_what_is_no_class_is_refused_before_anything_is_sent(setting: str, wrong: object) -> None:
    with pytest.raises(SettingsError, match=setting):
        crawled(pages(), a_web("a.example"), EXACT, **{setting: wrong})


@pytest.mark.parametrize("manager", [Sync, Async])
def test_e07_all_four_methods_may_be_sync_or_async(manager: type) -> None:
    sim = crawled(pages(), a_web("a.example", latency=0.1), FREE, THROTTLING_MANAGER=manager)
    first, second, third = (send.time for send in sim.sends)
    assert (first, second, third) == (2.0, 2.0, 2.0)  # held at the start; three slots, so all were sent by then
    limits = {"THROTTLING_MANAGER": manager, "THROTTLING_SCOPES": {"api": {"concurrency": 1}}}
    assert times(crawled(pages(), a_web("a.example", latency=0.1), FREE, **limits)) == [2.0, 6.1, 7.1]
    broken = a_web("a.example", latency=0.1)
    broken.add_page(f"{A}/1", error=trawl.exceptions.ResponseBroken)
    sim = crawled(pages(2), broken, FREE, RETRY_TIMES=1, **limits, BACKOFF_WINDOW=1e6)
    assert times(sim)[:2] == [2.0, 6.1]
    assert times(sim)[2] >= 6.2 + 9.0


def test_e07_a_subclass_asks_the_default_with_await_super() -> None:
    sim = crawled(pages(2), answering(TOO_MANY), EXACT, THROTTLING_MANAGER=Inheriting)
    assert dict(sim.sends[0].scopes) == {"a.example": 1.0, "all": 1.0}
    assert shown(sim) == [(2.0, "0"), (6.1, "1"), (7.1, "0")]


RETURNED: list[tuple[object, dict[str, float]]] = [
    (None, {}),
    ("x", {"x": 1.0}),
    (["y", "x"], {"x": 1.0, "y": 1.0}),
    ({"x", "y"}, {"x": 1.0, "y": 1.0}),
    ({"x": 5.0, "y": None}, {"x": 5.0, "y": 1.0}),
    ({"x": 0}, {"x": 0.0}),
    ([], {}),
    ("A.Example.", {"a.example": 1.0}),
]


@pytest.mark.parametrize(("returned", "scopes"), RETURNED)
@pytest.mark.parametrize("is_async", [False, True])
def test_e08_none_a_string_an_iterable_or_a_mapping(
    returned: object, scopes: Mapping[str, float], is_async: bool
) -> None:
    class Returning:
        if is_async:

            async def get_scopes(self, request: trawl.Request) -> object:
                return returned
        else:

            def get_scopes(self, request: trawl.Request) -> object:  # type: ignore[misc]
                return returned

    sim = crawled(pages(1), a_web("a.example"), EXACT, THROTTLING_MANAGER=Returning)
    assert [dict(send.scopes) for send in sim.sends] == [dict(scopes)]


def test_e08_a_manager_that_fails_or_returns_nonsense_costs_its_own_request_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing:
        def get_scopes(self, request: trawl.Request) -> object:
            if request.url.endswith("0"):
                raise RuntimeError("no idea")
            return 5 if request.url.endswith("1") else "x"

    sim = crawled(pages(), a_web("a.example"), EXACT, THROTTLING_MANAGER=Failing)
    assert shown(sim) == [(0.0, "2")]
    assert (sim.stats["scope_errors"], sim.reason) == (2, "finished")
    assert "Failing.get_scopes() returned 5: scopes must be" in caplog.text


EXHAUSTED: list[object] = [
    "a.example",
    ["a.example"],
    {"a.example"},
    {"a.example": {}},
    {"A.EXAMPLE": {}},
    {"a.example": None},
]


@pytest.mark.parametrize("said", EXHAUSTED)
def test_e09_exhausted_means_one_trigger(said: object) -> None:
    class Saying:
        def get_response_backoff(self, response: trawl.Response) -> object:
            return said if response.url.endswith("0") else None

    sim = crawled(pages(), a_web("a.example", latency=0.1), EXACT, THROTTLING_MANAGER=Saying)
    assert times(sim)[:2] == [0.0, 2.1]  # B03: from base 1.0 to 2.0, from the answer on
    assert times(sim)[2] == 4.1


def test_e09_a_delay_is_a_trigger_that_says_how_long() -> None:
    class Saying:
        def get_response_backoff(self, response: trawl.Response) -> object:
            return {"a.example": {"delay": 10.0}} if response.url.endswith("0") else None

    sim = crawled(pages(), a_web("a.example", latency=0.1), EXACT, THROTTLING_MANAGER=Saying)
    assert times(sim)[:3] == [0.0, 10.1, 12.1]  # and the standing delay took one step (D06)


@pytest.mark.parametrize("key", ["remaining", "quota"])
def test_e09_remaining_sets_what_is_left_and_quota_is_read_as_it(key: str) -> None:
    class Saying:
        def get_response_backoff(self, response: trawl.Response) -> object:
            return {"api": {key: 1.0}} if response.url.endswith("0") else None

    scopes = {"api": {"quota": 10, "window": 60.0, "concurrency": 1}}
    sim = crawled(
        lambda: [page(f"{A}/{number}", "api") for number in range(4)],
        a_web("a.example", latency=0.1),
        FREE,
        THROTTLING_MANAGER=Saying,
        THROTTLING_SCOPES=scopes,
    )
    assert times(sim) == [0.0, 0.1, 60.0, 60.1]  # one more fits; no step was taken


@pytest.mark.parametrize(
    "said",
    [
        5,
        {"a.example": 5},
        {"a.example": {"delay": "soon"}},
        {"a.example": {"dely": 1.0}},
        {5: {}},
        {"a.example": {"delay": -1}},
    ],
)
def test_e09_nonsense_is_counted_and_harms_nobody(said: object, caplog: pytest.LogCaptureFixture) -> None:
    class Saying:
        def get_response_backoff(self, response: trawl.Response) -> object:
            return said

    sim = crawled(pages(), a_web("a.example", latency=0.1), EXACT, THROTTLING_MANAGER=Saying)
    assert times(sim) == [0.0, 1.0, 2.0]
    assert (sim.stats["throttling_errors"], len(sim.sends), sim.reason) == (3, 3, "finished")
    assert "Saying.get_response_backoff() returned" in caplog.text


def test_e10_the_initial_delay_only_holds() -> None:
    class Holding:
        async def get_initial_backoff(self) -> object:
            return {"scope1": {"delay": 5.0}}

    def requests() -> list[trawl.Request]:
        return [page(f"{A}/{number}", "scope1") for number in range(3)] + [page(f"{A}/free", "scope2")]

    limits = {"THROTTLING_SCOPES": {"scope1": {"delay": 1.0}}}
    sim = crawled(requests, a_web("a.example", latency=0.1), FREE, THROTTLING_MANAGER=Holding, **limits)
    assert shown(sim) == [(0.0, "free"), (5.0, "0"), (6.0, "1"), (7.0, "2")]


@pytest.mark.parametrize("said", [{"a.example": {}}, "a.example", ["a.example"]])
def test_e10_exhausted_at_the_start_takes_one_step(said: object) -> None:
    class Exhausted:
        def get_initial_backoff(self) -> object:
            return said

    sim = crawled(pages(), a_web("a.example", latency=0.1), EXACT, THROTTLING_MANAGER=Exhausted)
    assert sim.gaps("a.example") == [2.0, 2.0]


def test_e10_a_manager_that_fails_at_the_start_holds_nothing_and_ends_nothing() -> None:
    class Failing:
        def get_initial_backoff(self) -> object:
            raise RuntimeError("no idea")

    sim = crawled(pages(), a_web("a.example", latency=0.1), EXACT, THROTTLING_MANAGER=Failing)
    assert (times(sim), sim.reason) == ([0.0, 1.0, 2.0], "finished")


@pytest.mark.parametrize(("figures", "has_step"), [({"consumed": 9.0}, False), ({"consumed": 9.0, "delay": 5.0}, True)])
def test_e11_consumed_alone_corrects_the_quota_and_with_a_delay_it_also_steps(
    figures: dict[str, float], has_step: bool
) -> None:
    class Saying:
        def get_response_backoff(self, response: trawl.Response) -> object:
            return {"api": figures} if response.url.endswith("0") else None

    scopes = {"api": {"quota": 10, "window": 30.0, "delay": 1.0}}
    sim = crawled(
        lambda: [page(f"{A}/{number}", "api") for number in range(4)],
        a_web("a.example", latency=0.1),
        FREE,
        THROTTLING_MANAGER=Saying,
        THROTTLING_SCOPES=scopes,
    )
    # 9 of 10 are spent, one more fits; the third waits for the window.
    assert times(sim) == ([0.0, 5.1, 30.0, 32.0] if has_step else [0.0, 1.0, 30.0, 31.0])


@pytest.mark.parametrize("is_async", [False, True])
def test_e12_get_response_delay_is_overridable(is_async: bool) -> None:
    class Sync(ThrottlingManager):
        def get_response_delay(self, response: trawl.Response) -> float | None:
            return float(response.headers.get("X-Wait") or 0)

    class Async(ThrottlingManager):
        async def get_response_delay(self, response: trawl.Response) -> float | None:  # type: ignore[override]
            return float(response.headers.get("X-Wait") or 0)

    web = answering(SimulatedResponse(429, headers={"X-Wait": "7", "Retry-After": "30"}))
    sim = crawled(pages(2), web, EXACT, THROTTLING_MANAGER=Async if is_async else Sync)
    assert times(sim)[:2] == [0.0, 7.1]


def test_e17_one_scope_manager_a_scope_called_with_the_merged_configuration() -> None:
    made: list[Mapping[str, Any]] = []

    class Keeping:
        def __init__(self, config: Mapping[str, Any]) -> None:
            made.append(config)

    urls = [f"{A}/0", "http://b.example/0", f"{A}/1", "http://b.example/1"]
    sim = crawled(
        lambda: map(trawl.Request, urls),
        a_web("a.example", "b.example"),
        EXACT,
        THROTTLING_SCOPE_MANAGER=Keeping,
        THROTTLING_SCOPES={"b.example": {"delay": 2.5, "ignore_robots_txt": True, "backoff": {"max_delay": 7.0}}},
    )
    assert sim.times("b.example") == [0.0, 2.5]
    assert [config["ignore_robots_txt"] for config in made] == [False, True]
    assert [config["id"] for config in made] == ["a.example", "b.example"]
    assert [(config["concurrency"], config["delay"]) for config in made] == [(1, 1.0), (1, 2.5)]
    assert [config["backoff"]["max_delay"] for config in made] == [300.0, 7.0]


def test_e17_made_by_from_crawler_with_the_configuration_where_it_has_that() -> None:
    made: list[tuple[Any, Mapping[str, Any]]] = []

    class Made(ThrottlingScopeManager):
        @classmethod
        def from_crawler(cls, crawl: Any, config: Mapping[str, Any]) -> Made:
            made.append((crawl, config))
            return cls(config)

    crawled(pages(2), a_web("a.example"), EXACT, THROTTLING_SCOPE_MANAGER=Made)
    assert [(crawl.spider.name, config["id"]) for crawl, config in made] == [("listed", "a.example")]


class OnlyTeapots(ThrottlingScopeManager):
    """A scope manager with a word of its own on what says "slow down"."""

    def is_trigger(self, response: trawl.Response | None, exception: Exception | None) -> bool | None:
        return response is not None and response.status == 418


@pytest.mark.parametrize("manager", [OnlyTeapots, f"{__name__}.OnlyTeapots"])
def test_e18_the_key_manager_names_one_for_a_single_scope(manager: object) -> None:
    web = a_web("a.example", "b.example", latency=0.1, status=418)
    sim = crawled(
        lambda: [trawl.Request(f"http://{host}.example/{number}") for number in range(3) for host in "ab"],
        web,
        EXACT,
        THROTTLING_SCOPES={"a.example": {"manager": manager}},
    )
    assert sim.times("a.example")[:3] == [0.0, 2.1, 6.2]
    assert sim.times("b.example") == [0.0, 1.0, 2.0]


class Drafted:
    """A manager written against the field's draft, which names the first method otherwise."""

    def get_request_scopes(self, request: trawl.Request) -> str:
        return "api"


class DraftedSubclass(ThrottlingManager):
    """The same, of ours: nothing of it is overridden."""

    async def get_request_scopes(self, request: trawl.Request) -> str:
        return "api"


class DraftedScope:
    """A scope manager that nobody asks."""

    def is_triggered(self, response: trawl.Response) -> bool:
        return True


@pytest.mark.parametrize(
    ("settings", "path", "right"),
    [
        ({"THROTTLING_MANAGER": Drafted}, "THROTTLING_MANAGER", "get_scopes"),
        ({"THROTTLING_MANAGER": f"{__name__}.DraftedSubclass"}, "THROTTLING_MANAGER", "get_scopes"),
        ({"THROTTLING_SCOPE_MANAGER": DraftedScope}, "THROTTLING_SCOPE_MANAGER", "is_trigger"),
        (
            {"THROTTLING_SCOPES": {"api": {"manager": DraftedScope}}},
            "THROTTLING_SCOPES['api']['manager']",
            "is_trigger",
        ),
    ],
)
def test_e06_e17_a_manager_none_of_whose_methods_is_asked_is_refused_with_the_nearest_name(
    settings: dict[str, Any], path: str, right: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        crawled(pages(), a_web("a.example"), EXACT, **settings)
    assert str(caught.value).startswith(f"{path}: ")
    assert f"did you mean {right}()" in str(caught.value)


def test_e06_a_manager_that_only_has_helpers_beside_ours_is_taken() -> None:
    class Helping(ThrottlingManager):
        def tally(self) -> int:
            return 0

    assert times(crawled(pages(), a_web("a.example"), EXACT, THROTTLING_MANAGER=Helping)) == [0.0, 1.0, 2.0]


def test_e06_e17_a_method_that_is_mistyped_beside_right_ones_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    class Mistyped:
        def get_scopes(self, request: trawl.Request) -> str:
            return "api"

        def get_response_backof(self, response: trawl.Response) -> str:
            return "api"

        def scopes_of_account(self) -> None:
            """A helper."""

    class MistypedScope(ThrottlingScopeManager):
        def get_delay(self, *about: object) -> float | None:
            return None

        def is_trigered(self, *about: object) -> bool | None:
            return None

        def get_delays(self) -> list[float]:  # beside the right one it is a helper
            return []

    limits = {"api": {"manager": MistypedScope}}
    crawled(pages(), a_web("a.example"), EXACT, THROTTLING_MANAGER=Mistyped, THROTTLING_SCOPES=limits)
    told = [record.getMessage() for record in caplog.records if "never called" in record.getMessage()]
    assert told == [
        "THROTTLING_MANAGER: get_response_backof() is never called; did you mean get_response_backoff()?",
        "THROTTLING_SCOPES['api']['manager']: is_trigered() is never called; did you mean is_trigger()?",
    ]


class Judging(ThrottlingManager):
    """Has the default manager judge a response that it makes up, where a page says 200 and means something else."""

    answer: Callable[[trawl.Response], trawl.Response]

    async def get_response_backoff(self, response: trawl.Response) -> Any:
        if not response.url.endswith("0"):
            return None
        return await super().get_response_backoff(type(self).answer(response))


def made_up(request: trawl.Request | None, url: str = f"{A}/0") -> trawl.Response:
    return trawl.Response(url, 429, {}, b"", request)


MADE_UP: list[Callable[[trawl.Response], trawl.Response]] = [
    lambda response: response.replace(status=429),
    lambda response: made_up(None),
    lambda response: made_up(response.request),
    lambda response: made_up(trawl.Request(f"{A}/made-up")),
]


@pytest.mark.parametrize("answer", MADE_UP)
@pytest.mark.parametrize("names_scopes", [False, True])
def test_e07_the_default_judges_a_response_that_a_manager_makes_up(
    answer: Callable[[trawl.Response], trawl.Response], names_scopes: bool
) -> None:
    class Made(Judging):
        if names_scopes:

            async def get_scopes(self, request: trawl.Request) -> Any:
                return "a.example"

    Made.answer = staticmethod(answer)
    sim = crawled(pages(), a_web("a.example", latency=0.1), EXACT, THROTTLING_MANAGER=Made)
    assert times(sim)[:2] == [0.0, 2.1]
    assert "throttling_errors" not in sim.stats


def test_e07_a_default_manager_that_another_has_made_for_itself_judges_too() -> None:
    class Composed:
        def __init__(self) -> None:
            self.default = ThrottlingManager()

        async def get_response_backoff(self, response: trawl.Response) -> Any:
            answer = made_up(None) if response.url.endswith("0") else response
            return await self.default.get_response_backoff(answer)

    sim = crawled(pages(), a_web("a.example", latency=0.1), EXACT, THROTTLING_MANAGER=Composed)
    assert times(sim)[:2] == [0.0, 2.1]


def test_e07_a_response_of_nobodys_is_refused_with_what_it_lacks(caplog: pytest.LogCaptureFixture) -> None:
    class Beforehand(ThrottlingManager):
        async def get_initial_backoff(self) -> Any:
            return await self.get_response_backoff(made_up(None))  # no answer is asked about yet

    sim = crawled(pages(), a_web("a.example"), EXACT, THROTTLING_MANAGER=Beforehand)
    assert times(sim) == [0.0, 1.0, 2.0]
    assert "make it with request=" in caplog.text


def test_e06_e17_the_crawl_is_whole_when_managers_are_made() -> None:
    seen: list[object] = []

    def look(crawl: Any) -> None:
        assert crawl.spider.crawl is crawl
        assert (crawl.queued, crawl.in_flight, crawl.is_idle, crawl.reason) == (0, 0, True, None)
        assert (crawl.why("a.example"), list(crawl.waiting())) == (None, [])
        assert crawl.report() == []
        assert crawl.session("one").name == "one"
        assert callable(crawl.fetch)
        assert crawl.engine is not None
        assert crawl.signals is not None
        with crawl.events():
            seen.append(crawl)

    class Manager(ThrottlingManager):
        @classmethod
        def from_crawler(cls, crawl: Any) -> Manager:
            look(crawl)
            crawl.throttling.set("a.example", delay=3.0)
            return cls()

        async def get_scopes(self, request: trawl.Request) -> Any:
            return await super().get_scopes(request)

    class ScopeManager(ThrottlingScopeManager):
        @classmethod
        def from_crawler(cls, crawl: Any, config: Mapping[str, Any]) -> ScopeManager:
            if config["id"] == "b.example":
                crawl.throttling.set("b.example", delay=5.0)  # its own scope, while that is made
            return cls(config)

    urls = [f"{A}/0", "http://b.example/0", f"{A}/1", "http://b.example/1"]
    sim = crawled(
        lambda: map(trawl.Request, urls),
        a_web("a.example", "b.example"),
        EXACT,
        THROTTLING_MANAGER=Manager,
        THROTTLING_SCOPE_MANAGER=ScopeManager,
    )
    assert len(seen) == 1
    assert (sim.times("a.example"), sim.times("b.example")) == ([0.0, 3.0], [0.0, 5.0])


def test_e06_so_it_is_when_spider_middleware_and_pipelines_are_made() -> None:
    class Slowing:
        @classmethod
        def from_crawler(cls, crawl: Any) -> Slowing:
            crawl.throttling.set("a.example", delay=3.0)
            return cls()

        def process_item(self, item: object, spider: object) -> object:
            return item

        def process_spider_input(self, response: trawl.Response, spider: object) -> None:
            """Nothing."""

        def process_request(self, request: trawl.Request, spider: object) -> None:
            """Nothing."""

    for setting in ("SPIDER_MIDDLEWARES", "ITEM_PIPELINES", "DOWNLOADER_MIDDLEWARES"):
        sim = crawled(pages(2), a_web("a.example"), EXACT, **{setting: {Slowing: 500}})
        assert times(sim) == [0.0, 3.0]


def growing(count: int) -> Callable[[], list[trawl.Request]]:
    return lambda: [trawl.Request(f"{A}/{number}") for number in range(count)]


RAMPED: list[tuple[object, list[float]]] = [
    # As rampup has it: a factor of 0.8 after a quiet window of 10 s.
    (None, [0.0, 4.0, 8.0, 11.2, 14.4, 17.6]),
    ({}, [0.0, 4.0, 8.0, 11.2, 14.4, 17.6]),
    ("before", [0.0, 4.0, 8.0, 12.0, 16.0, 20.0]),
    ({"delay": 1.0}, [0.0, 4.0, 8.0, 10.0, 11.0, 12.0]),
    ({"delay": -1.0}, [0.0, 4.0, 8.0, 11.2, 14.4, 17.6]),
    ({"dely": 1.0}, [0.0, 4.0, 8.0, 11.2, 14.4, 17.6]),
    (5, [0.0, 4.0, 8.0, 11.2, 14.4, 17.6]),
]


@pytest.mark.parametrize(("said", "expected"), RAMPED)
def test_c04_e17_a_scope_manager_may_say_how_rampup_moves(said: Any, expected: list[float]) -> None:
    asked: list[tuple[int, Mapping[str, float], Mapping[str, float]]] = []

    class Steering(ThrottlingScopeManager):
        def get_rampup(
            self, triggers: int, before: Mapping[str, float], after: Mapping[str, float]
        ) -> Mapping[str, float] | None:
            asked.append((triggers, before, after))
            return before if said == "before" else said

    scopes = {"a.example": {"delay": 4.0, "delay_per_slot": 0.0, "rampup": {"window": 10.0}, "manager": Steering}}
    sim = crawled(growing(6), a_web("a.example", latency=0.1), FREE, THROTTLING_SCOPES=scopes)
    assert times(sim) == pytest.approx(expected)
    limits = {"delay": 4.0, "delay_per_slot": 0.0, "concurrency": 1.0}
    assert asked[0] == (0, limits, {**limits, "delay": pytest.approx(3.2)})
    failures = len(asked) if said not in (None, {}, "before", {"delay": 1.0}) else 0
    assert sim.stats.get("throttling_errors", 0) == failures


def test_c05_e17_what_it_says_is_never_faster_than_robots_txt_and_holds_after_a_trigger_too() -> None:
    triggers: list[int] = []

    class Bold(ThrottlingScopeManager):
        def get_rampup(
            self, incidents: int, before: Mapping[str, float], after: Mapping[str, float]
        ) -> Mapping[str, float] | None:
            triggers.append(incidents)
            return {"delay": 0.0, "concurrency": 1e9}

    web = answering(*[SimulatedResponse()] * 5, TOO_MANY, TOO_MANY, latency=0.1)
    web.add_host("b.example", latency=0.1, robots="User-agent: *\nCrawl-delay: 2\n")
    ramp = {"delay": 4.0, "delay_per_slot": 0.0, "rampup": {"window": 10.0}, "manager": Bold}
    settings = {**FREE, "ROBOTSTXT_OBEY": True, "THROTTLING_SCOPES": {"b.example": {**ramp, "delay": 1.0}}}
    sim = crawled(lambda: [trawl.Request(f"http://b.example/{number}") for number in range(12)], web, settings)
    assert min(sim.gaps("b.example")[1:]) >= 1.0
    sim = crawled(growing(12), web, FREE, THROTTLING_SCOPES={"a.example": {**ramp, "delay": 1.0}})
    assert 2 in triggers  # two incidents in a window, above the target of one
