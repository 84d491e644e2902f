"""Fixtures and settings for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from itertools import takewhile
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

# Every run tries the same examples, so that a failure is caused by the change. HYPOTHESIS_PROFILE=default draws other
# examples. Examples have no deadline, because the machine may be busy.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", untimed, derandomize=True, max_examples=25)
# Tracing doubles the time of each line.
settings.register_profile("coverage", untimed, derandomize=True, max_examples=10)
settings.register_profile("sweep", untimed, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))

# A shell starts background processes with SIGINT ignored, and nohup ignores SIGHUP. Processes that tests start would
# inherit this.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

ONE_CASE_OF = {
    "test_a17_a18_a19_intervals_lie_within_the_jitter_and_fill_it": 2,
    "test_a21_a_rate_is_a_ceiling_and_97_percent_of_it_are_used": 3,
    "test_a21_a_rate_is_a_ceiling_over_all_crawls_and_is_used": 9,
    "test_a21_no_second_holds_more_than_six_sends_of_a_rate_of_four": 2,
    "test_a21_the_ceiling_holds_over_changes_of_the_rate": 2,
    "test_a22_each_is_a_send_from_which_the_delay_counts": 6,
    "test_a22_responses_of_user_code_keep_the_pace_of_sends_that_it_lets_through": 6,
    "test_a_crawl_with_hostile_middleware_ends_and_keeps_its_limits": 3,
    "test_a_delay_holds_over_all_crawls_and_is_used": 9,
    "test_a_delay_is_used_though_a_middleware_awaits_before_the_wire": 9,
    "test_a_fetch_beside_the_last_send_of_a_limit_of_pages_does_not_wait_for_ever": 4,
    "test_a_kill_forgets_nothing_that_was_spent": 2,
    "test_a_lock_around_a_login_of_a_shared_scope_keeps_nothing_from_going": 4,
    "test_a_login_of_a_shared_scope_that_is_tried_again_keeps_nothing_from_going": 2,
    "test_a_mixture_keeps_every_promise": 3,
    "test_a_page_holds_no_token_while_its_middleware_fetches_another": 2,
    "test_a_shutdown_gives_back_what_waits_for_a_token": 4,
    "test_a_window_that_is_told_refuses_nothing_and_is_used": 2,
    "test_b07_c05_after_an_outage_of_40_s_the_rate_is_back_in_30": 9,
    "test_b07_c05_an_outage_whose_every_answer_says_when_to_come_back_is_one": 6,
    "test_b20_an_outage_of_15_minutes_ends_nobody": 4,
    "test_b20_d05_a_time_that_was_named_passes_before_a_host_is_given_up_though_the_wait_is_cut": 2,
    "test_c05_a_hold_that_a_429_asks_for_is_dear_so_there_are_few": 9,
    "test_c05_a_limit_whose_every_refusal_costs_half_a_minute_is_used": 9,
    "test_c05_after_an_outage_of_five_minutes_the_rate_is_back_in_one": 9,
    "test_c05_after_two_short_outages_the_rate_is_back": 9,
    "test_c09_a_limit_that_rises_is_used_in_the_two_minutes_after_it": 9,
    "test_c09_a_server_that_bears_no_burst_is_used_in_spite_of_jitter": 9,
    "test_c09_from_the_thirtieth_second_on_refusals_are_few": 9,
    "test_c09_it_finds_the_limit_again_when_that_moves": 9,
    "test_c09_switched_on_it_finds_the_limit_in_seconds": 2,
    "test_c09_within_40_windows_it_reaches_nine_tenths_and_stays_there": 9,
    "test_c1_a_job_that_is_moved_with_its_feed_goes_on_as_if_it_were_not": 3,
    "test_c5_what_was_not_finished_is_in_the_frontier_once": 2,
    "test_c7_killed_at_any_write_each_item_is_in_the_file_once": 4,
    "test_crawls_whose_logins_need_what_the_pages_of_others_have_do_not_wait_for_each_other": 2,
    "test_ctrl_c_while_a_spider_is_imported_ends_the_command_without_a_traceback": 9,
    "test_d01_b20_a_refusal_that_says_when_to_come_back_is_a_trigger_whatever_its_status": 4,
    "test_each_is_charged_to_the_quota": 4,
    "test_f12_p4_a_request_of_several_scopes_is_passed_by_at_most_32": 2,
    "test_however_long_a_middleware_awaits_nothing_is_early_and_the_rate_is_what_the_docs_say": 2,
    "test_i02_h16_a_figure_that_is_not_reached_for_something_else_than_the_scope_names_that": 2,
    "test_i02_the_alarm_names_what_crawl_why_names_most_often": 6,
    "test_i11_a_rate_is_never_above_the_one_that_was_allowed": 2,
    "test_i11_nothing_that_is_told_of_waiting_contradicts_the_sends": 2,
    "test_i11_whatever_limited_a_scope_is_what_its_time_is_put_down_to": 4,
    "test_killed_workers_are_replaced_and_every_page_is_visited_once": 9,
    "test_lost_calls_and_lost_answers_lose_nothing_and_double_nothing": 2,
    "test_nothing_goes_early_where_everything_is_mixed": 2,
    "test_nothing_that_could_go_is_withheld_nor_sent_early_nor_stuck": 9,
    "test_pages_with_shared_scopes_and_without_wait_no_longer_than_their_limits": 9,
    "test_processes_that_share_a_job_fetch_what_one_fetches": 4,
    "test_r12_c09_a_limit_that_refuses_now_this_one_and_now_that_one_loses_nothing": 3,
    "test_several_may_wait_for_one_token_whatever_they_have_taken": 3,
    "test_shared_scopes_keep_their_limits_while_parts_change_hands": 9,
    "test_the_same_if_lanes_often_take_over_the_reservations_of_far_lanes": 99,
    "test_three_processes_keep_the_delay_of_one_cdn_and_refuse_no_request": 9,
    "test_two_jittered_delays_together_give_the_rate_of_the_slower_one": 2,
    "test_what_a_middleware_awaits_does_not_come_on_top_of_a_quotas_window": 3,
    "test_what_killed_processes_had_is_fetched_by_others_and_nothing_is_lost": 3,
    "test_whoever_holds_the_lock_that_middleware_waits_for_may_fetch": 6,
    "test_whoever_looks_at_a_damaged_job_gets_a_line_and_no_traceback": 2,
    "test_with_jitter_the_rate_is_what_it_is_without_a_way_to_the_wire": 9,
}
"""Tests with many slow cases: about one case in so many runs, and ``nox -s sweep`` runs all."""

IS_COMPILED = os.environ.get("TRAWL_COMPILED") == "1"  # set by `nox -s compiled`, and checked by tests/test_compiled.py

REAL = {name: getattr(gc, name) for name in ("freeze", "unfreeze")}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Write bytecode only for tests and modules, and freeze their objects for the garbage collector.

    These are a million objects, and collecting them took half of the time of many tests. The command's own freezing and
    unfreezing would undo this. Tests of that code use :func:`garbage_collector`.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        sys.dont_write_bytecode = True  # a test may rewrite a module within the same second
        for name in REAL:
            setattr(gc, name, lambda: None)


@pytest.fixture
def garbage_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Yield with a garbage collector that has no frozen objects, as in a new process."""
    for name, function in REAL.items():
        monkeypatch.setattr(gc, name, function)
    gc.unfreeze()
    yield
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave cases to the sweep, and skip tests in a compiled run that only pass with the sources."""
    known: set[tuple[str, bool]] = set()
    for item in items:
        name = str(getattr(item, "originalname", item.name))
        # At least one case of each test, and of each of its forms (tests/promises/conftest.py).
        form = item.nodeid.partition("[")[0], "behind-user-code" in item.name
        # A checksum, because every nth case might have the same value of a parameter. It is the same in all workers.
        if form in known and crc32(item.nodeid.encode()) % ONE_CASE_OF.get(name, 1):
            item.add_marker(pytest.mark.sweep)
        known.add(form)
    reason = "replaces a name inside a compiled module, or gives it a stand-in or a value of a wrong type"
    for item in items if IS_COMPILED else ():
        if item.get_closest_marker("interpreted") is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def examples() -> Path:
    """Return the folder of the examples."""
    return Path(__file__).parent.parent / "examples"


@pytest.fixture
def few_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Divide each job in a server into 40 parts. With 1,024, each session that joins a simulated server takes 30 ms.

    The three hosts of the contract of frontiers are with a session each, as with 1,024 parts.
    """
    from trawl.frontier import parts
    from trawl.frontier.redis import startup

    for module in (parts, startup):
        monkeypatch.setattr(module, "PARTS", 40)
    parts.part_of.cache_clear()
    yield
    parts.part_of.cache_clear()


@pytest.fixture(autouse=True)
def without_settings_and_modules_of_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hide settings of this machine and its home, and then forget modules from the test's own folder.

    The next test may also have a ``books.py``. This is one fixture, because all tests together set it up for seconds.
    """
    folder, last, path = tmp_path_factory.getbasetemp(), next(reversed(sys.modules)), sys.path[:]
    hidden = [name for name in os.environ if name.startswith("TRAWL_") or name.lower().endswith("_proxy")]
    before = {name: os.environ.pop(name) for name in hidden}
    home = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    yield
    os.environ.update(before)
    del os.environ["XDG_STATE_HOME"]
    if home is not None:
        os.environ["XDG_STATE_HOME"] = home
    sys.path[:] = path
    for name in [*takewhile(last.__ne__, reversed(sys.modules))]:  # what was imported since
        if str(getattr(sys.modules[name], "__file__", None)).startswith(f"{folder}{os.sep}"):
            del sys.modules[name]
