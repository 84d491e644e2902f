"""The checker of mixtures sees what is wrong: traces that keep every promise, each damaged in one way."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

from tests.mixtures.checker import overdrawn, violations
from tests.mixtures.running import Look, Trace, run_mixture
from tests.mixtures.world import Mixture
from trawl.testing import Send
from trawl.throttling import Reason

SEEDS = range(12)


def other(send: Send, **changes: Any) -> Send:
    return msgspec.structs.replace(send, **changes)


def pages(trace: Trace) -> list[int]:
    return [number for number, send in enumerate(trace.sends) if not send.url.endswith("robots.txt")]


def charged_to_another(mixture: Mixture, trace: Trace) -> None:
    last = pages(trace)[-1]
    trace.sends[last] = other(trace.sends[last], scopes={"elsewhere": 1.0})


def before_robots(mixture: Mixture, trace: Trace) -> None:
    first = pages(trace)[0]
    trace.sends.insert(0, other(trace.sends.pop(first), time=0.0, finished=0.01))


def forbidden(mixture: Mixture, trace: Trace) -> None:
    last = trace.sends[pages(trace)[-1]]
    trace.sends.append(
        other(last, url=f"http://{last.host}/no/0", time=last.finished + 500, finished=last.finished + 501)
    )


def twice_at_once(mixture: Mixture, trace: Trace) -> None:
    for number in pages(trace):
        if trace.sends[number].scopes.keys() & mixture.sites.keys():
            trace.sends[number:number] = [trace.sends[number]] * 20


def lost(mixture: Mixture, trace: Trace) -> None:
    trace.items.pop()


def doubled(mixture: Mixture, trace: Trace) -> None:
    trace.items.append(trace.items[0])


def told_of_a_stranger(mixture: Mixture, trace: Trace) -> None:
    trace.looks.append(Look(1.0, "", 500, Reason("api", "concurrency"), math.inf))


def told_of_no_place(mixture: Mixture, trace: Trace) -> None:
    trace.looks.append(Look(trace.sends[-1].finished + 900, "", 1, Reason("", "places"), math.inf))


def cut_short(mixture: Mixture, trace: Trace) -> None:
    trace.reason = "shutdown"


@pytest.mark.parametrize(
    "damage",
    [
        charged_to_another,
        before_robots,
        forbidden,
        twice_at_once,
        lost,
        doubled,
        told_of_a_stranger,
        told_of_no_place,
        cut_short,
    ],
)
def test_each_damage_is_seen(damage: Callable[[Mixture, Trace], None], tmp_path: Path) -> None:
    mixture = Mixture(1)
    trace = run_mixture(mixture, tmp_path)
    assert violations(mixture, trace) == []
    damage(mixture, trace)
    assert violations(mixture, trace) != []


def moved(trace: Trace, number: int, seconds: float) -> Trace:
    """The trace with one send, and what comes after it, so much later or earlier."""
    changed = Trace(kills=trace.kills, began=trace.began, reason=trace.reason, items=trace.items)
    changed.sends = [
        other(send, time=send.time + seconds, finished=send.finished + seconds) if index >= number else send
        for index, send in enumerate(trace.sends)
    ]
    return changed


def test_in_most_mixtures_a_send_that_is_early_or_late_is_seen(tmp_path: Path) -> None:
    early = late = 0
    for seed in SEEDS:
        mixture = Mixture(seed)
        trace = run_mixture(mixture, tmp_path / str(seed))
        numbers = pages(trace)[1:]
        early += any(violations(mixture, moved(trace, number, -0.45)) for number in numbers)
        late += any(violations(mixture, moved(trace, number, 30.0)) for number in numbers)
    assert early > len(SEEDS) * 0.8
    assert late >= 3  # only quiet hosts of mixtures without kills can be held to it


def test_a_send_before_its_bytes_are_paid_for_is_seen() -> None:
    mixture, bandwidth = Mixture(1), {"bandwidth": 1}
    (name, site) = next(iter(mixture.sites.items()))
    mixture.sites, mixture.changes = {name: attrs.evolve(site, config=bandwidth)}, []
    mixture.named = dict.fromkeys(mixture.named, bandwidth)
    step = next(step for step in mixture.steps if step.kind == "page" and step.host == name)
    first = Send(time=0.0, finished=1.0, url=step.url, host=name, slot=1, scopes={}, status=200, method="GET", slots={})
    trace = Trace(began=[0.0], reason="finished")
    for at, is_seen in ((10.9, True), (11.1, False)):
        trace.sends = [first, other(first, time=at, finished=20.0)]
        assert any("paid for" in each for each in violations(mixture, trace)) is is_seen


def test_a_send_when_a_window_ends_may_count_in_it_or_in_the_next_one() -> None:
    mixture, quota = Mixture(1), {"quota": 3, "window": 60.0}
    (name, site) = next(iter(mixture.sites.items()))
    mixture.sites, mixture.changes = {name: attrs.evolve(site, config=quota)}, []
    step = next(step for step in mixture.steps if step.kind == "page" and step.host == name)
    step = mixture.steps[step.number] = attrs.evolve(step, scopes={"cost": 1.5}, session="")
    mixture.named = dict.fromkeys(mixture.named, quota)
    first = Send(time=0.0, finished=1.0, url=step.url, host=name, slot=1, scopes={}, status=200, method="GET", slots={})
    for at, is_seen in ((60.0 - 1e-11, False), (59.0, False), (60.1, True)):
        sends = [other(first, time=each, finished=each) for each in (0.0, at, 61.0, 62.0)]
        trace = Trace(began=[0.0], reason="finished", sends=sends)
        assert any("spent at" in each for each in violations(mixture, trace)) is is_seen


def test_a_quota_that_is_spent_again_in_its_window_after_a_kill_is_seen() -> None:
    config = {"quota": 3, "window": 60.0}
    for begun in ([], [5.0]):
        assert list(overdrawn("a", [(0.0, 3.0), (10.0, 1.0)], config, -math.inf, begun))
        assert not list(overdrawn("a", [(0.0, 3.0), (70.0, 3.0)], config, -math.inf, begun))
