"""The rulers of the soak can say no: each limit, passed by little."""

from __future__ import annotations

from typing import Any

import pytest

from tests.soak.rulers import Ruler


def measured(config: dict[str, Any], *times: float) -> list[str]:
    """What a ruler says of sends at these times, one after the other."""
    ruler = Ruler("a.example", config)
    for at in times:
        ruler.enter()
        ruler.sent(at)
        ruler.leave()
    return ruler.violations


@pytest.mark.parametrize(
    ("config", "kept", "passed"),
    [
        ({"delay": 1.0}, (0.0, 1.0, 2.0), (0.0, 0.99)),
        ({"delay": 1.0, "jitter": 0.5}, (0.0, 0.5, 1.0), (0.0, 0.49)),
        ({"delay_per_slot": 1.0, "concurrency": 2}, (0.0, 0.1, 1.0, 1.1), (0.0, 0.1, 0.9)),
        ({"delay_per_slot": 1.0, "concurrency": 1}, (0.0, 1.0), (0.0, 0.9)),
        ({"quota": 2, "window": 10.0}, (0.0, 9.0, 10.0, 11.0), (0.0, 1.0, 9.9)),
        ({"quota": 2, "window": 10.0, "sliding": True}, (0.0, 9.0, 10.0, 19.0), (0.0, 9.0, 10.0, 11.0)),
    ],
)
def test_what_keeps_a_limit_is_let_pass_and_what_does_not_is_told(
    config: dict[str, Any], kept: tuple[float, ...], passed: tuple[float, ...]
) -> None:
    assert measured(config, *kept) == []
    assert len(measured(config, *passed)) == 1


def test_places_are_counted_from_entering_to_leaving() -> None:
    ruler = Ruler("a.example", {"concurrency": 2})
    ruler.enter()
    ruler.enter()
    ruler.leave()
    ruler.enter()
    assert ruler.violations == []
    ruler.enter()
    assert ruler.violations == ["a.example: 3 at once, 2 allowed"]
    assert not ruler.is_empty()


def test_who_comes_while_a_server_asked_for_quiet_is_told_however_early_it_began_to_connect() -> None:
    ruler = Ruler("a.example", {})
    ruler.hold(10.0, 5.0)
    ruler.sent(10.0)
    assert ruler.violations == []
    ruler.sent(12.0)
    assert len(ruler.violations) == 1
    ruler.sent(15.0)
    assert len(ruler.violations) == 1
