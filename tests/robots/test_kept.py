"""Answers to requests for robots.txt that a later run goes on from, bounded."""

from __future__ import annotations

from trawl.robots import MOST_BODY_BYTES, MOST_BYTES, Answers, KeptAnswer

A = "https://a.example"


def test_an_answer_is_taken_up_until_it_expires() -> None:
    first, second = Answers(), Answers()
    first.keep(A, 200, b"User-agent: *\nDisallow: /x", 500.0)
    first.keep("https://old.example", 200, b"", 90.0)
    state = first.state(100.0, ahead=1e9)
    assert state == {A: KeptAnswer(200, b"User-agent: *\nDisallow: /x", 1e9 + 500.0)}
    second.take_up(state, ahead=1e9 + 495.0, latest=1000.0)  # its clock began 495 s later
    assert second.fresh(A, 4.0) == KeptAnswer(200, b"User-agent: *\nDisallow: /x", 5.0)
    assert second.fresh(A, 5.0) is None


def test_a_clock_that_was_set_back_lets_nothing_be_believed_for_longer() -> None:
    answers = Answers()
    answers.take_up({A: KeptAnswer(404, b"", 1e9)}, ahead=0.0, latest=86_400.0)
    assert answers.fresh(A, 0.0) == KeptAnswer(404, b"", 86_400.0)


def test_what_is_kept_is_bounded() -> None:
    answers = Answers()
    answers.keep("https://long.example", 200, b"x" * (MOST_BODY_BYTES + 1), 10.0)
    assert answers.fresh("https://long.example", 0.0) is None
    for number in range(2 * MOST_BYTES // MOST_BODY_BYTES):
        answers.keep(f"https://{number}.example", 200, b"x" * MOST_BODY_BYTES, 10.0)
    state = answers.state(0.0, 0.0)
    assert sum(len(answer.body) for answer in state.values()) <= MOST_BYTES
    assert f"https://{number}.example" in state


def test_a_page_that_is_no_file_is_not_stored() -> None:
    answers = Answers()
    answers.keep(A, 404, b"<html>" * 1000, 10.0)
    assert answers.fresh(A, 0.0) == KeptAnswer(404, b"", 10.0)
