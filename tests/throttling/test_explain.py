"""Reasons in words."""

from __future__ import annotations

import math

import pytest

from trawl.throttling import Reason


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason("a.example", "delay", 10.4, "configuration"), "a.example delay 0.4 s (configuration)"),
        (Reason("a.example", "delay", 10.0266, "configuration"), "a.example delay 0.03 s (configuration)"),
        (Reason("a.example", "quota", 86410.4, "configuration"), "a.example quota 86400 s (configuration)"),
        (Reason("", "not_before", 12.0, "the request's own delay"), "the request's own delay 2 s"),
        (
            Reason("b.example", "hint", 22.0, "Retry-After: 12, 429 of /x"),
            "b.example hint 12 s (Retry-After: 12, 429 of /x)",
        ),
        (Reason("a.example", "concurrency", math.inf), "a.example all slots are busy"),
        (Reason("", "places", math.inf), "CONCURRENT_REQUESTS are in flight"),
        (Reason("a.example", "delay", 3.0), "a.example delay 0 s"),
        (Reason("a.example", "", 3.0), "a.example may go"),
    ],
)
def test_i11_a_reason_is_one_line(reason: Reason, text: str) -> None:
    assert reason.text(10.0) == text
