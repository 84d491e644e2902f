from __future__ import annotations

import attrs
import pytest

from trawl.http import Response
from trawl.links import Link


def test_a_link_is_a_value() -> None:
    link = Link("http://a.example/", "words", nofollow=True)
    assert link == Link("http://a.example/", text="words", fragment="", nofollow=True)
    assert len({link, link, Link("http://a.example/")}) == 2
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        link.url = "x"  # type: ignore[misc]


def test_a_link_can_be_followed() -> None:
    response = Response("http://a.example/")
    assert response.follow(Link("/b", "words")).url == "http://a.example/b"
    assert [request.url for request in response.follow_all([Link("/b"), Link("/c")])] == [
        "http://a.example/b",
        "http://a.example/c",
    ]
