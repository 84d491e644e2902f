"""The chooser against a second opinion, over random histories in which limits change in flight."""

from __future__ import annotations

import pytest

from tests.scheduler.oracle import History

HISTORIES = 1_000
FAR_HISTORIES = 2_000
A_TEST = 10


@pytest.mark.parametrize("first", range(0, HISTORIES, A_TEST))
def test_nothing_that_could_go_is_withheld_nor_sent_early_nor_stuck(first: int) -> None:
    # A03 A09 E05 F01 F08 F11 F12 I08 I12 P9 P13 P15: work-conserving but for reservations, no inversion, nothing lost
    for seed in range(first, first + A_TEST):
        history = History(seed)
        for _ in range(60):
            history.step()
        history.drain()


@pytest.mark.interpreted
@pytest.mark.parametrize("first", range(0, FAR_HISTORIES, A_TEST // 2))
def test_the_same_if_lanes_often_take_over_the_reservations_of_far_lanes(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # F11 F12: one pass is enough for a reservation, because few lanes of a short history are passed eight times
    for name in ("trawl.scheduler.scheduler", "trawl.scheduler.scope_queue", "tests.scheduler.oracle"):
        monkeypatch.setattr(f"{name}.PASSES", 1)
    for seed in range(first, first + A_TEST // 2):
        history = History(seed, far=True)
        for _ in range(100):
            history.step()
        history.drain()
