"""What memory knows of the seen set is right, or known to be unknown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trawl.frontier.tables import Claims


def marks(count: int) -> list[bytes]:
    return [b"%16d" % number for number in range(count)]


def test_while_all_fit_nothing_has_to_be_asked() -> None:
    claims = Claims(marks(5), 5, generation=10)
    assert [claims.claim(mark) for mark in marks(10)] == [False] * 5 + [True] * 5
    assert claims.count == 10


def test_once_some_were_dropped_what_is_not_remembered_has_to_be_asked_for() -> None:
    claims = Claims((), 0, generation=2)
    for mark in marks(6):
        claims.claim(mark)
        claims.stored(mark)
    assert claims.claim(marks(6)[5]) is False
    assert claims.claim(marks(6)[0]) is None
    claims.settle(marks(6)[0], was_stored=True)
    assert claims.claim(marks(6)[0]) is False
    assert claims.count == 6
    assert claims.claim(b"new") is None
    claims.settle(b"new", was_stored=False)
    assert claims.count == 7


def test_a_claim_is_not_dropped_before_it_is_stored() -> None:
    claims = Claims((), 0, generation=1)
    assert claims.claim(b"claimed") is True
    for mark in marks(9):
        claims.stored(mark)
    assert claims.claim(b"claimed") is False


def test_too_many_to_remember_are_all_asked_for() -> None:
    assert Claims(None, 10**6, generation=2).claim(b"any") is None


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=60), st.integers(1, 4))
def test_with_a_store_to_ask_the_answers_are_those_of_a_set(steps: list[tuple[int, bool]], generation: int) -> None:
    claims, known, stored = Claims((), 0, generation), set[int](), set[int]()
    for number, is_pushed in steps:
        mark = b"%d" % number
        answer = claims.claim(mark)
        if answer is None:
            answer = number not in stored
            claims.settle(mark, was_stored=not answer)
        assert answer is (number not in known)
        if answer and is_pushed:
            claims.stored(mark)
            stored.add(number)
            known.add(number)
        elif answer:
            claims.withdraw(mark)
        assert claims.count == len(known)
