"""examples/throttling/retry_policy.py: the retry policy of a scraping API (G11)."""

from __future__ import annotations

from examples.throttling.retry_policy import API, Patient
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate
from trawl.testing.simulation import Simulation

EXACT = {"RANDOMIZE_DOWNLOAD_DELAY": False, "BACKOFF_JITTER": 0}


class OnePage(Patient):
    """A single request, so that every wait is its own."""

    start_urls = Patient.start_urls[:1]


def answering(*statuses: int) -> Simulation:
    """The example at an API that answers with these statuses, the last of them for ever."""
    given = iter(statuses)
    latest = [statuses[-1]]

    def answer(request: object) -> SimulatedResponse:
        latest[0] = next(given, latest[0])
        return SimulatedResponse(latest[0], "a page")

    web = SimulatedWeb()
    web.add_host(API, latency=0.5, handler=answer)
    return simulate(OnePage, web, EXACT)


def waits(sim: Simulation) -> list[float]:
    """Seconds from each answer to the next send."""
    return [round(later.time - earlier.finished, 9) for earlier, later in zip(sim.sends, sim.sends[1:], strict=False)]


def test_g11_rate_limit_answers_are_repeated_without_end_with_growing_waits() -> None:
    sim = answering(*[429, 503] * 20, 200)
    assert [send.status for send in sim.sends] == [429, 503] * 20 + [200]
    assert waits(sim)[:8] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert set(waits(sim)[8:]) == {60.0}
    assert [item["text"] for item in sim.items] == ["a page"]


def test_g11_other_failures_are_repeated_a_few_times_with_growing_waits() -> None:
    sim = answering(520)
    assert [send.status for send in sim.sends] == [520] * 4  # once, and three retries
    assert waits(sim) == [3.0, 6.0, 12.0]
    assert "520" in sim.items[0]["failed"]


def test_g11_rate_limit_answers_between_them_use_up_no_retry() -> None:
    sim = answering(520, 429, 429, 520, 429, 520, 429, 200)
    assert sim.sends[-1].status == 200
    assert [item["text"] for item in sim.items] == ["a page"]


def test_g11_other_answers_are_no_trigger() -> None:
    sim = answering(404)
    assert len(sim.sends) == 1
    assert sim.report[0].triggers == 0


def test_g11_ten_pages_through_a_minute_of_refusals() -> None:
    web = SimulatedWeb()
    web.add_host(API, latency=0.5, outages=[(0.0, 60.0)])
    sim = simulate(Patient, web, EXACT)
    assert len(sim.items) == 10
    assert all("text" in item for item in sim.items)
