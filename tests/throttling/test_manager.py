"""The default managers, by themselves."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from trawl.http import Headers, Request, Response
from trawl.throttling import ThrottlingManager, ThrottlingScopeManager
from trawl.throttling.managers import awaited, is_overridden

PAGE = Request("http://a.example/")


def response(**headers: str) -> Response:
    return Response(PAGE.url, 429, Headers({key.replace("_", "-"): value for key, value in headers.items()}), b"", PAGE)


async def test_e07_without_a_throttle_the_default_manager_knows_hosts_and_headers() -> None:
    manager = ThrottlingManager.from_crawler(None)
    assert await manager.get_scopes(PAGE) == "a.example"
    assert await manager.get_initial_backoff() is None
    assert await manager.get_response_backoff(response()) is None
    assert await manager.get_exception_backoff(PAGE, OSError()) is None
    assert manager.get_response_delay(response(Retry_After="7")) == 7
    assert manager.get_response_delay(response()) is None


@pytest.mark.parametrize("date", ["Wed, 01 Jan 2025 12:00:00 GMT", "Wed, 01 Jan 2025 12:00:00 -0000"])
def test_d02_r7_without_a_throttle_a_date_counts_from_the_servers_own(date: str) -> None:
    later = "Wed, 01 Jan 2025 12:00:09 GMT"
    assert ThrottlingManager().get_response_delay(response(Retry_After=later, Date=date)) == 9
    assert ThrottlingManager().get_response_delay(response(Retry_After=later)) is None


def test_e17_the_default_scope_manager_leaves_everything_as_configured() -> None:
    manager = ThrottlingScopeManager.from_crawler(None, {"id": "api"})
    assert manager.id == "api"
    assert manager.is_trigger(response(), None) is None
    assert manager.get_delay(response(), None, 4.0) is None
    assert manager.is_retry(PAGE, response(), None) is None


class Own(ThrottlingManager):
    def get_scopes(self, request: Request) -> Awaitable[Any]:  # type: ignore[override]
        return awaited("x")


def test_e07_it_is_known_what_a_manager_overrides() -> None:
    assert not is_overridden(ThrottlingManager(), "get_scopes", "get_response_backoff")
    assert is_overridden(Own(), "get_scopes")
    assert not is_overridden(Own(), "get_response_backoff")
    assert is_overridden(object(), "get_scopes")
    patched = ThrottlingManager()
    vars(patched)["get_scopes"] = lambda request: "x"
    assert is_overridden(patched, "get_scopes")
