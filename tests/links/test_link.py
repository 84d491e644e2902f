from __future__ import annotations

import pytest

from trawl.http import Response
from trawl.links import Link


def test_links_are_compared_by_what_they_say() -> None:
    link = Link("http://a.example/", "words", nofollow=True)
    assert link == Link("http://a.example/", text="words", fragment="", nofollow=True)
    assert len({link, link, Link("http://a.example/")}) == 2


def test_a_spider_may_change_the_links_it_was_given() -> None:
    link = Link("http://a.example/?session=1", "words")
    link.url = link.url.partition("?")[0]
    assert link == Link("http://a.example/", "words")
    with pytest.raises(AttributeError):
        link.ulr = "x"  # type: ignore[attr-defined]


def test_a_link_can_be_followed() -> None:
    response = Response("http://a.example/")
    assert response.follow(Link("/b", "words")).url == "http://a.example/b"
    assert [request.url for request in response.follow_all([Link("/b"), Link("/c")])] == [
        "http://a.example/b",
        "http://a.example/c",
    ]
