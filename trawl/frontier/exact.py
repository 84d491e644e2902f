"""Plain values that come back from a file exactly as they went in: same type, same value, or they are refused.

MessagePack knows None, booleans, numbers, text, bytes, lists and maps. Tuples, sets, dates and a few more are put in
extension types of our own. Everything else is refused, with the place where it stands: an object that came back as
something else would fail a callback days later. Nothing here is ever called by what is read: no pickle, no import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

__all__ = ["MOST_NESTED", "portable", "restored"]

MOST_NESTED = 100
"""Containers inside each other; more is taken for a value that contains itself."""

SHOWN = 60
"""Letters that an error shows of a path without end."""

_PLAIN = frozenset({type(None), bool, float, bytes})
_INT64 = range(-(2**63), 2**63)

_TUPLE, _SET, _FROZENSET, _INT, _DATETIME, _DATE, _TIME, _TIMEDELTA, _DECIMAL, _UUID, _DICT = range(1, 12)


def portable(value: object, path: str, depth: int = 0) -> Any:
    """``value`` in a form that MessagePack holds and :func:`restored` turns back into the same.

    Args:
        value: None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset, datetime (naive or with a fixed
            offset), date, time, timedelta, Decimal or UUID; containers of these.
        path: Where it stands, as an error names it: ``meta['page']``.
        depth: Containers around it.

    Raises:
        ValueError: It is, or contains, something else; the sentence names the place and says what to do.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is str:
        return _text(value, path)
    if depth >= MOST_NESTED:
        raise ValueError(
            f"{path[:SHOWN]}... is nested more than {MOST_NESTED} deep, or contains itself: a job can't store it"
        )
    pack = _PACKERS.get(kind)
    if pack is None:
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        raise ValueError(
            f"{path} is of type {name}, which a job can't store: put plain values there (text,"
            f" numbers, bytes, dates, and lists, tuples, sets and dicts of them), or what finds it again"
        )
    return pack(value, path, depth)


def restored(code: int, payload: memoryview) -> Any:
    """What an extension type of ours holds: the ``ext_hook`` of a MessagePack decoder.

    Raises:
        ValueError: It is no type of ours, or damaged.
    """
    build = _BUILDERS.get(code)
    if build is None:
        raise ValueError(f"a value of the unknown type {code}")
    return build(_decoder.decode(payload))


_decoder = msgspec.msgpack.Decoder(ext_hook=restored)
_encode = msgspec.msgpack.Encoder().encode


def _ext(code: int, inner: object) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _encode(inner))


def _text(value: Any, path: str) -> object:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{path} holds half of a surrogate pair: a job can't store what is no text") from None
    return value


def _int(value: Any, path: str, depth: int) -> object:
    return value if value in _INT64 else _ext(_INT, hex(value))


def _list(value: Any, path: str, depth: int) -> list[object]:
    return [portable(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value)]


def _dict(value: Any, path: str, depth: int) -> object:
    pairs = [
        (portable(key, f"the key {key!r} of {path}", depth + 1), portable(each, f"{path}[{key!r}]", depth + 1))
        for key, each in value.items()
    ]
    if any(type(key) is msgspec.msgpack.Ext for key, _ in pairs):  # which is no key of a map
        return _ext(_DICT, pairs)
    return dict(pairs)


def _group(code: int) -> Callable[[Any, str, int], object]:
    return lambda value, path, depth: _ext(code, _list(value, path, depth))


def _moment(code: int) -> Callable[[Any, str, int], object]:
    def pack(value: Any, path: str, depth: int) -> object:
        if value.tzinfo is not None and type(value.tzinfo) is not timezone:
            raise ValueError(f"{path} is a time in a named time zone, which a job can't store: give it in UTC")
        offset = None if value.tzinfo is None else value.tzinfo.utcoffset(None)
        apart = None if offset is None else [offset.days, offset.seconds, offset.microseconds]
        return _ext(code, [value.replace(tzinfo=None).isoformat(), value.fold, apart])

    return pack


def _placed(value: Any, fold: int, apart: list[int] | None) -> Any:
    """A moment in its zone: Python's ISO format loses an offset of less than a second."""
    return value.replace(fold=fold, tzinfo=None if apart is None else timezone(timedelta(*apart)))


_PACKERS: Mapping[type, Callable[[Any, str, int], object]] = {
    int: _int,
    list: _list,
    dict: _dict,
    tuple: _group(_TUPLE),
    set: _group(_SET),
    frozenset: _group(_FROZENSET),
    datetime: _moment(_DATETIME),
    date: lambda value, path, depth: _ext(_DATE, value.isoformat()),
    time: _moment(_TIME),
    timedelta: lambda value, path, depth: _ext(_TIMEDELTA, [value.days, value.seconds, value.microseconds]),
    Decimal: lambda value, path, depth: _ext(_DECIMAL, str(value)),
    UUID: lambda value, path, depth: _ext(_UUID, value.bytes),
}

_BUILDERS: Mapping[int, Callable[[Any], object]] = {
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
    _INT: lambda inner: int(inner, 16),
    _DATETIME: lambda inner: _placed(datetime.fromisoformat(inner[0]), *inner[1:]),
    _DATE: date.fromisoformat,
    _TIME: lambda inner: _placed(time.fromisoformat(inner[0]), *inner[1:]),
    _TIMEDELTA: lambda inner: timedelta(*inner),
    _DECIMAL: Decimal,
    _UUID: lambda inner: UUID(bytes=inner),
    _DICT: dict,
}
