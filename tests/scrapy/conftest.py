"""Comparisons with Scrapy itself, which only ``nox -s scrapy`` installs: without it nothing here is collected."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.scrapy.site import Site

# What is under projects/ is run, never collected: one of them is called as people call their tests.
collect_ignore_glob = ["projects/*", *([] if find_spec("scrapy") else ["test_*.py"])]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("scrapy")


@pytest.fixture
def site() -> Iterator[Site]:
    """The sites of ``.example``, on loopback."""
    with Site() as site:
        yield site
