"""The chooser against a second opinion, over random histories in which limits change in flight."""

from __future__ import annotations

import pytest

from tests.scheduler.oracle import History

HISTORIES = 1_000
A_TEST = 10


@pytest.mark.parametrize("first", range(0, HISTORIES, A_TEST))
def test_nothing_that_could_go_is_withheld_nor_sent_early_nor_stuck(first: int) -> None:
    # A03 A09 E05 F01 F08 F11 F12 I08 I12 P9 P13 P15: work-conserving but for reservations, no inversion, nothing lost
    for seed in range(first, first + A_TEST):
        history = History(seed)
        for _ in range(60):
            history.step()
        history.drain()
