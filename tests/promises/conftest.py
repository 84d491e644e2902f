"""Runs the promises on delays, managers, quotas and order, and explanations a second time, behind code of a user's."""

from __future__ import annotations

import re
from collections import Counter

import attrs
import pytest

from trawl.http import Fetch, Outcome, Request
from trawl.http.url import host_scope
from trawl.settings import Layer, of_spider
from trawl.testing import simulation
from trawl.throttling import ThrottlingManager
from trawl.throttling.scopes import Scopes

TWICE = re.compile(r"test_[aefi]_")
"""The modules that run twice."""


def idle_middleware(fetch: Fetch) -> Fetch:
    """A middleware that does nothing."""

    async def send(request: Request) -> Outcome:
        return await fetch(request)

    return send


class IdleManager(ThrottlingManager):
    """A manager that does nothing."""

    def get_scopes(self, request: Request) -> Scopes:  # type: ignore[override]
        """Name the scope that a request has anyway."""
        return host_scope(request.url)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have each test of the modules run twice."""
    if TWICE.match(metafunc.module.__name__.rpartition(".")[2]):
        metafunc.parametrize("idle_user_code", [False, True], indirect=True, ids=["plain", "behind-user-code"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the second run of a test with more than four cases to the sweep, except the first four."""
    seen = Counter[str]()
    for item in items:
        if "behind-user-code" in item.name:
            name = item.nodeid.partition("[")[0]
            seen[name] += 1
            if seen[name] > 4:
                item.add_marker(pytest.mark.sweep)


@pytest.fixture(autouse=True)
def idle_user_code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Put a middleware and a manager that do nothing around each send of a simulation, unless it has its own."""
    is_idle = bool(getattr(request, "param", False))
    if is_idle:
        idle = {"DOWNLOADER_MIDDLEWARES": {idle_middleware: 560}, "THROTTLING_MANAGER": IdleManager}

        def of(spider: type) -> Layer:
            layer = of_spider(spider)
            return attrs.evolve(layer, values={**idle, **layer.values})

        monkeypatch.setattr(simulation, "of_spider", of)
    return is_idle
