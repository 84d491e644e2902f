"""Runs at different settings, side by side."""

from __future__ import annotations

import pytest

from trawl.cli.simulate import figures, groups_of
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
    row = figures(simulation, "A=1")
    assert (row["settings"], row["sends"], row["items"], row["time"], row["ended"]) == (
        "A=1",
        "4",
        "2",
        "8.0 s",
        "finished",
    )
    assert (row["429s"], row["no answer"], row["rate"], row["at once"]) == ("2", "1", "0.5/s", "2")
    assert row["waited"] == "6.0 s for delay, 5.0 s for backoff"


def test_a_run_of_no_time_has_no_rate() -> None:
    assert figures(Simulation(sends=(), items=[], stats={}, reason="finished", elapsed=0.0))["rate"] == "0.0/s"
