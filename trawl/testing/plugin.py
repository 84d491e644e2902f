"""The pytest plugin. pytest loads it if trawl is installed, so it is short. No other module imports it.

The fixture ``simulated_web`` is an empty web. With it and :func:`trawl.testing.simulate`, a test of a spider's
throttling takes five lines. The report of a failed test shows the sends::

    def test_it_waits_a_second_between_pages(simulated_web):
        simulated_web.add_site("books.toscrape.com", pages=10, latency=0.1)
        settings = {"DOWNLOAD_DELAY": 1.0, "RANDOMIZE_DOWNLOAD_DELAY": False}
        sim = simulate(Books, simulated_web, settings=settings)
        assert sim.gaps("books.toscrape.com") == [1.0] * 10

The plugin imports no part of the engine before a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from trawl.testing.web import SimulatedWeb

__all__ = ["pytest_runtest_makereport", "simulated_web"]

MAX_ROWS = 200  # maximum number of sends in the report of a failed test


@pytest.fixture
def simulated_web() -> SimulatedWeb:
    """Return an empty simulated web. Add hosts and pages, and then call ``simulate(Spider, simulated_web)``."""
    from trawl.testing.web import SimulatedWeb  # noqa: PLC0415 - only when a test needs it

    return SimulatedWeb()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the sends of the latest run on ``simulated_web`` to the report of a failed test."""
    report = yield
    web: SimulatedWeb | None = getattr(item, "funcargs", {}).get("simulated_web")
    if report.when == "call" and report.failed and web is not None and web.latest is not None:
        from trawl.testing.sends import timeline  # noqa: PLC0415 - only when a test needs it

        report.sections.append(("Simulated sends", timeline(web.latest.sends, MAX_ROWS)))
    return report
