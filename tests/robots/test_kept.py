"""RobotsCache to requests for robots.txt that a later run goes on from, bounded."""

from __future__ import annotations

from trawl.robots.file import MAX_BODY_BYTES, MAX_BYTES, RobotsCache, RobotsEntry

A = "https://a.example"


def test_an_answer_is_taken_up_until_it_expires() -> None:
    first, second = RobotsCache(), RobotsCache()
    first.store(A, 200, b"User-agent: *\nDisallow: /x", 500.0)
    first.store("https://old.example", 200, b"", 90.0)
    state = first.to_state(100.0, ahead=1e9)
    assert state == {A: RobotsEntry(200, b"User-agent: *\nDisallow: /x", 1e9 + 500.0)}
    second.restore(state, ahead=1e9 + 495.0, latest=1000.0)  # its clock began 495 s later
    assert second.get(A, 4.0) == RobotsEntry(200, b"User-agent: *\nDisallow: /x", 5.0)
    assert second.get(A, 5.0) is None


def test_a_clock_that_was_set_back_lets_nothing_be_believed_for_longer() -> None:
    answers = RobotsCache()
    answers.restore({A: RobotsEntry(404, b"", 1e9)}, ahead=0.0, latest=86_400.0)
    assert answers.get(A, 0.0) == RobotsEntry(404, b"", 86_400.0)


def test_what_is_kept_is_bounded() -> None:
    answers = RobotsCache()
    answers.store("https://long.example", 200, b"x" * (MAX_BODY_BYTES + 1), 10.0)
    assert answers.get("https://long.example", 0.0) is None
    for number in range(2 * MAX_BYTES // MAX_BODY_BYTES):
        answers.store(f"https://{number}.example", 200, b"x" * MAX_BODY_BYTES, 10.0)
    state = answers.to_state(0.0, 0.0)
    assert sum(len(answer.body) for answer in state.values()) <= MAX_BYTES
    assert f"https://{number}.example" in state


def test_a_page_that_is_no_file_is_not_stored() -> None:
    answers = RobotsCache()
    answers.store(A, 404, b"<html>" * 1000, 10.0)
    assert answers.get(A, 0.0) == RobotsEntry(404, b"", 10.0)
