"""What the tests of commands share."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock


@pytest.fixture
def virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands on a clock whose waits take no time: only for those without a thread, socket or process."""
    monkeypatch.setattr(trio, "run", partial(trio.run, clock=MockClock(autojump_threshold=0.0)))
