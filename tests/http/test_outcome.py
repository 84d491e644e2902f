from __future__ import annotations

from trawl.http import Drop, Outcome, Replace, Request

REQUEST = Request("http://a.example/")


def test_latency_counts_from_the_start_of_connecting_to_the_headers() -> None:
    outcome = Outcome(REQUEST, started_at=1.0, sent_at=1.5, first_byte_at=2.0, ended_at=4.0)
    assert outcome.latency == 1.0


def test_there_is_no_latency_without_headers() -> None:
    assert Outcome(REQUEST, started_at=1.0, ended_at=4.0).latency is None


def test_what_comes_next_is_a_value() -> None:
    assert Replace(REQUEST, delay=2.0) == Replace(REQUEST, 2.0, "retry", False)
    assert Drop("offsite") == Drop("offsite")
