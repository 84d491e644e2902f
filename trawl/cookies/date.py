"""Dates in cookies, read as leniently as browsers do (RFC 6265, 5.1.1)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

__all__ = ["parse_cookie_date"]

_TOKENS = re.compile(r"[^\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?!\d)")
_DAY = re.compile(r"(\d{1,2})(?!\d)")
_YEAR = re.compile(r"(\d{2,4})(?!\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def parse_cookie_date(text: str) -> datetime | None:
    """The moment that ``text`` means, in UTC; None if it means none."""
    time: tuple[int, int, int] | None = None
    day = month = year = None
    for token in _TOKENS.findall(text):
        if time is None and (found := _TIME.match(token)):
            time = int(found[1]), int(found[2]), int(found[3])
        elif day is None and (found := _DAY.match(token)):
            day = int(found[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (found := _YEAR.match(token)):
            year = _full_year(int(found[1]))
    if time is None or day is None or month is None or year is None or year < 1601:
        return None
    try:
        return datetime(year, month, day, *time, tzinfo=UTC)
    except ValueError:
        return None


def _full_year(year: int) -> int:
    if year < 70:
        return year + 2000
    return year + 1900 if year < 100 else year
