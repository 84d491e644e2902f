from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.http.url import Fields, encode_form


@pytest.mark.parametrize(
    ("fields", "encoded"),
    [
        ({}, ""),
        ({"a": "b c", "d": ""}, "a=b+c&d="),
        ({"a": ["1", 2, b"\xff"]}, "a=1&a=2&a=%FF"),
        ([("a", "1"), ("b", "2"), ("a", "3")], "a=1&b=2&a=3"),
        ({"é": "*-._~&="}, "%C3%A9=*-._%7E%26%3D"),
        ({"a": "x\ny\r\nz\r"}, "a=x%0D%0Ay%0D%0Az%0D%0A"),
    ],
)
def test_fields_are_encoded_as_browsers_do(fields: Fields, encoded: str) -> None:
    assert encode_form(fields) == encoded


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), st.text("ab& =%+~é"))))
def test_what_was_encoded_reads_back(fields: list[tuple[str, str]]) -> None:
    assert parse_qsl(encode_form(fields), keep_blank_values=True) == fields
