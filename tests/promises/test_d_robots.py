"""D09-D13: Crawl-delay of robots.txt, through a whole crawl. robots.txt is the first send, at 0.0, and takes 0.1 s."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import trawl
from tests.promises.pacing import SPACED, A, B, crawl, pages, web_of
from trawl.testing import SimulatedWeb, Simulation, simulate

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


def test_d10_one_warning_names_both_numbers_where_it_is_capped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        delayed(120)
        lines = warnings(caplog)
    assert len(lines) == 1
    assert "120 s" in lines[0]
    assert "60 s" in lines[0]
    moves = [record.getMessage() for record in caplog.records if "delay 1 s -> 60 s" in record.getMessage()]
    assert "which asks for 120" in moves[0]


def test_d10_no_warning_where_the_crawl_delay_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    delayed(120, THROTTLING_ROBOTSTXT_MAX_DELAY=0.0)
    delayed(120, THROTTLING_ROBOTSTXT_OBEY=False)
    delayed(120, {"ignore_robots_txt": True})
    delayed(60)
    assert warnings(caplog) == []


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


@pytest.mark.parametrize(
    ("scope", "gap", "words"),
    [
        ({"delay": 5.0}, 5.0, ["a delay of 5 s"]),
        ({"rate": 0.2}, 5.0, ["a delay of 5 s"]),
        ({"concurrency": 4}, 3.0, ["a concurrency of 4"]),
        ({"delay": 3.0, "concurrency": 2}, 3.0, ["a concurrency of 2"]),
        ({"delay": 0.5, "concurrency": 2}, 0.5, ["a delay of 0.5 s", "a concurrency of 2"]),
    ],
)
def test_d12_a_delay_or_a_concurrency_that_differs_stays_and_gives_one_warning(
    scope: dict[str, Any], gap: float, words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert set(robots("User-agent: *\nCrawl-delay: 3", scope).gaps(A)) == {gap}
    [line] = warnings(caplog)
    assert line.startswith(f"{A}: ")
    assert all(word in line for word in [*words, "Crawl-delay of 3 s"])
    assert line.count("a delay") + line.count("a concurrency") == len(words)


@pytest.mark.parametrize("scope", [{"delay": 3.0}, {"concurrency": 1}, {"delay": 3.0, "concurrency": 1}])
def test_d12_what_robots_txt_asks_for_as_well_is_kept_silently(
    scope: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert set(robots("User-agent: *\nCrawl-delay: 3", scope).gaps(A)) == {3.0}
    assert warnings(caplog) == []


def test_d12_i12_a_pace_that_differs_from_when_it_was_changed_on_gives_the_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Changing(trawl.Spider):
        name = "changing"
        start_urls = tuple(pages(3))

        def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> None:
            self.crawl.throttling.set(A, delay=5.0)

    sim = simulate(Changing, web_of(latency=0.1, robots="User-agent: *\nCrawl-delay: 3"), OBEYING)
    assert sim.times(A) == [0.0, 3.0, 8.0, 13.0]
    assert len(warnings(caplog)) == 1


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


JITTERED = {"ROBOTSTXT_OBEY": True}  # and every other setting at its default


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        (10, {}),
        (2, {"RANDOMIZE_DOWNLOAD_DELAY": 1}),
        (2, {"RANDOMIZE_DOWNLOAD_DELAY": [-0.5, -0.2]}),  # a jitter that shortens all there is
        (2, {"THROTTLING_SCOPES": {A: {"rampup": {"window": 10.0}}}}),
        (2, {"THROTTLING_SCOPES": {A: {"jitter": 0.9, "concurrency": 4}}}),
        (2, {"AUTOTHROTTLE_ENABLED": True}),
        (2, {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 2.5}),
        (2, {"DOWNLOAD_DELAY": 2.5}),
    ],
)
@pytest.mark.parametrize("scopes", [(A,), (A, "api")])
def test_d12_jitter_never_makes_an_interval_shorter_than_the_crawl_delay(
    asked: int, settings: dict[str, Any], scopes: tuple[str, ...]
) -> None:
    web = web_of(latency=0.1, robots=f"User-agent: *\nCrawl-delay: {asked}")
    requests = [trawl.Request(url, meta={} if len(scopes) == 1 else {"throttling_scopes": scopes}) for url in pages(40)]
    sim = crawl(web, requests, {**JITTERED, **settings})
    gaps = sim.gaps(A)[1:] if settings.get("AUTOTHROTTLE_ENABLED") else sim.gaps(A)
    assert len(sim.items) == 40
    assert min(gaps) >= asked
    assert max(gaps) <= 2.0 * max(asked, 2.5) + 0.1 or settings.get("AUTOTHROTTLE_ENABLED")


def test_d12_jitter_lengthens_a_crawl_delay_up_to_its_end() -> None:
    gaps = crawl(web_of(robots="User-agent: *\nCrawl-delay: 10"), pages(80), JITTERED).gaps(A)
    assert 10.0 <= min(gaps) < 10.3
    assert 14.7 < max(gaps) <= 15.0
    assert len(set(gaps)) == 80


def test_a17_d12_a_longer_delay_of_ones_own_keeps_its_jitter_above_the_crawl_delay() -> None:
    settings = {**JITTERED, "DOWNLOAD_DELAY": 12.0}
    gaps = crawl(web_of(robots="User-agent: *\nCrawl-delay: 10"), pages(80), settings).gaps(A)
    assert 10.0 <= min(gaps) < 10.6
    assert 17.0 < max(gaps) <= 18.0


def test_a17_d12_a_delay_that_was_configured_for_the_scope_keeps_its_jitter() -> None:
    gaps = robots("User-agent: *\nCrawl-delay: 3", {"delay": 2.0, "jitter": 0.5}, 80).gaps(A)
    assert 1.0 <= min(gaps) < 1.1
    assert 2.9 < max(gaps) <= 3.0


class Faster(trawl.Spider):
    """Lowers the delay of its own while robots.txt asks for three seconds, and takes it back."""

    name = "faster"
    start_urls = tuple(pages(30))

    def parse(self, response: trawl.Response, *args: Any, **kwargs: Any) -> None:
        number = int(response.url.rpartition("/")[2])
        if number % 5 == 0:
            self.crawl.throttling.set("api", delay=0.1 if number % 2 else 5.0)
            self.crawl.throttling.set(A, jitter=0.9 if number % 2 else 0.5)


def test_d12_a_crawl_delay_is_kept_while_limits_change_and_the_host_backs_off() -> None:
    web = web_of(latency=0.1, robots="User-agent: *\nCrawl-delay: 3", outages=[(20.0, 40.0)])
    sim = simulate(Faster, web, {**JITTERED, "BACKOFF_WINDOW": 20.0})
    assert min(sim.gaps(A)) >= 3.0
    assert len({send.url for send in sim.sends if send.status == 200}) == 31


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
