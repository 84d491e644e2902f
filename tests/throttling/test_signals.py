"""What managers return, in one form."""

from __future__ import annotations

from typing import Any

import pytest

from trawl.throttling.managers import BackoffSignal, signals_of


@pytest.mark.parametrize(
    ("backoff", "signals"),
    [
        (None, {}),
        ("api", {"api": BackoffSignal()}),
        (["api", "A.Example"], {"api": BackoffSignal(), "a.example": BackoffSignal()}),
        ({"api": {}}, {"api": BackoffSignal()}),
        ({"api": None}, {"api": BackoffSignal()}),
        ({"api": {"delay": 5}}, {"api": BackoffSignal(delay=5, header="h")}),
        ({"api": {"delay": 0}}, {"api": BackoffSignal()}),
        ({"api": {"delay": None}}, {"api": BackoffSignal()}),
        ({"api": {"consumed": 3.0}}, {"api": BackoffSignal(is_trigger=False, consumed=3.0)}),  # E11
        ({"api": {"consumed_quota": 3.0}}, {"api": BackoffSignal(is_trigger=False, consumed=3.0)}),
        ({"api": {"remaining": 3.0}}, {"api": BackoffSignal(is_trigger=False, remaining=3.0)}),
        ({"api": {"quota": 3.0}}, {"api": BackoffSignal(is_trigger=False, remaining=3.0)}),
        ({"api": {"consumed": 3.0, "delay": 2.0}}, {"api": BackoffSignal(consumed=3.0, delay=2.0, header="h")}),
    ],
)
def test_e09_e11_every_form_is_read(backoff: Any, signals: dict[str, BackoffSignal]) -> None:
    assert signals_of(backoff, "h") == signals


@pytest.mark.parametrize("backoff", [3, [3], {3: {}}, {"api": 3}, {"api": {"delay": "soon"}}, {"api": {"delay": True}}])
def test_e09_wrong_types_are_type_errors(backoff: Any) -> None:
    with pytest.raises(TypeError):
        signals_of(backoff)


@pytest.mark.parametrize("figures", [{"delai": 3}, {"delay": -1}, {"consumed": float("inf")}])
def test_e09_unknown_keys_and_impossible_figures_are_value_errors(figures: Any) -> None:
    with pytest.raises(ValueError, match="api"):
        signals_of({"api": figures})
