"""The soak: a crawl through everything that goes wrong, after which every promise is found kept.

Short here, long in ``nox -s soak``: an hour of rounds at full load (``SOAK_SECONDS``), and a million sends over virtual
days (``SOAK_SENDS``).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from statistics import median

import pytest

from tests.soak.running import SLACK, soak
from trawl.engine.watchers import MEBIBYTE, held_bytes

ROUND = 20_000
DAYS = 5.0
"""What delays are multiplied by, so that a million sends take days."""


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """A soak logs tens of thousands of errors, which are meant."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_thousand_pages_with_every_fault_keep_every_promise() -> None:  # C5 C6 C9 C11 P2 P9 P15 R1 R5 R15
    report = soak(0, most=1000)
    assert report.sends > 1000
    faults = {"retry_count", "backoff_count", "redirect_count", "robots_forbidden", "spider_exceptions"}
    assert {*faults, "pages_filtered", "robots_retry_count"} <= set(report.stats)


@pytest.mark.soak
def test_an_hour_at_full_load() -> None:
    seconds = float(os.environ.get("SOAK_SECONDS", "3600"))
    begun, held, sends, seed = time.perf_counter(), [], 0, 0
    while time.perf_counter() - begun < seconds:
        report = soak(seed, most=ROUND)
        sends += report.sends
        held.append((held_bytes() or 0) / MEBIBYTE)
        print(f"round {seed}: {report}; {held[-1]:.0f} MiB after it", flush=True)
        seed += 1
    third = len(held) // 3
    grown = median(held[-third:]) - median(held[third:-third] or held) if third else 0.0
    print(f"{seed} rounds, {sends} sends; the last third held {grown:+.1f} MiB more than the one before", flush=True)
    assert grown < SLACK / MEBIBYTE


@pytest.mark.soak
def test_a_million_sends_over_virtual_days() -> None:
    sends = int(os.environ.get("SOAK_SENDS", "1000000"))
    report = soak(1, most=sends + sends // 8, pace=DAYS)  # some pages are never sent: forbidden, refused, over budget
    print(report, flush=True)
    assert report.sends >= sends
    for key in sorted(report.stats):
        print(f"  {key}: {report.stats[key]}")
