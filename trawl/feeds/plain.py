"""Values of any kind as JSON, and as the plain values that JSON has.

The fast way is msgspec's encoder, for the types that JSON has. What it refuses (keys of odd types, lone surrogates from
pages that lie about their encoding) takes the slow way, which first makes everything plain; so does whatever holds
another item, which its own library writes (:mod:`trawl.feeds.written`). Times are written as RFC 3339 has them, bytes
in base64 (RFC 4648, 4), decimals, UUIDs, paths and IP addresses as text, sets as arrays, NaN and the infinities as
null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from datetime import date, datetime
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import PurePath
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec

from trawl.feeds.losses import reason_of
from trawl.feeds.written import as_its_library_writes

__all__ = ["Plain", "legal_text", "to_ascii_json", "to_json", "to_plain", "wrong_field"]

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""What JSON can say."""


def to_json(value: object) -> bytes:
    """``value`` as compact JSON in UTF-8, on one line.

    Raises:
        TypeError: Something in it has no form in JSON.
        ValueError: It contains itself.
    """
    try:
        if _may_be_fast(value):
            return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        pass  # the slow way makes it plain, or says what is wrong
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


_SIMPLE = frozenset({str, int, float, bool, NoneType, datetime, date, Decimal, UUID, bytes})


def _may_be_fast(value: object) -> bool:
    """Say whether msgspec writes ``value`` as we do; what is nested too deep for us to look at is left to it, too."""
    try:
        return _is_simple(value)
    except RecursionError:
        return True


def _is_simple(value: object) -> bool:
    """Say whether nothing in ``value`` has a library of its own to write it, so that msgspec's way is the only one."""
    kind = type(value)
    if kind in _SIMPLE:
        return True
    if kind is dict:
        values: Any = value
        return _SIMPLE.issuperset(map(type, values.values())) or all(map(_is_simple, values.values()))
    if kind is list or kind is tuple:
        parts: Any = value
        return _SIMPLE.issuperset(map(type, parts)) or all(map(_is_simple, parts))
    return False


def wrong_field(fields: Mapping[str, object], error: Exception) -> Exception:
    """Return the error to be told where ``fields`` can't be written: it names the first field at fault."""
    for name, value in fields.items():
        try:
            to_json({name: value})
        except Exception as culprit:  # of the value itself: a serializer of the user's may raise anything
            return ValueError(f"its field {name!r}: {reason_of(culprit)}")
    return error


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
    written = as_its_library_writes(value)
    if written is not NotImplemented:
        return _plain(written)
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
    written = as_its_library_writes(value)
    if written is not NotImplemented:
        return written
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, Collection):
        return list(value)
    scalar = getattr(value, "item", None)
    if callable(scalar) and getattr(value, "shape", None) == ():  # NumPy's scalars
        return scalar()
    raise TypeError(f"a value of type {type(value).__name__} has no written form")


_AS_TEXT = (PurePath, IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)

_ENCODER = msgspec.json.Encoder(enc_hook=_outlandish)
