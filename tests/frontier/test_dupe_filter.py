"""What memory knows of the seen set is right, or known to be unknown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trawl.frontier.lane_cache import DupeFilter


def marks(count: int) -> list[bytes]:
    return [b"%16d" % number for number in range(count)]


def claim(dupe_filter: DupeFilter, mark: bytes) -> bool | None:
    [answer] = dupe_filter.claim_many([mark])
    return answer


def test_while_all_fit_nothing_has_to_be_asked() -> None:
    dupe_filter = DupeFilter(marks(5), 5, generation=10)
    assert dupe_filter.claim_many(marks(10)) == [False] * 5 + [True] * 5
    assert dupe_filter.count == 10


def test_once_some_were_dropped_what_is_not_remembered_has_to_be_asked_for() -> None:
    dupe_filter = DupeFilter((), 0, generation=2)
    for mark in marks(6):
        claim(dupe_filter, mark)
        dupe_filter.stored(mark)
    assert claim(dupe_filter, marks(6)[5]) is False
    assert claim(dupe_filter, marks(6)[0]) is None
    dupe_filter.settle(marks(6)[0], was_stored=True)
    assert claim(dupe_filter, marks(6)[0]) is False
    assert dupe_filter.count == 6
    assert claim(dupe_filter, b"new") is None
    dupe_filter.settle(b"new", was_stored=False)
    assert dupe_filter.count == 7


def test_a_claim_is_not_dropped_before_it_is_stored() -> None:
    dupe_filter = DupeFilter((), 0, generation=1)
    assert claim(dupe_filter, b"claimed") is True
    for mark in marks(9):
        dupe_filter.stored(mark)
    assert claim(dupe_filter, b"claimed") is False


def test_too_many_to_remember_are_all_asked_for() -> None:
    assert claim(DupeFilter(None, 10**6, generation=2), b"any") is None


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=60), st.integers(1, 4))
def test_with_a_store_to_ask_the_answers_are_those_of_a_set(steps: list[tuple[int, bool]], generation: int) -> None:
    dupe_filter, known, stored = DupeFilter((), 0, generation), set[int](), set[int]()
    for number, is_pushed in steps:
        mark = b"%d" % number
        answer = claim(dupe_filter, mark)
        if answer is None:
            answer = number not in stored
            dupe_filter.settle(mark, was_stored=not answer)
        assert answer is (number not in known)
        if answer and is_pushed:
            dupe_filter.stored(mark)
            stored.add(number)
            known.add(number)
        elif answer:
            dupe_filter.withdraw(mark)
        assert dupe_filter.count == len(known)
