"""What stands for what in the path of a feed."""

from __future__ import annotations

from tests.feeds.fakes import STARTED_UTC
from trawl.feeds.naming import filled, is_numbered, names_in


def test_names_are_filled_in_as_scrapy_writes_them() -> None:
    path = "%(name)s/%(time)s-%(batch_id)d-%(batch)05d-%(batch_time)s-100%.csv"
    there = filled(path, name="quotes", time_utc=STARTED_UTC, batch=7, batch_time_utc=STARTED_UTC)
    assert there == "quotes/2025-01-01T12-30-00+00-00-7-00007-2025-01-01T12-30-00+00-00-100%.csv"


def test_what_is_not_given_and_what_is_not_known_stays() -> None:
    assert filled("%(batch)d-%(name)s-%(else)s", name="x") == "%(batch)d-x-%(else)s"


def test_the_names_in_a_path_are_known() -> None:
    assert names_in("%(batch_time)s-%(name)s") == {"batch_time", "name"}
    assert is_numbered("%(batch)05d")
    assert not is_numbered("%(batch_time)s")
