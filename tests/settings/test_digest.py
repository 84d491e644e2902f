"""Digests by which processes on one job find out that their settings differ."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import trawl
from trawl.settings import Layer, digests, load


class Quotes(trawl.Spider):
    name = "quotes"


def differences(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))


def found(**settings: object) -> dict[str, str]:
    return digests(load(Layer("-s", settings)), Quotes, {})


def test_the_same_settings_differ_in_nothing() -> None:
    assert differences(found(DOWNLOAD_DELAY=1), found(DOWNLOAD_DELAY=1.0)) == []


def test_what_differs_is_named() -> None:
    ours = found(DOWNLOAD_DELAY=1, ROBOTSTXT_OBEY=False)
    assert differences(ours, found(DOWNLOAD_DELAY=2)) == ["DOWNLOAD_DELAY", "ROBOTSTXT_OBEY"]


def test_feeds_logs_and_limits_of_the_process_are_its_own() -> None:
    assert differences(found(FEEDS={"a.jsonl": {}}, LOG_LEVEL="DEBUG", CLOSESPIDER_ITEMCOUNT=3), found()) == []


def test_code_and_arguments_count(tmp_path: Path) -> None:
    settings = load()
    ours = digests(settings, Quotes, {"tag": "love"})
    assert differences(ours, digests(settings, Quotes, {"tag": "life"})) == ["-a tag"]
    assert differences(ours, digests(settings, trawl.Spider, {"tag": "love"})) == ["the spider's code"]


@pytest.mark.long
def test_a_value_has_the_same_digest_in_every_process() -> None:
    code = """
import trawl
from tests.settings.test_digest import Quotes, digests, load, Layer
values = {"ITEM_PIPELINES": {Quotes: 1}, "THROTTLING_SCOPES": {"a.example": {"delay": 1}, "b.example": {"delay": 2}}}
print(sorted(digests(load(Layer("-s", values)), Quotes, {"a": {"x", "y", "z"}, "b": object()}).items()))
"""
    words = [sys.executable, "-c", code]  # each with another seed of hashes
    runs = [
        subprocess.run(words, capture_output=True, text=True, check=True, env={"PYTHONPATH": "."}) for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert "ITEM_PIPELINES" in runs[0].stdout
