"""Ampersands that mean nothing in XML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trawl.spiders.xml_stream import repair_ampersands


def mend(text: str, size: int = 1000) -> str:
    return "".join(repair_ampersands(text[at : at + size] for at in range(0, len(text), size)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a &amp; &lt; &gt; &quot; &apos; &#160; &#xA0;", "a &amp; &lt; &gt; &quot; &apos; &#160; &#160;"),
        ("<loc>?a=1&b=2&c</loc>", "<loc>?a=1&amp;b=2&amp;c</loc>"),
        ("&nbsp;&eacute;&NotEqualTilde;", "&#160;&#233;&#8770;&#824;"),
        ("&nosuch; &copy &; &#; &#x;&&", "&amp;nosuch; &amp;copy &amp;; &amp;#; &amp;#x;&amp;&amp;"),
        ("&<![CDATA[&nbsp; & &]]>&<![CDATA[&", "&amp;<![CDATA[&nbsp; & &]]>&amp;<![CDATA[&"),
        ("&#11;&#0;&#xD800;&#x110000;&#X41;&#9;", "&#65533;&#65533;&#65533;&#65533;&#65;&#9;"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_bare_ones_and_htmls_are_made_right_outside_of_cdata(text: str, expected: str, size: int) -> None:
    assert mend(text, size) == expected


PARTS = ["&", "amp", ";", "nbsp", "<![CDATA[", "]]>", "]", "<", "x" * 50, "#1"]


@given(st.lists(st.sampled_from(PARTS)), st.integers(1, 20))
def test_it_is_the_same_however_it_is_cut(parts: list[str], size: int) -> None:
    text = "".join(parts)
    assert mend(text, size) == mend(text)
    assert mend(mend(text)) == mend(text)
