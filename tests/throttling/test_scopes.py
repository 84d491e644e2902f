"""Ids of scopes, and the functions that managers use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.http import Request, host_scope
from trawl.throttling import add_scope, iter_scopes, scope_cache, update_scope_backoff
from trawl.throttling.scopes import host_part, is_host_like, normal_id, scope_amounts_of


@pytest.mark.parametrize(
    ("id", "normal"),
    [
        ("A.Example", "a.example"),
        ("a.example.", "a.example"),
        ("A.example.:8080", "a.example:8080"),
        ("::1", "[::1]"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("[0:0:0:0:0:FFFF:c000:0207]:80", "192.0.2.7:80"),
        ("[0:0::1]:80", "[::1]:80"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("LOCALHOST:8000", "localhost:8000"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("my_host.example", "my_host.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("co.uk", "co.uk"),
    ],
)
def test_e19_e20_r6_host_like_ids_are_written_one_way(id: str, normal: str) -> None:
    assert normal_id(id) == normal
    assert is_host_like(id)
    assert normal_id(normal) == normal


@pytest.mark.parametrize(
    "id",
    [
        "api",
        "cost",
        "proxy:a.example",
        "api.toscrape.com/fast-endpoint",
        "v1.0",
        "1.5",
        "a..example",
        "a b.example",
        "",
        "[::g]",
        "user@a.example",
        "a.example:x",
        "Cost",
        "a.example:",
        "http://a.example",
        "256.1.1.1",
    ],
)
def test_e20_any_other_id_is_the_users_own_and_stays_as_it_is(id: str) -> None:
    assert normal_id(id) == id
    assert not is_host_like(id)


@given(
    st.sampled_from(["a.example", "B.example", "xn--bcher-kva.example", "127.0.0.1", "[::1]"]), st.integers(1, 65535)
)
def test_e19_the_host_of_a_url_and_its_id_are_one_scope(host: str, port: int) -> None:
    of_url = host_scope(Request(f"http://{host}:{port}/").url)
    assert normal_id(of_url) == of_url
    assert host_part(of_url) == normal_id(host)


def test_e14_add_scope_follows_its_table() -> None:
    assert add_scope(None, "a") == "a"
    assert add_scope("a", "a") == "a"
    assert add_scope("a", "b") == {"a", "b"}
    assert add_scope({"a", "b"}, "c") == {"a", "b", "c"}
    assert add_scope(["a"], "a") == "a"
    assert add_scope({"a": None}, "b") == {"a": None, "b": None}
    assert add_scope({"a": 2.0}, "a") == {"a": 2.0}
    assert add_scope("a", "b", 3) == {"a": None, "b": 3}
    assert add_scope(None, "b", 3) == {"b": 3}
    assert add_scope({"b": 1.0}, "b", 3) == {"b": 3}


@pytest.mark.parametrize(
    ("scopes", "id", "amount"), [(3, "a", None), ("a", 3, None), ("a", "b", "much"), ("a", "b", True), ([1], "b", None)]
)
def test_e14_wrong_types_are_type_errors(scopes: Any, id: Any, amount: Any) -> None:
    with pytest.raises(TypeError):
        add_scope(scopes, id, amount)


def test_e15_update_scope_backoff_follows_its_table() -> None:
    assert update_scope_backoff(None, "a") == "a"
    assert update_scope_backoff("a", "b") == {"a", "b"}
    assert update_scope_backoff("a", "b", delay=3.0) == {"a": {}, "b": {"delay": 3.0}}
    assert update_scope_backoff({"a": {"delay": 1.0}}, "a", consumed=2.0) == {"a": {"delay": 1.0, "consumed": 2.0}}
    assert update_scope_backoff(None, "a", consumed_quota=2.0) == {"a": {"consumed": 2.0}}
    assert update_scope_backoff({"a": None}, "b") == {"a": {}, "b": {}}
    with pytest.raises(TypeError):
        update_scope_backoff(None, "a", delay="soon")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        update_scope_backoff(None, 4)  # type: ignore[arg-type]


def test_e16_iter_scopes_yields_the_ids_of_every_form() -> None:
    assert list(iter_scopes(None)) == []
    assert list(iter_scopes("a")) == ["a"]
    assert list(iter_scopes(["a", "b"])) == ["a", "b"]
    assert list(iter_scopes({"a": 1.0})) == ["a"]
    with pytest.raises(TypeError):
        list(iter_scopes(3))  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(["b.example", "A.example", "api", "z"]), min_size=1))
def test_e08_charges_are_sorted_and_normalised_whatever_the_form(ids: list[str]) -> None:
    expected = tuple((id, None) for id in sorted({normal_id(id) for id in ids}))
    forms: list[Iterable[str]] = [ids, set(ids), frozenset(ids), iter(ids), dict.fromkeys(ids)]
    assert [scope_amounts_of(form) for form in forms] == [expected] * len(forms)


def test_e01_empty_scopes_mean_unthrottled() -> None:
    assert scope_amounts_of([]) == scope_amounts_of({}) == scope_amounts_of(None) == ()


@pytest.mark.parametrize("scopes", [{"a": -1.0}, {"a": float("inf")}, "", [""]])
def test_e01_impossible_amounts_and_ids_are_value_errors(scopes: Any) -> None:
    with pytest.raises(ValueError, match="scope"):
        scope_amounts_of(scopes)


class Sync:
    calls = 0

    @scope_cache
    def get_scopes(self, request: Request) -> Iterable[str]:
        self.calls += 1
        return (part for part in ("a", "b"))


class Async:
    calls = 0

    @scope_cache
    async def get_scopes(self, request: Request) -> str:
        self.calls += 1
        return "a"


def test_e13_scope_cache_asks_once_for_each_request_object() -> None:
    manager, request = Sync(), Request("http://a.example/")
    assert list(manager.get_scopes(request)) == list(manager.get_scopes(request)) == ["a", "b"]
    assert manager.calls == 1
    manager.get_scopes(request.replace())
    assert manager.calls == 2
    assert Sync().get_scopes(request) == ("a", "b")


async def test_e13_scope_cache_decorates_async_methods_too() -> None:
    manager, request = Async(), Request("http://a.example/")
    assert [await manager.get_scopes(request) for _ in range(3)] == ["a"] * 3
    assert manager.calls == 1


def test_e13_the_answers_kept_for_plain_requests_are_bounded() -> None:
    manager = Sync()
    for number in range(1200):
        manager.get_scopes(Request(f"http://a.example/{number}"))
    assert manager.calls == 1200
