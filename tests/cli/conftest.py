"""Fixtures for the tests of commands."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock


@pytest.fixture
def virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands on a virtual clock. Use it only for commands without threads, sockets and processes."""
    monkeypatch.setattr(trio, "run", partial(trio.run, clock=MockClock(autojump_threshold=0.0)))
