from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trawl.selectors import MAX_ATTRIBUTES, SMALL, limit_attributes, select

MANY = 50_000

CROWDS = {
    "quoted": 'b{}="c" ',
    "in single quotes": "b{}='<' ",
    "with ends inside": 'b{}=">" ',
    "bare": "b{} ",
    "without quotes": "b{}=c ",
    "glued": 'b{}="c"',
    "slashes": "b{}/",
    "beginning with =": "=b{} ",
    "with spaces": "b{} = 'c'\n",
}


@pytest.mark.parametrize("attribute", CROWDS.values(), ids=CROWDS)
def test_a_tag_with_too_many_attributes_ends_after_those_that_are_read(attribute: str) -> None:
    crowd = "".join(attribute.format(number) for number in range(MANY))
    text = f"<p>before</p><a {crowd} x>in</a><p>after</p>"
    cut = limit_attributes(text)
    assert len(cut) < len(text) / 10
    page = select(text)
    assert page.css("p::text").getall() == ["before", "after"]
    assert page.css("a::text").get() == "in"
    assert len(page.css("a")[0].attrib) == MAX_ATTRIBUTES


@pytest.mark.parametrize(
    "text", ["<a " * 400_000, '<a b="' * 200_000, "<a '" * 300_000, "<a " + "= " * 400_000, "<" * 10**6]
)
def test_what_never_ends_is_looked_at_once(text: str) -> None:
    assert len(limit_attributes(text)) <= len(text)  # quadratic, each of them would take minutes


def test_pages_as_they_are_stay_as_they_are() -> None:
    page = "<div class='x' id=\"y\" hidden data-a=1><a href='/z?a=b&c'>t</a><br/><!-- <b c> --></div>\n" * 2_000
    assert len(page) > SMALL
    assert limit_attributes(page) is page


@settings(max_examples=50)
@given(st.text(st.sampled_from("<a b='\"=/>\n!-"), max_size=200))
def test_an_element_with_few_attributes_is_left_alone(text: str) -> None:
    padded = text + " " * SMALL
    assert limit_attributes(padded) == padded


@settings(max_examples=50)
@given(st.text(st.sampled_from("<a b='\"=/>\n!-"), max_size=60), st.integers(0, 3))
def test_what_is_cut_is_attributes_and_nothing_else(text: str, crowd: int) -> None:
    tag = f"<i {' '.join(f'x{number}' for number in range(crowd * 8_000))}>"
    page = f"{' ' * SMALL}<b></b>{tag}{text}"
    cut = limit_attributes(page)
    assert re.sub(r" x\d+", "", cut) == re.sub(r" x\d+", "", page)
