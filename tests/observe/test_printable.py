from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from trawl.observe import clipped, printable


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_printable_moves_a_cursor_or_breaks_an_encoder(text: str) -> None:
    shown = printable(text)
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cs", "Zl", "Zp"}
    shown.encode("utf-8")


def test_escape_sequences_are_spelled_out() -> None:
    assert printable("a\x1b]0;title\x07b\u202ec\r\n") == r"a\x1b]0;title\x07b\u202ec\r\n"


def test_ordinary_text_of_any_language_stays() -> None:
    assert printable("naïve 日本語 עברית 🕷") == "naïve 日本語 עברית 🕷"


def test_lines_stay_only_where_asked() -> None:
    assert printable("a\n\tb\x1b", keeps_lines=True) == "a\n\tb\\x1b"


@given(st.text(), st.integers(3, 80))
def test_a_clipped_text_is_never_longer_than_asked(text: str, most: int) -> None:
    assert len(clipped(text, most)) <= most


def test_a_clipped_text_keeps_both_ends() -> None:
    assert clipped("http://a.example/" + "x" * 100 + "/end", 20) == "http://a.exa…xxx/end"
