"""Crawls of an nginx that refuses with 429 what comes faster than it allows.

All crawls are made at once, side by side in one process, because each takes a minute or more: as long as it takes to
find the limit from below, and then to stay there for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
import trio

from tests.servers.limited import CASES, HTTP, RAMPED, SERVER, Run, crawl_all, write_page
from tests.servers.nginx import running

pytestmark = pytest.mark.servers

FOUND = 20.0
"""Seconds in which the limit has to be found, from a page a second."""

NAMES = [case.name for case in CASES]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Run]:
    root = tmp_path_factory.mktemp("root")
    write_page(root)
    with running(tmp_path_factory.mktemp("nginx"), root, extra=HTTP, server=SERVER) as nginx:
        return trio.run(crawl_all, nginx, CASES)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_to_429(runs: Mapping[str, Run], name: str) -> None:
    """B20 and C2 on a real wire: each page once in the items, whatever was refused, four crawls side by side."""
    run = runs[name]
    assert run.result.reason == "finished"
    assert run.refused, "the limit was never met: this proves nothing"
    assert run.lost == set()
    served = Counter(hit.target for hit in run.hits if hit.status == 200)
    assert served == Counter(f"/{n}" for n in range(run.case.pages))
    assert len(run.result.items or ()) == run.case.pages
    assert run.result.stats["response_status_count/429"] == len(run.refused)
    assert run.result.stats.get("retry_count", 0) == 0, "a 429 is no retry"


@pytest.mark.parametrize("name", RAMPED)
def test_rampup_finds_what_the_server_allows_in_20_s_and_stays_there(runs: Mapping[str, Run], name: str) -> None:
    """C09 on a real wire, with nginx's leaky bucket instead of the simulated one."""
    run = runs[name]
    assert run.took > 2.0 * FOUND, "too few pages to say anything"
    assert run.rate(FOUND, run.took) >= 0.9 * run.case.allowed, "C09's share; a quiet machine measures 0.95 to 0.98"
    refused = sum(at >= FOUND for at in run.refused)
    served = run.rate(FOUND, run.took) * (run.took - FOUND)
    assert refused <= 0.03 * served


@pytest.mark.parametrize("name", ["five-plain", "fifty-plain"])
def test_without_rampup_a_burst_of_429s_is_one_step(runs: Mapping[str, Run], name: str) -> None:
    """B05, B07, B19: eight at once, one step to 1 s, and base again after a quiet minute."""
    run = runs[name]
    first = [at for at in run.refused if at < 30.0]
    again = [at for at in run.refused if at >= 30.0]
    assert 1 <= len(first) <= 8
    assert max(first) < 1.0, "refused again after the step"
    assert 60.0 < min(again) < 65.0
    assert run.rate(2.0, 58.0) == pytest.approx(1.0, abs=0.1)
