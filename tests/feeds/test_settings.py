"""FEEDS as a setting: checked like all others (I03, I04)."""

from __future__ import annotations

from pathlib import Path

import pytest

from trawl.errors import SettingsError
from trawl.feeds import FeedsSettings
from trawl.settings import Layer, load


def checked(feeds: object) -> FeedsSettings:
    return load(Layer("custom_settings", {"FEEDS": feeds})).of(FeedsSettings)


def test_paths_and_options_of_each_kind_are_taken_i04() -> None:
    feeds = {"a.json": {"overwrite": True, "fields": ["x"], "indent": None}, Path("b.csv"): {"fields": {"x": "X"}}}
    assert checked(feeds).feeds == feeds


@pytest.mark.parametrize(
    ("mapping", "why"),
    [
        ({"formt": "csv"}, r"FEEDS\['a'\] has an unknown key 'formt'; did you mean 'format'"),
        ({"overwrite": "yes"}, r"FEEDS\['a'\]\['overwrite'\] must be true or false, not 'yes'"),
        ({"indent": -1}, r"FEEDS\['a'\]\['indent'\] must be"),
        ({"postprocessing": []}, r"unknown key 'postprocessing', which is Scrapy's: a path that ends in \.gz"),
    ],
)
def test_an_entry_that_does_not_fit_is_refused_by_its_name_i03(mapping: object, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        checked({"a": mapping})
