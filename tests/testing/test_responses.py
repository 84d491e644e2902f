"""What a simulated server answers."""

from __future__ import annotations

import pytest

from trawl.errors import ProxyFailed, ReadTimeout, ResponseBroken
from trawl.testing import SimulatedResponse
from trawl.testing.hosts import make_failure, make_page, make_redirect


def test_text_is_sent_as_utf_8_and_said_to_be_html() -> None:
    response = SimulatedResponse(200, "Grüße")
    assert response.body == "Grüße".encode()
    assert response.headers["content-type"] == "text/html; charset=utf-8"


def test_given_headers_go_before_the_default() -> None:
    assert SimulatedResponse(headers={"content-type": "text/plain"}).headers["Content-Type"] == "text/plain"


@pytest.mark.parametrize("wrong", [{"status": 100}, {"status": 1000}, {"latency": -1}, {"headers": {"a b": "c"}}])
def test_a_value_out_of_range_is_refused_when_it_is_made(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 each has words of its own
        SimulatedResponse(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"body": 7}, {"error": ValueError}, {"error": "broken"}])
def test_a_value_of_the_wrong_kind_is_refused_when_it_is_made(wrong: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        SimulatedResponse(**wrong)  # type: ignore[arg-type]


def test_links_are_escaped() -> None:
    assert '<a href="/?a=1&amp;b=&quot;">' in make_page(['/?a=1&b="'], "<1>")
    assert "<title>&lt;1&gt;</title>" in make_page([], "<1>")


def test_a_redirect_says_where_to() -> None:
    response = make_redirect("/new", 301, {"Retry-After": "3"})
    assert (response.status, response.headers["Location"], response.headers["Retry-After"]) == (301, "/new", "3")


def test_an_error_is_made_for_its_request() -> None:
    error = make_failure(ReadTimeout, "slow", "http://a.example/", "POST")
    assert str(error) == "POST http://a.example/: slow"
    given = ResponseBroken("cut")
    assert str(make_failure(given, "", "http://a.example/", "GET")) == "GET http://a.example/: cut"
    assert given.url == ""


@pytest.mark.parametrize("is_of_proxy", [True, False])
def test_an_error_that_says_more_than_a_cause_says_it_for_each_request(is_of_proxy: bool) -> None:
    error = make_failure(ProxyFailed("refused", is_of_proxy=is_of_proxy), "", "http://a.example/", "GET")
    assert isinstance(error, ProxyFailed)
    assert (error.is_of_proxy, error.args, str(error)) == (is_of_proxy, ("refused",), "GET http://a.example/: refused")


def test_a_class_of_errors_is_enough_where_nothing_more_is_to_say() -> None:
    error = make_failure(ProxyFailed, "the proxy is gone", "http://a.example/", "GET")
    assert isinstance(error, ProxyFailed)
    assert (error.is_of_proxy, error.url) == (True, "http://a.example/")
