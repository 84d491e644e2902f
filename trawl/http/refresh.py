"""Refreshes declared by a page, in the header ``Refresh`` or in ``<meta http-equiv=refresh>`` (HTML, 4.2.5.3). Pure.

Pages are scanned tag by tag. Tags in a comment, in a ``<template>``, or in an element whose content is text
(``<title>``, ``<textarea>``, ``<style>``, ...) do not count. libxml2, which parses pages for selectors, treats tags
inside ``<title>`` and ``<textarea>`` as elements. ``w3lib.html.get_meta_refresh`` makes the same error, and recognizes
only two of the seven spellings of a refresh.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape
from html.entities import html5

__all__ = ["meta_refreshes", "parse_refresh"]

_VALUE = re.compile(
    r"[\t\n\f\r ]*(?P<seconds>[0-9]+|(?=\.))[0-9.]*"
    r"(?:\Z|(?=[;,\t\n\f\r ])[\t\n\f\r ]*[;,]?[\t\n\f\r ]*"
    r"(?P<url>(?:[Uu][Rr][Ll][\t\n\f\r ]*=[\t\n\f\r ]*)?(?P<rest>.*)))",
    re.DOTALL,
)

_LONGEST = 15
"""Maximum number of digits in the seconds of a refresh. A longer time would never pass."""

_TEXT_ELEMENTS = frozenset(["title", "textarea", "style", "script", "xmp", "iframe", "noembed", "noframes"])
"""Elements whose content is text (HTML, 13.2.6.4)."""

_TAG = re.compile(r"<(?:!--|(/?)([A-Za-z][^\t\n\f\r />]*)|[!?/])")

_ATTRIBUTE = re.compile(
    r"[\t\n\f\r /]*([^\t\n\f\r />][^\t\n\f\r />=]*)"
    r"(?:[\t\n\f\r ]*=[\t\n\f\r ]*(?:\"([^\"]*)\"|'([^']*)'|([\"'])|([^\t\n\f\r >]*)))?"
)

_TAG_END = re.compile(r"[\t\n\f\r /]*>")

_COMMENT_END = re.compile(r"--!?>|(?<=<!--)-?>")

_BOGUS_END = re.compile(">")

_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[Xx][0-9A-Fa-f]+;?|([A-Za-z][A-Za-z0-9]*;?)(=?))")


def parse_refresh(value: str) -> tuple[float, str] | None:
    """Parse a declared refresh by the "shared declarative refresh steps" (HTML, 4.2.5.3).

    Returns:
        The seconds to wait, and the target relative to the page ("" for the page itself). None if ``value`` is not a
        refresh.
    """
    match = _VALUE.match(value)
    if match is None:
        return None
    url = match["rest"] or ""
    if url[:1] in {'"', "'"}:
        url = url[1:].partition(url[0])[0]
    return float(match["seconds"][:_LONGEST] or 0), url


def meta_refreshes(head: str, ignored: Iterable[str] = ()) -> Iterator[str]:
    """Yield the ``content`` of each ``<meta http-equiv=refresh>`` of a page, in order.

    Args:
        head: The page, or its start.
        ignored: Names of further elements whose content does not count.
    """
    skipped = _TEXT_ELEMENTS.union(name.lower() for name in ignored)
    at = templates = 0
    while (tag := _TAG.search(head, at)) is not None:
        at = tag.end()
        if tag[2] is None:
            end = (_COMMENT_END if tag[0] == "<!--" else _BOGUS_END).search(head, at)
            if end is None:
                return
            at = end.end()
            continue
        name = tag[2].lower()
        attributes, at = _attributes(head, at)
        if at < 0 or name == "plaintext":
            return
        if name == "template":
            templates = max(0, templates + (-1 if tag[1] else 1))
        elif not tag[1] and name in skipped:
            at = _end_of_text(head, at, name)
        elif (
            name == "meta" and not tag[1] and not templates and _decoded(attributes, "http-equiv").lower() == "refresh"
        ):
            yield _decoded(attributes, "content")


def _attributes(head: str, at: int) -> tuple[dict[str, str], int]:
    """Return the attributes of a tag, and the position of its end (-1 if it has no end).

    If a name is repeated, the first attribute counts.
    """
    attributes: dict[str, str] = {}
    while (end := _TAG_END.match(head, at)) is None:
        match = _ATTRIBUTE.match(head, at)
        if match is None or match[4]:  # the page ends within the tag, or a quoted value has no end
            return attributes, -1
        attributes.setdefault(match[1].lower(), match[2] or match[3] or match[5] or "")
        at = match.end()
    return attributes, end.end()


def _end_of_text(head: str, at: int, name: str) -> int:
    """Return the position after an element whose content is text. The content starts at ``at``."""
    # Only for a script: 1 inside a comment of the script, 2 inside a script in this comment, otherwise 0 (HTML,
    # 13.2.5.17 to 13.2.5.31).
    depth = 0
    for found in re.finditer(rf"<(/?){re.escape(name)}(?=[\t\n\f\r />])|<!--(?!-?>)|-->", head[at:], re.IGNORECASE):
        is_end = found[1] == "/"
        if is_end and depth < 2:
            return at + found.end()
        if name == "script":
            what = found.group()
            depth = 1 if is_end else (depth or 1) if what == "<!--" else 0 if what == "-->" else 2 * bool(depth)
    return len(head)


def _decoded(attributes: dict[str, str], name: str) -> str:
    """Return the value of an attribute with its character references decoded (HTML, 13.2.5.73)."""
    return _REFERENCE.sub(_character, attributes.get(name, ""))


def _character(reference: re.Match[str]) -> str:
    name, equals = reference[1], reference[2]
    if name is None:
        return unescape(reference[0])
    # Before "=", a reference without a semicolon is the name of an argument, as in "?a=1&copy=2".
    is_known = name in html5 and (name.endswith(";") or not equals)
    return html5[name] + equals if is_known else reference[0]
