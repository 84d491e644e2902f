"""Runs at different settings, side by side."""

from __future__ import annotations

import pytest

from trawl.cli.simulate import groups_of, summarize
from trawl.testing import Send, Simulation
from trawl.throttling import ScopeReport


@pytest.mark.parametrize(
    ("texts", "groups"),
    [
        ([], [()]),
        (["A=1"], [("A=1",)]),
        (["A=1", "B=2"], [("A=1", "B=2")]),
        (["A=1", "A=2"], [("A=1",), ("A=2",)]),
        (["A=1", "B=2", "A=3", "B=4"], [("A=1", "B=2"), ("A=3", "B=4")]),
        (["A=1 B=2", "C=3"], [("A=1", "B=2"), ("C=3",)]),
        (["C=3", "A=1 B=2"], [("C=3",), ("A=1", "B=2")]),
        (['A={"x y": 1}', "B=2"], [('A={"x y": 1}', "B=2")]),
        (["nonsense"], [("nonsense",)]),
    ],
)
def test_settings_belong_together_until_a_name_comes_again(texts: list[str], groups: list[tuple[str, ...]]) -> None:
    assert groups_of(texts) == groups


def test_a_verdict_counts_what_a_run_did_and_what_limited_it() -> None:
    sends = tuple(
        Send(time=time, finished=time + 1.5, url="http://a.example/", host="a.example", status=status)
        for time, status in [(0.0, 200), (1.0, 429), (2.0, 503), (3.0, None)]
    )
    report = [
        ScopeReport(scope="a", limited={"delay": 2.0, "backoff": 5.0, "quota": 0.0}),
        ScopeReport(scope="b", limited={"delay": 4.0}),
    ]
    simulation = Simulation(sends=sends, items=[1, 2], stats={}, reason="finished", elapsed=8.0, report=report)
    verdict = summarize(simulation, "A=1")
    assert (verdict.settings, verdict.sends, verdict.items) == ("A=1", 4, 2)
    assert (verdict.refused, verdict.unanswered, verdict.rate, verdict.most_in_flight) == (2, 1, 0.5, 2)
    assert verdict.limited == [("delay", 6.0), ("backoff", 5.0)]


def test_a_run_of_no_time_has_no_rate() -> None:
    assert summarize(Simulation(sends=(), items=[], stats={}, reason="finished", elapsed=0.0)).rate == 0.0
