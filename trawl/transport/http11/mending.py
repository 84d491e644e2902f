"""Headers that llhttp refuses and browsers read, made over so that their meaning is clear.

What is mended: a field folded over several lines becomes one (RFC 9112, 5.2: a user agent replaces the fold by
blanks), and ``Content-Length`` said several times with one value is said once (RFC 9112, 6.3, rule 5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["end_of_head", "mended"]

_BLANK_LINE = re.compile(rb"\n\r?\n")
_INTERIM = re.compile(rb"[\r\n]*HTTP/\d\.\d +1\d\d\b")
_FOLD = re.compile(rb"[ \t]*\r?\n[ \t]+")


def end_of_head(received: bytes, start: int = 0) -> tuple[int | None, int]:
    """Return where the headers of the final response end, interim responses being passed over; None: not yet.

    The second number is where the next look begins, when more has come: what was passed over is not looked at again.

    Args:
        received: All that has come.
        start: Where a response begins in it, as the last look has told.
    """
    while (blank := _BLANK_LINE.search(received, start)) is not None:
        if _INTERIM.match(received, start) is None:
            return blank.end(), start
        start = blank.end()
    return None, start


def mended(head: bytes) -> Iterator[bytes]:
    """The lines of ``head``, unfolded, with each length said once."""
    status, _, fields = head.partition(b"\n")
    yield status + b"\n"
    lengths: set[bytes] = set()
    for line in _FOLD.sub(b" ", fields).splitlines(keepends=True):
        name, colon, value = line.partition(b":")
        if name.lower() == b"content-length":
            said = {part.strip() for part in value.split(b",")}
            if said <= lengths:
                continue
            lengths |= said
            line = name + colon + b" " + b",".join(sorted(said)) + b"\r\n"  # noqa: PLW2901
        yield line
