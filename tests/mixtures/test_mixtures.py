"""All limits at once, changed, redirected, refused and killed: what goes over the wire keeps every promise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.mixtures.checker import violations
from tests.mixtures.running import run_mixture
from tests.mixtures.world import Mixture

FIRST = int(os.environ.get("MIXTURES_FIRST", "0"))
COUNT = int(os.environ.get("MIXTURES", "2000"))


FORMS = pytest.mark.parametrize("has_middleware", [True, False], ids=["behind-user-code", "without-user-code"])


@FORMS
@pytest.mark.parametrize("seed", range(24))
def test_a_mixture_keeps_every_promise(seed: int, has_middleware: bool, tmp_path: Path) -> None:
    mixture = Mixture(seed, has_middleware=has_middleware)
    assert violations(mixture, run_mixture(mixture, tmp_path)) == []


@pytest.mark.sweep
@FORMS
@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, 20))
def test_each_of_many_mixtures_keeps_every_promise(first: int, has_middleware: bool, tmp_path: Path) -> None:
    for seed in range(first, min(first + 20, FIRST + COUNT)):
        mixture = Mixture(seed, has_middleware=has_middleware)
        assert violations(mixture, run_mixture(mixture, tmp_path / str(seed))) == [], f"seed {seed}"
