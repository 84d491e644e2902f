"""Ampersands that mean nothing in XML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.spiders.xml_stream import repair_ampersands


def mend(text: bytes, size: int = 1000) -> bytes:
    return b"".join(repair_ampersands(text[at : at + size] for at in range(0, len(text), size)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a &amp; &lt; &gt; &quot; &apos; &#160; &#xA0;", b"a &amp; &lt; &gt; &quot; &apos; &#160; &#xA0;"),
        (b"<loc>?a=1&b=2&c</loc>", b"<loc>?a=1&amp;b=2&amp;c</loc>"),
        (b"&nbsp;&eacute;&NotEqualTilde;", b"&#160;&#233;&#8770;&#824;"),
        (b"&nosuch; &copy &; &#; &#x;&&", b"&amp;nosuch; &amp;copy &amp;; &amp;#; &amp;#x;&amp;&amp;"),
        (b"&<![CDATA[&nbsp; & &]]>&<![CDATA[&", b"&amp;<![CDATA[&nbsp; & &]]>&amp;<![CDATA[&"),
        (b"\xff\xfe<\0&\0", b"\xff\xfe<\0&\0"),
        (b"<\0a\0&\0", b"<\0a\0&\0"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_bare_ones_and_htmls_are_made_right_outside_of_cdata(text: bytes, expected: bytes, size: int) -> None:
    if size >= 4 or b"\0" not in text:
        assert mend(text, size) == expected


PARTS = ["&", "amp", ";", "nbsp", "<![CDATA[", "]]>", "]", "<", "x" * 50, "#1"]


@given(st.lists(st.sampled_from(PARTS)), st.integers(1, 20))
def test_it_is_the_same_however_it_is_cut(parts: list[str], size: int) -> None:
    text = "".join(parts).encode()
    assert mend(text, size) == mend(text)
    assert mend(mend(text)) == mend(text)
