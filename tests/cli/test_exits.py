"""What the exit status says of how a crawl ended."""

from __future__ import annotations

import pytest

from trawl.cli import exit_status


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("finished", 0),
        ("enough", 0),  # a CloseSpider's own
        ("closespider_itemcount", 0),
        ("closespider_timeout", 0),
        ("closespider_errorcount", 0),
        ("start_error", 1),
        ("feed_error", 1),
        ("browser_failed", 1),
        ("memusage_exceeded", 1),  # a supervisor starts it again
        ("shutdown", 130),
        ("cancelled", 130),
    ],
)
def test_the_exit_status_of_a_crawl(reason: str, status: int) -> None:
    assert exit_status(reason) == status
