"""Tables that are kept by hand in several places agree: statistics, limits, feed formats, counts of a shared job."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from trawl.cli.app import AppendOption
from trawl.feeds.options import FORMATS
from trawl.frontier.base import Counts
from trawl.testing.svg import SHADES
from trawl.throttling import reasons

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
COUNTED = re.compile(r"`([\w/]+(?:<\w+>)?)`")
WRITERS = {"inc", "set", "max", "min"}


def statistics_in(source: str) -> Iterator[str]:
    """Yield the keys that code counts: the first argument of `stats.inc` and its like, up to a part that varies."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=attr, value=value), args=[key, *_]) if attr in WRITERS:
                if not ast.unparse(value).endswith("stats"):
                    continue
                parts = key.values[:1] if isinstance(key, ast.JoinedStr) else [key]
                if isinstance(parts[0], ast.Constant) and isinstance(parts[0].value, str):
                    yield parts[0].value


def test_each_statistic_is_documented() -> None:
    counted = {key for path in (ROOT / "trawl").rglob("*.py") for key in statistics_in(path.read_text("utf-8"))}
    assert {"request_count", "download_error_count/", "robots_retry_count"} <= counted
    text = (REFERENCE / "statistics.md").read_text("utf-8")
    documented = {name.partition("<")[0] for name in COUNTED.findall(text)}
    assert sorted(counted - documented) == []


def test_a_statistic_that_is_not_documented_would_be_found() -> None:
    source = "stats.inc('a'); self._stats.set(f'b/{name}', 1); stats.inc(key); seen.max('c')"
    assert list(statistics_in(source)) == ["a", "b/"]


def test_each_limit_that_a_simulation_draws_is_one_that_a_request_waits_for() -> None:
    names = set(reasons.LIMIT_NAMES)
    assert set(SHADES) <= names
    assert set(reasons._NAMES) <= names


@pytest.mark.parametrize("name", sorted(set(FORMATS.values())))
def test_each_feed_format_is_in_the_help_and_on_its_page(name: str) -> None:
    [option] = get_args(AppendOption)[1:]
    assert f".{name}" in option.help
    assert f"`{name}`" in (ROOT / "docs" / "howto" / "feeds.md").read_text("utf-8")


def test_the_scripts_of_a_server_add_up_as_many_counts_as_there_are() -> None:
    script = (ROOT / "trawl" / "frontier" / "redis" / "scripts" / "share.lua").read_text("utf-8")
    pattern = re.search(r"local COUNTS = '\^(.*)\$'", script)
    assert pattern is not None
    zeros = re.findall(r"'(0(?: 0)+)'", script)
    assert len(pattern[1].split(" ")) == len(Counts._fields)
    assert zeros
    assert {len(each.split()) for each in zeros} == {len(Counts._fields)}
