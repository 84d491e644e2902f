"""E13-E16: the small functions that managers are written with, and the names of the contract."""

from __future__ import annotations

from typing import Any

import pytest

import trawl
import trawl.throttling
from tests.promises.crawling import EXACT, a_web, answering, crawled, page
from trawl.testing import SimulatedResponse
from trawl.throttling import add_scope, iter_scopes, scope_cache, update_scope_backoff

A = "http://a.example"


def test_the_names_of_the_contract_are_there() -> None:
    names = {
        "ThrottlingManager", "ThrottlingManagerProtocol", "ThrottlingScopeManager", "ThrottlingScopeManagerProtocol",
        "scope_cache", "add_scope", "update_scope_backoff", "iter_scopes",
    }  # fmt: skip
    assert names <= set(trawl.throttling.__all__)
    assert trawl.throttling is __import__("trawl").throttling


def test_e13_one_real_call_per_request_object() -> None:
    asked: list[str] = []

    class Caching:
        @scope_cache
        def get_scopes(self, request: trawl.Request) -> Any:
            asked.append(request.url)
            return (scope for scope in ["x"])

        def get_response_backoff(self, response: trawl.Response) -> Any:
            assert response.request is not None
            for _ in range(3):
                assert list(iter_scopes(self.get_scopes(response.request))) == ["x"]

    crawled(
        lambda: [page(f"{A}/{number}") for number in range(3)], a_web("a.example"), EXACT, THROTTLING_MANAGER=Caching
    )
    assert asked == [f"{A}/0", f"{A}/1", f"{A}/2"]


async def test_e13_sync_and_async_and_an_equal_request_is_another_object() -> None:
    asked: list[object] = []

    class Manager:
        @scope_cache
        async def get_scopes(self, request: trawl.Request) -> Any:
            asked.append(request)
            return None

        @scope_cache
        def others(self, request: trawl.Request) -> str:
            asked.append(request)
            return "others"

    manager, request = Manager(), trawl.Request(A)
    assert [await manager.get_scopes(request) for _ in range(3)] == [None, None, None]
    assert [manager.others(request) for _ in range(3)] == ["others"] * 3
    assert asked == [request, request]
    await manager.get_scopes(request.replace())
    assert len(asked) == 3
    await Manager().get_scopes(request)  # each manager has answers of its own
    assert len(asked) == 4


def test_e13_a_request_that_is_sent_again_is_asked_about_once() -> None:
    asked: list[str] = []

    class Caching:
        @scope_cache
        async def get_scopes(self, request: trawl.Request) -> Any:
            asked.append(request.url)
            return "x"

    web = answering(SimulatedResponse(429), SimulatedResponse(429))
    sim = crawled(lambda: [page(f"{A}/0")], web, EXACT, THROTTLING_MANAGER=Caching)
    assert (len(sim.sends), asked) == (3, [f"{A}/0"])


def test_e14_add_scope() -> None:
    assert add_scope(None, "a") == "a"
    assert add_scope("a", "a") == "a"
    assert add_scope("a", "b") == {"a", "b"}
    assert add_scope({"a", "b"}, "c") == {"a", "b", "c"}
    assert add_scope(["a", "b"], "a") == {"a", "b"}
    assert add_scope((scope for scope in "ab"), "c") == {"a", "b", "c"}
    assert add_scope({"a": 2.0}, "b") == {"a": 2.0, "b": None}
    assert add_scope({"a": 2.0}, "a") == {"a": 2.0}
    assert add_scope({"a": None}, "b", 3) == {"a": None, "b": 3}
    assert add_scope({"a": 1.0}, "a", 4.5) == {"a": 4.5}
    assert add_scope(None, "a", 1.0) == {"a": 1.0}
    assert add_scope("a", "b", 0) == {"a": None, "b": 0}
    assert add_scope({"a"}, "a", 2) == {"a": 2}


def test_e14_what_it_is_given_stays_as_it_is() -> None:
    mapping, several = {"a": 1.0}, {"a"}
    add_scope(mapping, "b", 2.0)
    add_scope(several, "b")
    assert (mapping, several) == ({"a": 1.0}, {"a"})


WRONG_SCOPES: list[Any] = [5, 1.5, b"a", ["a", 5], {5: 1.0}, {"a": "much"}, object(), True]


@pytest.mark.parametrize("scopes", WRONG_SCOPES)
def test_e14_e16_wrong_scopes_are_type_errors(scopes: Any) -> None:
    with pytest.raises(TypeError):
        add_scope(scopes, "b")
    if scopes != {"a": "much"}:
        with pytest.raises(TypeError):
            list(iter_scopes(scopes))


@pytest.mark.parametrize(
    ("id", "amount"), [(None, None), (5, None), (b"a", None), (["a"], None), ("a", "2"), ("a", [1]), ("a", True)]
)
def test_e14_a_wrong_id_or_amount_is_a_type_error(id: Any, amount: Any) -> None:
    with pytest.raises(TypeError):
        add_scope(None, id, amount)
    with pytest.raises(TypeError):
        add_scope({"x": 1.0}, id, amount)


def test_e15_update_scope_backoff() -> None:
    assert update_scope_backoff(None, "a") == "a"
    assert update_scope_backoff("a", "a") == "a"
    assert update_scope_backoff("a", "b") == {"a", "b"}
    assert update_scope_backoff(["a", "b"], "b") == {"a", "b"}
    assert update_scope_backoff(None, "a", delay=2.0) == {"a": {"delay": 2.0}}
    assert update_scope_backoff("a", "b", delay=2) == {"a": {}, "b": {"delay": 2}}
    assert update_scope_backoff({"a": {"delay": 2.0}}, "a", consumed=3.0) == {"a": {"delay": 2.0, "consumed": 3.0}}
    assert update_scope_backoff({"a": {"delay": 2.0}}, "a", delay=5.0) == {"a": {"delay": 5.0}}
    assert update_scope_backoff({"a": {"delay": 2.0}}, "b") == {"a": {"delay": 2.0}, "b": {}}
    assert update_scope_backoff(None, "a", consumed_quota=4.0) == {"a": {"consumed": 4.0}}
    assert update_scope_backoff(None, "a", delay=0, consumed=0) == {"a": {"delay": 0, "consumed": 0}}


def test_e15_what_it_is_given_stays_as_it_is() -> None:
    given = {"a": {"delay": 2.0}}
    update_scope_backoff(given, "a", consumed=1.0)
    assert given == {"a": {"delay": 2.0}}


WRONG_BACKOFFS: list[Any] = [5, b"a", ["a", 5], {5: {}}, {"a": 5}, {"a": {"delay": "soon"}}, {"a": ["delay"]}, object()]


@pytest.mark.parametrize("backoff", WRONG_BACKOFFS)
def test_e15_a_wrong_backoff_is_a_type_error(backoff: Any) -> None:
    with pytest.raises(TypeError):
        update_scope_backoff(backoff, "b", delay=1.0)


@pytest.mark.parametrize("figures", [{"delay": "5"}, {"consumed": "5"}, {"consumed_quota": [5]}, {"delay": True}])
def test_e15_a_figure_that_is_no_number_is_a_type_error(figures: Any) -> None:
    with pytest.raises(TypeError):
        update_scope_backoff(None, "a", **figures)
    with pytest.raises(TypeError):
        update_scope_backoff(None, 5, delay=1.0)  # type: ignore[arg-type]


def test_e15_delay_and_consumed_are_named_arguments() -> None:
    with pytest.raises(TypeError):
        update_scope_backoff(None, "a", 2.0)  # type: ignore[call-arg]


def test_e16_iter_scopes_yields_the_ids() -> None:
    assert list(iter_scopes(None)) == []
    assert list(iter_scopes("abc")) == ["abc"]
    assert list(iter_scopes(["b", "a"])) == ["b", "a"]
    assert list(iter_scopes({"b": 1.0, "a": None})) == ["b", "a"]
    assert set(iter_scopes({"a", "b"})) == {"a", "b"}
