"""What the page on AutoThrottle gives to begin with."""

from __future__ import annotations

import re
from pathlib import Path

from trawl.settings import Layer, load
from trawl.throttling import ThrottlingSettings

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "autothrottle.md"


def test_h14_the_documented_starting_points_of_autothrottle() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (a [^|]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.M)
    assert [(target, most, start) for _, target, most, start in rows] == [
        ("1.0", "10", "2.0"),
        ("4.0", "30", "1.0"),
        ("2.0", "60", "1.0"),
    ]
    assert ["polite" in rows[0][0], "cooperates" in rows[1][0], "many domains" in rows[2][0]] == [True] * 3
    for _, target, most, start in rows:
        point = {
            "AUTOTHROTTLE_ENABLED": True,
            "AUTOTHROTTLE_TARGET_CONCURRENCY": float(target),
            "AUTOTHROTTLE_MAX_DELAY": float(most),
            "AUTOTHROTTLE_START_DELAY": float(start),
        }
        assert load(Layer("docs", point)).of(ThrottlingSettings).autothrottle_enabled
