"""Start tags with so many attributes that reading them would take minutes, cut short before they are parsed.

libxml2 compares each attribute of an HTML element with all before it: 20,000 of them take a second, 50,000 more than a
minute, and they fit into a page of half a megabyte. Nobody's element has a hundred. Pages that are too small to hold
many are not looked at.
"""

from __future__ import annotations

import re

__all__ = ["MOST_ATTRIBUTES", "without_crowds"]

MOST_ATTRIBUTES = 1_000
"""Attributes of one element; a tag that has more ends after them."""

SMALL = 4 * 10_000
"""Characters up to which a page can't hold attributes enough to take long."""

# As HTML, 13.2.5.32 to 39 read attributes. Every repetition is possessive: nothing is read twice.
_ATTRIBUTE = r"""[\s/]*+(?:=[^\s/>=]*+|[^\s/>=]++)(?:\s*+=\s*+(?:"[^"]*+"?+|'[^']*+'?+|[^\s>"']?+[^\s>]*+))?+"""
_TAG = re.compile(rf"<[A-Za-z][^\s/>]*+(?:{_ATTRIBUTE}){{0,{MOST_ATTRIBUTES}}}+")
_REST = re.compile(rf"(?:{_ATTRIBUTE})++")


def without_crowds(text: str) -> str:
    """``text``, an HTML page, with the attributes past :data:`MOST_ATTRIBUTES` of each element left out."""
    if len(text) <= SMALL:
        return text
    kept: list[str] = []
    begin = at = 0
    while (tag := _TAG.search(text, at)) is not None:
        at = tag.end()
        if at - tag.start() > 2 * MOST_ATTRIBUTES and (rest := _REST.match(text, at)) is not None:
            kept.append(text[begin:at])
            begin = at = rest.end()
    return "".join([*kept, text[begin:]]) if kept else text
