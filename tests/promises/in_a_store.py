"""Runs the promise tests with a job in a server: each simulated crawl has a job in its own simulated store.

``nox -s stored`` uses it: ``pytest -p tests.promises.in_a_store tests/promises``. A server's clock counts in
microseconds, so tokens of shared scopes and delayed requests arrive a few microseconds late. The plug-in removes this
difference. The tests that differ by design are listed here, and ``docs/explanation/shared-jobs.md`` explains the
differences.
"""

from __future__ import annotations

from itertools import count

import pytest
import tldextract  # noqa: F401 - its import takes 0.1 s, which a limit of a test would feel
import trio

from tests.simulated_store import SimulatedStore
from trawl.frontier.redis.client import Address
from trawl.settings import Layer, Settings, load
from trawl.testing.sends import rounded

LATE = 1e-5
"""Seconds."""

KEYS = "a scope that several processes need can't have a sliding window or slots with a delay of their own"
STORED = "its callbacks, or values in its meta, can't be stored"
LINE = (
    "the line of a shared scope is by priority, then age: not by share of a quota; what fits waits behind what does not"
)
GIVEN = "a token that was given stays good when a limit changes"
OFFSET = "the offset of a shared rate counts from its token, which is asked for when the other rate is due"
TOLD = "the store tells one limit, and a place in line, of what waits for a shared scope"

DIFFERENT: dict[str, str] = {
    "test_a21_two_rates_on_each_request_give_the_slower_one": OFFSET,
    "test_nothing_goes_early_where_everything_is_mixed": KEYS,
    "test_e01_a_string_an_iterable_or_a_mapping_names_the_scopes": KEYS,
    "test_e20_any_other_id_is_unlimited_but_for_the_keys_it_sets": KEYS,
    "test_f01_f05_f11_no_window_is_overspent_and_nothing_that_fits_waits": KEYS,
    "test_f02_sliding_slides_instead_of_resetting": KEYS,
    "test_f06_with_window_0_the_quota_never_blocks_and_never_spins": KEYS,
    "test_f11_a_larger_amount_is_not_starved_by_smaller_ones_in_a_sliding_window": KEYS,
    "test_f12_p4_a_request_of_several_scopes_with_delays_a_slot_is_passed_by_at_most_32": KEYS,
    "test_mixed_quotas_are_kept_and_spent_by_share": KEYS,
    "test_mixed_quotas_are_kept_while_they_change_and_connections_are_slow": KEYS,
    "test_a_bad_page_reaches_its_errback_with_the_last_answer": STORED,
    "test_a_name_that_does_not_resolve_likewise": STORED,
    "test_with_dont_retry_a_refusal_goes_to_the_errback": STORED,
    "test_r12_a_path_that_says_later_for_ever_ends_while_the_rest_of_its_host_is_served": STORED,
    "test_e03_scopes_of_the_meta_persist_through_redirects": STORED,
    "test_f09_nothing_goes_past_the_throttle_however_requests_are_led_about": STORED,
    "test_f03_no_amount_and_none_count_one_and_nothing_is_free": LINE,
    "test_f05_an_amount_above_the_quota_goes_when_nothing_is_spent": LINE,
    "test_f05_two_of_them_take_a_window_each": LINE,
    "test_f07_across_hosts_and_lanes": LINE,
    "test_f07_f11_many_amounts_beyond_what_is_leased_ahead": LINE,
    "test_f07_holds_at_the_second_quota_of_a_request_too": LINE,
    "test_f07_the_larger_share_goes_first": LINE,
    "test_f07_the_larger_share_goes_first_in_a_quota_that_was_set_while_they_waited": LINE,
    "test_f07_the_larger_share_goes_first_where_they_wait_at_another_scope": LINE,
    "test_f07_those_that_come_while_the_gate_is_full_are_sorted_in": LINE,
    "test_f11_a_better_priority_passes_a_larger_amount_as_often_as_it_likes": LINE,
    "test_f11_a_quota_is_not_kept_for_one_that_another_scope_holds_for_longer": LINE,
    "test_f11_small_amounts_behind_a_large_one_go_at_once_when_a_quota_is_set_while_they_wait": LINE,
    "test_f11_small_amounts_that_do_not_put_the_larger_one_off_still_pass": LINE,
    "test_f11_the_larger_one_that_waits_is_first_when_the_window_ends_though_it_came_last": LINE,
    "test_f11_the_same_where_the_smaller_ones_are_of_many_hosts": LINE,
    "test_f11_two_that_need_two_quotas_each_do_not_wait_for_each_other": LINE,
    "test_f11_what_fits_passes_a_larger_one_in_a_quota_that_was_set_while_both_waited": LINE,
    "test_f11_what_fits_passes_what_does_not_and_the_larger_goes_first_in_the_next_window": LINE,
    "test_f12_those_who_share_no_quota_have_their_turns_beside_those_who_do": LINE,
    "test_a_quota_lowered_while_requests_connect_holds_those_that_do_not_fit_any_more": GIVEN,
    "test_a_quota_set_while_requests_connect_counts_them": GIVEN,
    "test_i12_p13_limits_change_while_it_runs_and_waiters_notice_at_once": GIVEN,
    "test_a_paused_crawl_says_how_it_goes_on": "a job is continued with `trawl job JOB --resume`",
    "test_a_request_that_waits_for_a_busy_scope_keeps_no_page_from_the_other_of_its_scopes": (
        "the token comes after the places that the host freed at the same time are used, so the request waits until the"
        " host frees places again: 34.3 to 44 s instead of at most 34"
    ),
    "test_with_jitter_the_rate_is_what_it_is_without_a_way_to_the_wire": "jitter is drawn in another order: 0.987",
    "test_f12_no_place_is_kept_free_through_a_long_block": "60 tokens in a row are 0.6 ms later",
    "test_i02_h16_a_figure_that_is_not_reached_for_something_else_than_the_scope_names_that": TOLD,
    "test_i05_i11_a_host_that_is_throttled_by_its_address_or_under_another_name_can_be_asked_about": TOLD,
    "test_i11_a_quota": TOLD,
    "test_i11_a_request_far_behind_in_the_frontier": TOLD,
    "test_i11_a_scope_that_is_open_is_not_what_requests_without_a_place_wait_for": TOLD,
    "test_i11_a_scope_that_is_open_while_another_is_waited_for_is_not_put_down_as_what_limits": TOLD,
    "test_i11_a_single_send_is_told_what_is_in_force": TOLD,
    "test_i11_f03_a_quota_is_told_by_the_amounts_that_are_asked_and_not_by_ones": TOLD,
    "test_i11_f04_what_answers_say_was_really_used_counts_too": TOLD,
    "test_i11_nobody_is_said_to_wait_for_a_scope_that_it_does_not_have": TOLD,
    "test_i11_nor_without_jitter": TOLD,
    "test_i11_nothing_that_is_told_of_waiting_contradicts_the_sends": TOLD,
    "test_i11_of_several_scopes_the_one_that_opens_last": TOLD,
    "test_i11_the_requests_own_delay": TOLD,
    "test_i11_the_same_for_all_that_wait": TOLD,
    "test_i11_the_time_between_two_sends_is_put_down_to_the_limit_that_opened_last": TOLD,
}
"""Reasons why tests of crawls in memory fail with a store, by name of the test. Some of their cases may pass."""

AS_THEY_ARE = {
    "test_c03_without_a_window_it_is_forty_answers_at_the_rate_in_force",
    "test_c04_c05_after_a_refusal_steps_close_in_on_the_refused_rate_and_then_search_past_it",
}
"""Tests without late times, in whose crawls some times are close to a hundredth of a second anyway."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that differ as expected failures."""
    names = {str(getattr(item, "originalname", item.name)) for item in items}
    if unknown := (DIFFERENT.keys() | AS_THEY_ARE) - names:
        raise pytest.UsageError(f"no such tests: {sorted(unknown)}; take them out, or run all of tests/promises")
    for item in items:
        reason = DIFFERENT.get(str(getattr(item, "originalname", item.name)))
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))


@pytest.fixture(autouse=True)
def in_a_store(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Give each simulated crawl without a job a job in its own store."""
    numbers = count()

    def load_with_a_job(*layers: Layer) -> Settings:
        settings = load(*layers)
        if settings["JOB_DIR"] or settings["FRONTIER"]:
            return settings
        return load(*layers, Layer("store", {"JOB_DIR": f"redis://store/{next(numbers)}"}))

    stores: dict[str, SimulatedStore] = {}
    monkeypatch.setattr(
        "trawl.frontier.redis.startup.connect_server",
        lambda address: _store_of(stores, address).connect(address),
    )
    monkeypatch.setattr("trawl.testing.simulation.load", load_with_a_job)
    monkeypatch.setattr("trawl.frontier.redis.line._ROUNDING", 0.0)
    monkeypatch.setattr("trawl.engine.status.report_status", _report_nothing)
    if request.node.originalname in AS_THEY_ARE:
        return
    for module in ("sends", "simulation"):
        monkeypatch.setattr(f"trawl.testing.{module}.rounded", _punctual)


async def _report_nothing(*_: object) -> None:
    """Report no status to the store, because two virtual days would have 172,800 of them."""
    await trio.sleep_forever()


def _punctual(at: float) -> float:
    """Round a time that is slightly later than a hundredth of a second. Other times are returned unchanged."""
    due = round(at, 2)
    return due if -1e-9 < at - due < LATE else rounded(at)


def _store_of(stores: dict[str, SimulatedStore], address: Address) -> SimulatedStore:
    return stores.setdefault(address.job, SimulatedStore())
