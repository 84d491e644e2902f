"""Values of any kind as JSON, and as the plain values that JSON has.

The fast way is msgspec's encoder. What it refuses (keys of odd types, lone surrogates from pages that lie about their
encoding) takes the slow way, which first makes everything plain. Times are written as RFC 3339 has them, bytes in
base64 (RFC 4648, 4), decimals and UUIDs as text, sets as arrays, NaN and the infinities as null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from trawl.items import is_item, item_fields

__all__ = ["Plain", "legal_text", "to_ascii_json", "to_json", "to_plain"]

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""What JSON can say."""


def to_json(value: object) -> bytes:
    """``value`` as compact JSON in UTF-8, on one line.

    Raises:
        TypeError: Something in it has no form in JSON.
        ValueError: It contains itself.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return _ENCODER.encode(to_plain(value))


def to_ascii_json(value: object) -> bytes:
    """``value`` as compact JSON with all other characters escaped, so that it is right in any encoding.

    Raises:
        TypeError: Something in it has no form in JSON.
        ValueError: It contains itself.
    """
    return json.dumps(to_plain(value), ensure_ascii=True, separators=(",", ":")).encode("ascii")


def to_plain(value: object) -> Plain:
    """``value`` in the types that JSON has, with lone surrogates replaced by U+FFFD.

    Raises:
        TypeError: Something in it has no form in JSON.
        ValueError: It contains itself.
    """
    try:
        return _plain(value)
    except RecursionError as error:
        raise ValueError("a value contains itself, or is nested too deep") from error


def legal_text(text: str) -> str:
    """``text`` with lone surrogates replaced by U+FFFD, so that it can be encoded."""
    if text.isascii():
        return str.__str__(text)
    try:
        text.encode()
    except UnicodeEncodeError:  # pairs of surrogates become their character, single ones U+FFFD
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return str.__str__(text)


def _plain(value: object) -> Plain:
    if isinstance(value, str):
        return legal_text(value)
    if value is None or isinstance(value, bool) or type(value) is int:
        return value
    if isinstance(value, float):
        return float.__float__(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {_key(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(part) for part in value]
    if is_item(value):
        return {_key(key): _plain(part) for key, part in item_fields(value).items()}
    built = msgspec.to_builtins(value, enc_hook=_outlandish)
    return built if built is None or isinstance(built, bool | int | str) else _plain(built)


def _key(key: object) -> str:
    """A mapping's key as text; ``null``, ``true`` and ``false`` as JSON spells them, like Python's own encoder."""
    plain = _plain(key)
    if isinstance(plain, str):
        return plain
    return json.dumps(plain)


def _outlandish(value: Any) -> object:
    """What msgspec does not know, in types that it knows."""
    for exact in (str, int, float):
        if isinstance(value, exact):  # subclasses, of which msgspec knows none
            return exact(value) if exact is not str else str.__str__(value)
    if is_item(value):
        return item_fields(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Collection):
        return list(value)
    scalar = getattr(value, "item", None)
    if callable(scalar) and getattr(value, "shape", None) == ():  # NumPy's scalars
        return scalar()
    raise TypeError(f"a value of type {type(value).__name__} has no written form")


_ENCODER = msgspec.json.Encoder(enc_hook=_outlandish)
