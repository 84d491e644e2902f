"""The pytest plugin. pytest loads it if trawl is installed, so it is short. No other module imports it.

The fixture ``simulated_web`` is an empty web. With it and :func:`trawl.testing.simulate`, a test of a spider's
throttling takes five lines. The report of a failed test shows the sends::

    def test_it_waits_a_second_between_pages(simulated_web):
        simulated_web.add_site("books.toscrape.com", pages=10, latency=0.1)
        settings = {"DOWNLOAD_DELAY": 1.0, "RANDOMIZE_DOWNLOAD_DELAY": False}
        sim = simulate(Books, simulated_web, settings=settings)
        assert sim.gaps("books.toscrape.com") == [1.0] * 10

In a test file that was moved from Scrapy, the headers of requests and responses are those of a moved crawl.

The plugin imports no part of the engine before a test uses the fixture, or is in such a file.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from trawl.testing.web import SimulatedWeb

__all__ = ["pytest_runtest_makereport", "pytest_runtest_protocol", "simulated_web"]

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run the tests of a file or project that was moved from Scrapy with Scrapy's form of headers."""
    if not _is_moved(item.path):
        return (yield)
    from trawl._run import header_class  # noqa: PLC0415 - only for moved tests

    with header_class(is_moved=True):
        return (yield)


@cache
def _is_moved(path: Path) -> bool:
    from trawl.scrapy_names.moved import is_moved_file  # noqa: PLC0415 - only if a test runs

    given = _given(path.parent)
    return is_moved_file(str(path)) if given is None else given is True


@cache
def _given(folder: Path) -> object:
    """Return the value of ``SCRAPY_COMPAT`` in the nearest pyproject.toml; None if it has none or can't be read.

    :func:`trawl.settings.of_project` would load the engine, which has settings.
    """
    project = next((file for each in (folder, *folder.parents) if (file := each / "pyproject.toml").is_file()), None)
    with suppress(OSError, ValueError, LookupError, TypeError):  # a test that loads the settings reports the error
        if project is not None and "SCRAPY_COMPAT" in (text := project.read_text("utf-8")):
            import tomllib  # noqa: PLC0415 - only for such a project

            given: object = tomllib.loads(text)["tool"]["trawl"]["SCRAPY_COMPAT"]
            return given
    return None
