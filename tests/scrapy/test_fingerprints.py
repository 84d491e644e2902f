"""Which URLs are one for the duplicate filter: Scrapy's answer for each row of trawl's table."""

from __future__ import annotations

import pytest
import scrapy
from scrapy.utils.request import fingerprint

from tests.http.test_canonical import OTHER, SAME, SCRAPY_TELLS_APART


def of_scrapy(url: str) -> bytes:
    mark: bytes = fingerprint(scrapy.Request(url if "://" in url else f"http://a.example{url}"))
    return mark


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_is_one_page_for_trawl_is_one_for_scrapy(one: str, other: str) -> None:
    assert (of_scrapy(one) == of_scrapy(other)) == (one not in SCRAPY_TELLS_APART)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_trawl_tells_apart_scrapy_does_too(one: str, other: str) -> None:
    assert of_scrapy(one) != of_scrapy(other)
