"""What a simulated run tells about itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest

import trawl
from trawl.testing import Outage, Send, SimulatedWeb, Simulation, Span, simulate

EXACT = {
    "RANDOMIZE_DOWNLOAD_DELAY": False,
    "ROBOTSTXT_OBEY": False,
    "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    "BACKOFF_JITTER": 0,
}


class Pages(trawl.Spider):
    name = "pages"
    pages = 4
    meta: Mapping[str, object] = {}

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        for number in range(self.pages):
            yield trawl.Request(f"http://a.example/{number}", meta=self.meta)

    def parse(self, response: trawl.Response, **kwargs: object) -> None:
        pass


def a_run(settings: Mapping[str, object], web: Mapping[str, object] | None = None, **arguments: Any) -> Simulation:
    simulated = SimulatedWeb()
    simulated.add_host("a.example", **{"latency": 0.1, **(web or {})})  # type: ignore[arg-type]
    return simulate(Pages, simulated, {**EXACT, **settings}, 0, **arguments)


def kinds(simulation: Simulation, kind: str) -> list[tuple[float, float]]:
    return [(stretch.start, stretch.end) for stretch in simulation.stretches if stretch.kind == kind]


def test_a05_a_delay_closes_its_scope_from_send_to_send() -> None:
    sim = a_run({"DOWNLOAD_DELAY": 2.0})
    assert kinds(sim, "delay") == [(0.0, 2.0), (2.0, 4.0), (4.0, 6.0), (6.0, 8.0)]


def test_a20_with_jitter_the_delay_ends_where_the_next_send_shows_that_it_did() -> None:
    sim = a_run({"DOWNLOAD_DELAY": 2.0, "RANDOMIZE_DOWNLOAD_DELAY": True})
    times = sim.times("a.example")
    assert [end for _, end in kinds(sim, "delay")][:3] == times[1:]
    assert times[1] != 2.0


def test_a06_a_slot_rests_by_itself() -> None:
    sim = a_run({"DOWNLOAD_DELAY_PER_SLOT": 3.0, "DOWNLOAD_DELAY": 1.0, "CONCURRENT_REQUESTS_PER_DOMAIN": 2})
    rests = [(each.slot, each.start, each.end) for each in sim.stretches if each.kind == "delay_per_slot"]
    assert rests == [(1, 0.0, 3.0), (1, 3.0, 6.0), (2, 1.0, 4.0), (2, 4.0, 7.0)]


def test_b03_a_backoff_is_told_from_a_delay_with_its_source() -> None:
    sim = a_run({"DOWNLOAD_DELAY": 1.0}, {"outages": [Outage(1.0, 1.5)]})
    assert [(send.time, send.status) for send in sim.sends][:3] == [(0.0, 200), (1.0, 503), (3.1, 200)]
    backoff = [stretch for stretch in sim.stretches if stretch.kind == "backoff"]
    assert (backoff[0].start, backoff[0].end) == (1.1, 3.1)
    assert "503" in backoff[0].source


def test_d01_what_a_server_asks_for_is_a_stretch_of_its_own() -> None:
    sim = a_run({"DOWNLOAD_DELAY": 1.0}, {"outages": [Outage(1.0, 1.5, retry_after=7)]})
    assert (1.1, 8.1) in kinds(sim, "hint")
    assert sim.times("a.example")[2] == 8.1


def test_f01_a_spent_quota_closes_its_scope_until_the_window_ends() -> None:
    settings = {"DOWNLOAD_DELAY": 0.0, "THROTTLING_SCOPES": {"cost": {"quota": 2, "window": 30.0}}}
    sim = a_run(settings, meta={"throttling_scopes": ["cost"]})
    assert sim.times("cost") == [0.0, 0.0, 30.0, 30.0]
    assert kinds(sim, "quota")[0] == (0.0, 30.0)


def test_d09_a_crawl_delay_is_told_as_robots() -> None:
    sim = a_run({"ROBOTSTXT_OBEY": True, "DOWNLOAD_DELAY": 1.0}, {"robots": "User-agent: *\nCrawl-delay: 3"})
    assert kinds(sim, "robots")[0][1] - kinds(sim, "robots")[0][0] == 3.0


def test_e21_what_takes_no_slot_has_none() -> None:
    sim = a_run({"DOWNLOAD_DELAY": 5.0}, meta={"dont_throttle": True})
    assert {send.slot for send in sim.sends} == {0}
    assert sim.times("a.example") == [0.0] * 4


def a_send(time: float, finished: float, scope: str = "a.example") -> Send:
    return Send(time=time, finished=finished, url=f"http://{scope}/", host=scope, scopes={scope: 1.0}, slots={scope: 1})


SIMULATION = Simulation(
    sends=(a_send(0.0, 2.0), a_send(0.5, 1.0, "b.example"), a_send(1.0, 3.0), a_send(2.0, 4.0)),
    items=[],
    stats={},
    reason="finished",
    elapsed=4.0,
    find_stretches=lambda: [Span("a.example", 0.0, 1.0)],
)


def test_times_gaps_and_rates_of_a_scope_can_be_asked() -> None:
    assert SIMULATION.times("a.example") == [0.0, 1.0, 2.0]
    assert SIMULATION.gaps("a.example") == [1.0, 1.0]
    assert SIMULATION.rate("a.example") == 1.0
    assert SIMULATION.rate("b.example") == 0.0


@pytest.mark.parametrize(("scope", "most"), [("a.example", 2), ("b.example", 1), (None, 2), ("none.example", 0)])
def test_a03_what_was_on_the_wire_at_once_can_be_asked(scope: str | None, most: int) -> None:
    assert SIMULATION.most_in_flight(scope) == most


def test_the_timeline_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = SIMULATION.timeline(most=2)
    assert capsys.readouterr().out == f"{text}\n"
    assert text.splitlines()[-1] == "... and 2 more"


def test_the_picture_is_written(tmp_path: Path) -> None:
    path = tmp_path / "sends.svg"
    picture = SIMULATION.to_svg(path, title="Two hosts")
    assert path.read_text() == picture
    assert "Two hosts" in picture
    assert "delay: 0 to 1 s" in picture
    assert "Two hosts" not in SIMULATION.to_svg()
