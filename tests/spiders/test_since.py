"""An attribute that says from when on: a datetime, a date, or a text."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from trawl.errors import UsageError
from trawl.spiders.sitemap_spider import since_utc

MAY = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize("value", [MAY, datetime(2024, 5, 1), date(2024, 5, 1), "2024-05-01", "2024-05-01T02:00+02:00"])
def test_it_is_an_instant_in_utc_unless_it_says_otherwise(value: str | date) -> None:
    assert since_utc("news", "feed_since", value) == MAY


def test_a_zone_of_its_own_counts() -> None:
    own = datetime(2024, 5, 1, tzinfo=timezone(timedelta(hours=2)))
    assert since_utc("news", "feed_since", own) == MAY - timedelta(hours=2)


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_is_no_instant(value: str | None) -> None:
    assert since_utc("news", "feed_since", value) is None


def test_what_is_no_instant_is_told_with_its_name() -> None:
    with pytest.raises(UsageError, match=r"^news: feed_since: 'soon' is not a date or time in ISO 8601$"):
        since_utc("news", "feed_since", "soon")
