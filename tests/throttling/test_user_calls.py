"""What a user's object answers in the middle of a decision, and what becomes of its failures."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from trawl.throttling.managers import call_user, call_user_number


class Owner:
    """Answers what it was made with; an exception is raised."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def get(self, *about: object) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_what_has_no_such_method_and_what_answers_none_mean_as_usual() -> None:
    failures: list[None] = []

    def failed() -> None:
        failures.append(None)

    assert call_user(None, "get", failed) is call_user(Owner(None), "get", failed, 1) is None
    assert call_user_number(None, "get", failed) is call_user_number(Owner(None), "get", failed, 1) is None
    assert not failures


@pytest.mark.parametrize("answer", [ValueError("no"), "soon", math.nan, [1], object(), 10**400])
def test_a_failure_is_told_logged_and_means_as_usual(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[None] = []
    with caplog.at_level(logging.ERROR, "trawl.throttling"):
        assert call_user_number(Owner(answer), "get", lambda: failures.append(None), 1.0) is None
    assert len(failures) == 1
    assert caplog.messages == ["Owner.get() failed: using the default"]


def test_an_answer_that_would_have_to_be_waited_for_is_a_failure_and_no_yes(caplog: pytest.LogCaptureFixture) -> None:
    class Slow:
        async def is_trigger(self) -> bool:
            return False

    failures: list[None] = []
    assert call_user(Slow(), "is_trigger", lambda: failures.append(None)) is None
    assert len(failures) == 1
    assert "is_trigger() is async" in caplog.text


@pytest.mark.parametrize(("answer", "number"), [(2, 2.0), ("2.5", 2.5), (math.inf, math.inf), (-1.0, -1.0)])
def test_a_number_is_one_in_any_form(answer: object, number: float) -> None:
    assert call_user_number(Owner(answer), "get", lambda: pytest.fail("it is none")) == number
