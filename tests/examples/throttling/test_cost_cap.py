"""examples/throttling/cost_cap.py: 100 credits an hour (G09)."""

from __future__ import annotations

import pytest

from examples.throttling.cost_cap import CostManager, Renderer
from trawl import Request
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

HOUR = 3600.0


async def test_g09_a_request_names_its_estimate() -> None:
    manager = CostManager()
    assert await manager.get_scopes(Request("https://api.toscrape.com/?page=1&render=1")) == {
        "api.toscrape.com": None,
        "cost": 5.0,
    }
    plain = await manager.get_scopes(Request("https://api.toscrape.com/?page=1"))
    assert plain == {"api.toscrape.com": None, "cost": 1.0}


@pytest.mark.parametrize(
    ("actual", "an_hour"),
    [
        ("5", 20),  # as estimated: 20 * 5 = 100
        ("10", 10),  # dearer: after nine, 90 are spent and 5 still fit
        ("2", 48),  # cheaper: after 47, 94 are spent and 5 still fit; after 48 they do not
    ],
)
def test_g09_what_is_spent_counts_and_the_next_window_goes_on(actual: str, an_hour: int) -> None:
    web = SimulatedWeb()
    answer = SimulatedResponse(headers={"X-Actual-Cost": actual})
    web.add_host("api.toscrape.com", latency=0.1, handler=lambda request: answer)
    sim = simulate(Renderer, web)
    times = sim.times("cost")
    assert len(times) == 60
    first = [time for time in times if time < HOUR]
    assert len(first) == an_hour
    assert times[an_hour] == HOUR  # the window began with the first send
    for hour in range(int(times[-1] // HOUR)):
        spent = float(actual) * sum(hour * HOUR <= time < (hour + 1) * HOUR for time in times)
        assert 95 <= spent <= 100


def test_g09_without_a_price_the_estimate_stands() -> None:
    web = SimulatedWeb()
    web.add_host("api.toscrape.com", latency=0.1)
    sim = simulate(Renderer, web)
    assert len([time for time in sim.times("cost") if time < HOUR]) == 20
    assert sim.elapsed == pytest.approx(2 * HOUR + 2.0)
