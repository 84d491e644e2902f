"""Fixtures for comparisons with Scrapy, which only ``nox -s scrapy`` installs.

Without Scrapy, no tests are collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.scrapy.site import Site

# Projects are run and never collected, although one is named like a test.
collect_ignore_glob = ["projects/*", *([] if find_spec("scrapy") else ["test_*.py"])]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this folder."""
    for item in items:
        if item.nodeid.startswith("tests/scrapy/"):
            item.add_marker("scrapy")


@pytest.fixture
def site() -> Iterator[Site]:
    """Serve the sites of ``.example`` on loopback."""
    with Site() as site:
        yield site
