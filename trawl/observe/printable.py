"""Text from pages made safe for a terminal and a log.

A URL, a header or an item may hold escape sequences that move the cursor, retitle the window or forge a log line. What
is shown to a person passes through here first (Unicode categories Cc, Cf for direction, Cs, Zl and Zp are spelled out).
"""

from __future__ import annotations

import re

__all__ = ["clipped", "printable"]

# C0, DEL and C1; the marks that change direction (Unicode TR 36, "Trojan Source"); line and paragraph separators;
# lone surrogates, which no encoder takes.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_BUT_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def _spelled(match: re.Match[str]) -> str:
    """The character as Python would escape it: a backslash, ``x1b`` for ESC, and so on."""
    return match.group().encode("unicode_escape").decode("ascii")


def printable(text: str, *, keeps_lines: bool = False) -> str:
    """``text`` with every control character spelled out.

    With ``keeps_lines``, line feeds and tabs stay (for tracebacks and deliberate paragraphs).
    """
    return (_UNSAFE_BUT_LINES if keeps_lines else _UNSAFE).sub(_spelled, text)


def clipped(text: str, most: int) -> str:
    """``text``, safe to print, cut in the middle to at most ``most`` characters."""
    text = printable(text)
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
