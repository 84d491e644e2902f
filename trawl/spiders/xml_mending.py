"""Ampersands in XML that mean no entity of XML, made right before the parser sees them.

Sitemaps with ``?a=1&b=2`` and feeds with ``&nbsp;`` are common, and libxml2 mends them badly: after the first such
error it drops every further ``&amp;`` of the file, so that URLs lose their ``&``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html.entities import html5

__all__ = ["mended"]

_OPEN, _CLOSE = b"<![CDATA[", b"]]>"
_LONGEST_REFERENCE = 40
_AMPERSAND = re.compile(
    rb"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,9}|#x[0-9a-fA-F]{1,8});)(?:([A-Za-z][A-Za-z0-9]{1,31});)?"
)


def mended(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Return the pieces with HTML's entities as numbers and bare ampersands as ``&amp;``, but for what is in CDATA.

    What is in UTF-16 or UTF-32 stays as it is.
    """
    held = b""
    is_data = False
    is_wide: bool | None = None
    for piece in pieces:
        text = held + piece
        if is_wide is None:
            is_wide = b"\0" in text[:4] or text.startswith((b"\xff\xfe", b"\xfe\xff"))
        if is_wide:
            yield text
            continue
        done, held, is_data = _advanced(text, is_data)
        yield done
    yield held if is_data else _AMPERSAND.sub(_reference, held)


def _advanced(text: bytes, is_data: bool) -> tuple[bytes, bytes, bool]:
    """What can be said of ``text``, what has to wait for more, and whether that is inside CDATA."""
    done: list[bytes] = []
    at = 0
    while True:
        found = text.find(_CLOSE if is_data else _OPEN, at)
        if found < 0:
            break
        part = text[at:found]
        done.append(part if is_data else _AMPERSAND.sub(_reference, part))
        at, is_data = found, not is_data
    rest = text[at:]
    keep = _kept(rest, is_data)
    part = rest[: len(rest) - keep]
    done.append(part if is_data else _AMPERSAND.sub(_reference, part))
    return b"".join(done), rest[len(rest) - keep :], is_data


def _kept(text: bytes, is_data: bool) -> int:
    """How many bytes at the end may go on in the next piece: a mark, or a reference."""
    mark = _CLOSE if is_data else _OPEN
    most = max((n for n in range(1, len(mark)) if text.endswith(mark[:n])), default=0)
    start = -1 if is_data else text.rfind(b"&", max(0, len(text) - _LONGEST_REFERENCE))
    return most if start < 0 or b";" in text[start:] else max(most, len(text) - start)


def _reference(match: re.Match[bytes]) -> bytes:
    name = match[1]
    characters = html5.get(f"{name.decode()};") if name else None
    if characters is None:
        return b"&amp;" + match[0][1:]
    return "".join(f"&#{ord(character)};" for character in characters).encode()
