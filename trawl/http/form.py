"""Forms as HTML sends them: ``application/x-www-form-urlencoded`` (WHATWG URL, 5.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote_plus

__all__ = ["Field", "Fields", "encode_form"]

Field = str | bytes | int | float | Iterable[str | bytes | int | float]
"""What one name holds: a value, or several."""

Fields = Mapping[str, Field] | Iterable[tuple[str, Field]]
"""The fields of a form, in order."""

_LINE_END = re.compile(r"\r\n|\r|\n")


def encode_form(fields: Fields) -> str:
    """Return ``fields`` as the body of a form, in UTF-8; line ends become CR LF (HTML, 4.10.21.4)."""
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    return "&".join(f"{_quoted(name)}={_quoted(value)}" for name, held in pairs for value in _values(held))


def _values(held: Field) -> Iterable[str | bytes | int | float]:
    return (held,) if isinstance(held, str | bytes | int | float) else held


def _quoted(value: str | bytes | int | float) -> str:
    if isinstance(value, bytes):
        return quote_plus(value, safe="*").replace("~", "%7E")
    return quote_plus(_LINE_END.sub("\r\n", str(value)), safe="*").replace("~", "%7E")
