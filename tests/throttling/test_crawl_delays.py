from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trawl.throttling.scope_table import MAX_ORIGINS, CrawlDelays


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from([0.0, 1.0, 2.5, 9.0]))))
def test_d09_a_scope_has_the_longest_of_what_its_origins_said_last(said: list[tuple[str, str, float]]) -> None:
    delays, last = CrawlDelays(10), dict[tuple[str, str], float]()
    for id, origin, delay in said:
        before = delays.of(id)
        has_changed = delays.say(id, origin, delay)
        last[id, origin] = delay
        expected = max([wish for (scope, _), wish in last.items() if scope == id])
        assert delays.of(id) == expected
        assert has_changed == (before != expected)
    assert bool(delays.wishes) == any(last.values())


def test_of_more_scopes_than_are_kept_the_first_is_forgotten() -> None:
    delays = CrawlDelays(2)
    for id in "abc":
        delays.say(id, "x", 1.0)
    assert [delays.of(id) for id in "abc"] == [0.0, 1.0, 1.0]


def test_i05_of_very_many_names_at_an_address_the_longest_wish_is_kept() -> None:
    delays = CrawlDelays(2)
    for number in range(2 * MAX_ORIGINS):
        delays.say("192.0.2.7", f"http://h{number}.example", 5.0 if number == 7 else 1.0)
    assert delays.of("192.0.2.7") == 5.0
