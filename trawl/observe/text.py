"""Text for people: numbers, rates and durations in words, and text from pages made safe for a terminal and a log.

A URL, a header or an item may contain escape sequences that change the terminal or forge a log line. All output of the
command goes through :func:`printable`, which escapes the Unicode categories Cc, Cf for direction, Cs, Zl and Zp.
"""

from __future__ import annotations

import math
import re

from trawl.http import Times
from trawl.passwords import MASK, without_passwords

__all__ = [
    "MASK",
    "clipped",
    "counted",
    "duration_words",
    "number_words",
    "printable",
    "rate_words",
    "times_words",
    "without_passwords",
]

# Characters that are always escaped: DEL and C1; marks for the direction of text (Unicode TR 36, "Trojan Source"), for
# the shapes of digits, or for annotations; line and paragraph separators; invisible tags; lone surrogates, which no
# encoder accepts.
_NEVER = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff\U000e0001"

_UNSAFE = re.compile(f"[\x00-\x1f{_NEVER}]")

_UNSAFE_BUT_LINES = re.compile(f"[\x00-\x08\x0b-\x1f{_NEVER}]")


def printable(text: str, *, keeps_lines: bool = False, is_content: bool = False) -> str:
    """Return ``text`` with every control character escaped, and passwords in URLs masked.

    ``keeps_lines`` keeps line feeds and tabs. ``is_content`` keeps the passwords in the URLs of a page or an item.
    """
    unsafe = _UNSAFE_BUT_LINES if keeps_lines else _UNSAFE
    text = text if is_content else without_passwords(text)
    return unsafe.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def clipped(text: str, max_characters: int) -> str:
    """Return ``text`` made safe to print, and shortened in the middle to ``max_characters``."""
    text = printable(text)
    if len(text) <= max_characters:
        return text
    head = (max_characters - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (max_characters - 1 - head) :]}"


_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_UNITS = ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", 1.0, "s"))


def number_words(n: float) -> str:
    """Return a count with thousands separators: ``1,234``."""
    return f"{n:,.0f}"


def counted(n: float, one: str) -> str:
    """Return a count with its noun: ``1 page``, ``1,234 pages``."""
    return f"{number_words(n)} {one}" if n == 1 else f"{number_words(n)} {one}s"


def rate_words(rate: float) -> str:
    """Return a rate per second with up to three digits: ``1,234/s``, ``20.1/s``, ``0.05/s``."""
    if rate >= 100:
        return f"{rate:,.0f}/s"
    if rate >= 1 or rate == 0:
        return f"{rate:.1f}/s"
    return f"{rate:.2g}/s"


def duration_words(seconds: float) -> str:
    """Return seconds in their two largest units: ``0.4 s``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``, ``1 d 3 h``."""
    if math.isinf(seconds):
        return "for ever"
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if round(seconds) < _MINUTE:
        return f"{seconds:.0f} s"
    for unit, name, part, part_name in _UNITS:
        parts = round(seconds / part)
        if parts * part >= unit:
            whole, rest = divmod(parts, round(unit / part))
            return f"{whole} {name} {rest} {part_name}" if rest else f"{whole} {name}"
    return f"{seconds:.0f} s"


def times_words(times: Times) -> str:
    """Return the times of a request in order, ``queued 4 ms, throttled 1.0 s``. Phases without time are left out."""
    words = [
        f"{name} {duration_words(seconds) if seconds >= 0.0995 else f'{seconds * 1000:.0f} ms'}"
        for name in times.__struct_fields__
        if (seconds := getattr(times, name)) >= 0.0005  # less would be shown as 0 ms
    ]
    return ", ".join(words) or "no time"
