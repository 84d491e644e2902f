"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def examples() -> Path:
    """The folder of the examples."""
    return Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def without_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings in the environment are weaker than a test's own, but a test should not see them at all."""
    for name in [name for name in os.environ if name.startswith("TRAWL_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
