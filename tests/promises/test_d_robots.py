"""D09-D13: Crawl-delay of robots.txt, through a whole crawl. robots.txt is the first send, at 0.0, and takes 0.1 s."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import trawl
from tests.promises.pacing import SPACED, A, B, crawl, pages, web_of
from trawl.testing import SimulatedWeb, Simulation

OBEYING = {**SPACED, "ROBOTSTXT_OBEY": True}


def robots(text: str, scope: dict[str, Any] | None = None, count: int = 4, **settings: Any) -> Simulation:
    """A crawl of four pages of a host with this robots.txt; ``scope`` configures the host's scope."""
    own = {} if scope is None else {"THROTTLING_SCOPES": {A: scope}}
    return crawl(web_of(latency=0.1, robots=text), pages(count), {**OBEYING, **own, **settings})


def delayed(value: object, scope: dict[str, Any] | None = None, **settings: Any) -> list[float]:
    """When the sends go with this Crawl-delay."""
    return robots(f"User-agent: *\nCrawl-delay: {value}", scope, **settings).times(A)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_d09_both_settings_are_true_by_default() -> None:
    sim = crawl(
        web_of(latency=0.1, robots="User-agent: *\nCrawl-delay: 3"), pages(3), {"RANDOMIZE_DOWNLOAD_DELAY": False}
    )
    assert sim.times(A) == [0.0, 3.0, 6.0, 9.0]


def test_d09_a_crawl_delay_holds_from_the_first_page_on() -> None:
    assert delayed(3) == [0.0, 3.0, 6.0, 9.0, 12.0]


def test_d09_it_gives_a_concurrency_of_one() -> None:
    web = web_of(latency=5.0, robots="User-agent: *\nCrawl-delay: 3")
    sim = crawl(web, pages(4), {**OBEYING, "CONCURRENT_REQUESTS_PER_DOMAIN": 8})
    assert sim.times(A) == [0.0, 5.0, 10.0, 15.0, 20.0]
    assert sim.most_in_flight(A) == 1


def test_d09_never_faster_than_configured() -> None:
    assert delayed(3, DOWNLOAD_DELAY=5.0) == [0.0, 5.0, 10.0, 15.0, 20.0]
    assert delayed(3, DOWNLOAD_DELAY_PER_SLOT=4.0) == [0.0, 4.0, 8.0, 12.0, 16.0]


@pytest.mark.parametrize(("value", "gap"), [("0.5", 0.5), ("2.25", 2.25), (".75", 0.75), ("1e1", 10.0)])
def test_d09_fractions_are_kept(value: str, gap: float) -> None:
    assert delayed(value, DOWNLOAD_DELAY=0.2) == [0.0, gap, 2 * gap, 3 * gap, 4 * gap]


GROUPS = """\
User-agent: trawlbot
Crawl-delay: 4

User-agent: other
Crawl-delay: 9

User-agent: *
Crawl-delay: 2
"""


@pytest.mark.parametrize(
    ("agent", "gap"), [("trawlbot/1.0 (+http://me.example)", 4.0), ("TrawlBot", 4.0), ("other", 9.0), ("nobody/2", 2.0)]
)
def test_d09_the_group_of_our_own_user_agent_counts(agent: str, gap: float) -> None:
    assert robots(GROUPS, USER_AGENT=agent).gaps(A) == [gap] * 4


def test_d09_other_hosts_keep_their_pace() -> None:
    web = SimulatedWeb()
    web.add_host(A, latency=0.1, robots="User-agent: *\nCrawl-delay: 3")
    web.add_host(B, latency=0.1)
    sim = crawl(web, [*pages(3), *pages(3, B)], OBEYING)
    assert (sim.times(A), sim.times(B)) == ([0.0, 3.0, 6.0, 9.0], [0.0, 1.0, 2.0, 3.0])


def test_d09_an_interval_is_told_as_coming_from_robots_txt() -> None:
    sim = robots("User-agent: *\nCrawl-delay: 3")
    told = [(each.start, each.end, each.kind, each.source) for each in sim.stretches if 3.0 <= each.start < 12.0]
    source = "Crawl-delay 3 of robots.txt"
    assert told == [(3.0, 6.0, "robots", source), (6.0, 9.0, "robots", source), (9.0, 12.0, "robots", source)]


def test_d09_one_warning_where_scopes_leave_the_host_out(caplog: pytest.LogCaptureFixture) -> None:
    web = web_of(latency=0.1, robots="User-agent: *\nCrawl-delay: 3")
    sim = crawl(web, [trawl.Request(url, meta={"throttling_scopes": "api"}) for url in pages(4)], OBEYING)
    lines = [line for line in warnings(caplog) if "rawl-delay" in line]
    assert len(lines) == 1
    assert A in lines[0]
    assert [send.time for send in sim.sends] == [0.0, 0.1, 0.1, 0.1, 0.1]


def test_d09_no_warning_where_all_scopes_have_the_host(caplog: pytest.LogCaptureFixture) -> None:
    web = web_of(latency=0.1, robots="User-agent: *\nCrawl-delay: 3")
    crawl(web, [trawl.Request(url, meta={"throttling_scopes": ["api", A]}) for url in pages(2)], OBEYING)
    assert warnings(caplog) == []


def test_d10_it_is_capped_at_a_minute() -> None:
    assert delayed(100) == [0.0, 60.0, 120.0, 180.0, 240.0]
    assert delayed(100, THROTTLING_ROBOTSTXT_MAX_DELAY=7.0) == [0.0, 7.0, 14.0, 21.0, 28.0]


@pytest.mark.parametrize("off", ["ROBOTSTXT_OBEY", "THROTTLING_ROBOTSTXT_OBEY"])
def test_d11_either_setting_turns_it_off(off: str) -> None:
    settings: dict[str, Any] = {off: False}
    assert set(robots("User-agent: *\nCrawl-delay: 3", **settings).gaps(A)) == {1.0}


@pytest.mark.parametrize("value", ["", "soon", "-3", "0", "nan", "inf", "3 s", "3,5"])
def test_d11_without_a_valid_directive_there_is_no_effect(value: str) -> None:
    assert delayed(value) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_d11_a_missing_robots_txt_has_no_effect() -> None:
    assert crawl(web_of(latency=0.1), pages(3), OBEYING).times(A) == [0.0, 1.0, 2.0, 3.0]


def test_d12_a_configured_delay_stays_and_a_faster_one_gives_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert delayed(3, {"delay": 0.5}) == [0.0, 0.5, 1.0, 1.5, 2.0]
    lines = warnings(caplog)
    assert len(lines) == 1
    assert A in lines[0]
    assert "Crawl-delay" in lines[0]


@pytest.mark.parametrize(("scope", "gap"), [({"delay": 5.0}, 5.0), ({"delay": 3.0}, 3.0), ({"rate": 0.2}, 5.0)])
def test_d12_a_slower_pace_is_kept_silently(
    scope: dict[str, Any], gap: float, caplog: pytest.LogCaptureFixture
) -> None:
    assert set(robots("User-agent: *\nCrawl-delay: 3", scope).gaps(A)) == {gap}
    assert warnings(caplog) == []


def test_d12_a_rate_is_a_delay_that_was_configured(caplog: pytest.LogCaptureFixture) -> None:
    assert set(robots("User-agent: *\nCrawl-delay: 3", {"rate": 4}).gaps(A)) == {0.25}
    assert len(warnings(caplog)) == 1


def test_d12_key_by_key_with_the_delay_set_the_concurrency_is_still_one() -> None:
    web = web_of(latency=2.0, robots="User-agent: *\nCrawl-delay: 3")
    settings = {**OBEYING, "CONCURRENT_REQUESTS_PER_DOMAIN": 4, "THROTTLING_SCOPES": {A: {"delay": 0.5}}}
    assert crawl(web, pages(3), settings).times(A) == [0.0, 2.0, 4.0, 6.0]


def test_d12_key_by_key_with_the_concurrency_set_the_delay_is_still_three() -> None:
    web = web_of(latency=5.0, robots="User-agent: *\nCrawl-delay: 3")
    settings = {**OBEYING, "THROTTLING_SCOPES": {A: {"concurrency": 4}}}
    assert crawl(web, pages(3), settings).times(A) == [0.0, 5.0, 8.0, 11.0]


def test_d12_keys_of_other_matters_leave_both_to_robots_txt() -> None:
    web = web_of(latency=5.0, robots="User-agent: *\nCrawl-delay: 3")
    settings = {**OBEYING, "CONCURRENT_REQUESTS_PER_DOMAIN": 4, "THROTTLING_SCOPES": {A: {"jitter": 0, "quota": 99}}}
    assert crawl(web, pages(2), settings).times(A) == [0.0, 5.0, 10.0]


def test_d13_ignore_robots_txt_keeps_crawl_delay_away_silently(caplog: pytest.LogCaptureFixture) -> None:
    assert delayed(3, {"ignore_robots_txt": True, "delay": 0.5}) == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert delayed(3, {"ignore_robots_txt": True}) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert warnings(caplog) == []


def test_d13_rules_are_still_obeyed() -> None:
    sim = robots("User-agent: *\nCrawl-delay: 3\nDisallow: /2", {"ignore_robots_txt": True})
    assert [send.url[-2:] for send in sim.sends] == ["xt", "/0", "/1", "/3"]
    assert sim.stats["robots_forbidden"] == 1


def test_r9_crawl_delay_and_backoff_do_not_mask_each_other() -> None:
    web = web_of(latency=0.1, robots="User-agent: *\nCrawl-delay: 3", outages=[(2.0, 4.0)])
    sim = crawl(web, pages(3), {**OBEYING, "BACKOFF_WINDOW": 20.0})
    # The page at 3.0 fails: one step from 3.0 to 6.0, from its answer; then from send to send; back at 3.0, not at 1.0.
    assert sim.times(A) == [0.0, 3.0, 9.1, 15.1, 21.1]
