"""Converts values of any type to JSON, and items to fields, as the library that defines an item does.

The fast path is msgspec's encoder, for JSON's types. Some values need the slow path, which first converts everything to
JSON's types. These are values that msgspec refuses (keys of unusual types, lone surrogates from pages with a wrong
encoding), and values that contain another item. Times are written as in RFC 3339, and bytes in base64 (RFC 4648, 4).
Decimals, UUIDs, paths and IP addresses are written as strings, sets as arrays, and NaN and the infinities as null.

Pydantic models are dumped by pydantic, which supports ``Field(exclude=True)``, ``field_serializer``,
``serialization_alias`` and ``computed_field``. A msgspec Struct is written with the names of ``rename`` and with its
tag, and without defaults if it has ``omit_defaults``. attrs classes, dataclasses and Scrapy's ``Item`` are written with
the fields of ``asdict``, and each field is converted by the ``serializer`` in its metadata. Pipelines and filters
receive the item itself. This module imports none of these libraries except msgspec.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import PurePath
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec

from trawl.feeds.item_errors import reason_of
from trawl.items import field_metadata, is_item, item_fields

__all__ = [
    "JsonValue",
    "dump_item",
    "legal_text",
    "serialized_fields",
    "to_ascii_json",
    "to_builtins",
    "to_json",
    "written_fields",
    "wrong_field",
]

_Writer = Callable[[Any], object]

_TYPED = frozenset({datetime, date, time, timedelta, Decimal, bytes})
"""Types that JSON lacks, but for which a table may have a column type."""


def written_fields(item: object, *, is_typed: bool = False) -> dict[str, object]:
    """Return the fields of ``item`` that a feed writes, as a new dict.

    Args:
        item: An item of any kind.
        is_typed: Whether to keep times, decimals and bytes, even if the item's library would convert them to strings.

    Raises:
        TypeError: If ``item`` is not an item, or the item's library does not convert it to fields.
        ValueError: If the item's library can't write one of its values. The message names the field.
    """
    kind: type[Any] = type(item)
    if kind is dict:
        return dict(item)  # type: ignore[call-overload,no-any-return]
    writer = _writer_of(kind)  # type: ignore[arg-type]  # mypy does not know that a class is hashable
    if writer is None:
        return item_fields(item)
    if is_typed and writer is _pydantic:
        return _typed(item)
    fields = writer(item)
    if isinstance(fields, Mapping):
        return dict(fields)
    if isinstance(fields, list) and isinstance(item, msgspec.Struct):  # an array_like struct has field names too
        return _named(item)
    if hasattr(item, "root"):
        return {"root": fields}
    raise TypeError(f"{kind.__name__} is written as {type(fields).__name__}, not as fields")


def serialized_fields(item: object) -> dict[str, object]:
    """Return the fields of ``item``, converted by the ``serializer`` that its class declares for a field, if any."""
    fields = item_fields(item)
    for name, metadata in field_metadata(type(item)).items():  # type: ignore[arg-type]  # as above
        if name in fields and "serializer" in metadata:
            try:
                fields[name] = metadata["serializer"](fields[name])
            except Exception as error:
                raise ValueError(f"its field {name!r}: {reason_of(error)}") from error
    return fields


def dump_item(value: object) -> object:
    """Convert a nested item, or a value of one of pydantic's types, as its library does.

    The result is usually a dict, for some classes a list or a string, and ``NotImplemented`` for any other value.
    """
    writer = _writer_of(type(value))  # type: ignore[arg-type]  # as above
    if writer is not None:
        return writer(value)
    return item_fields(value) if is_item(value) else NotImplemented


@lru_cache(maxsize=1024)
def _writer_of(kind: type[Any]) -> _Writer | None:
    """Return the function that converts instances of ``kind``; None if their fields are written unchanged."""
    if issubclass(kind, msgspec.Struct):
        return _struct
    if hasattr(kind, "__pydantic_serializer__"):
        return _pydantic
    if hasattr(kind, "__get_pydantic_core_schema__") and "pydantic" in sys.modules:
        return _by_adapter(kind)
    if kind.__module__.startswith("pydantic_core."):  # the type of a URL before pydantic 2.10
        return str
    if hasattr(kind, "__validators__") and isinstance(getattr(kind, "__fields__", None), dict):
        return _pydantic_v1
    if any("serializer" in metadata for metadata in field_metadata(kind).values()):  # type: ignore[arg-type]  # as above
        return serialized_fields
    return None


# Items of msgspec.


def _struct(item: Any) -> object:
    """Convert a struct like ``msgspec.to_builtins``, but do not convert nested values, which are converted later."""
    config = item.__struct_config__
    fields = _named(item)
    return list(fields.values()) if config.array_like else fields


def _named(item: Any) -> dict[str, object]:
    config = item.__struct_config__
    fields: dict[str, object] = {}
    if config.tag is not None:
        fields[config.tag_field] = config.tag
    for field in _struct_fields(type(item)):  # type: ignore[arg-type]  # as above
        value = getattr(item, field.name, msgspec.UNSET)
        if value is msgspec.UNSET or (config.omit_defaults and not config.array_like and _is_default(value, field)):
            continue
        fields[field.encode_name] = value
    return fields


@lru_cache(maxsize=1024)
def _struct_fields(kind: type[Any]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _is_default(value: object, field: msgspec.structs.FieldInfo) -> bool:
    """Return whether msgspec omits a value: the default object itself, or an empty container of its type."""
    if field.default_factory is not msgspec.NODEFAULT:
        kind = type(value)
        return field.default_factory is kind and kind in (list, dict, set, bytearray) and not value
    return value is field.default


# Items of pydantic.


def _pydantic(value: Any) -> object:
    """Dump a pydantic model, an instance of a pydantic dataclass, or a value of one of pydantic's own types.

    If pydantic can't write a value (bytes that are not UTF-8), the value is written as in any other item, if possible.
    """
    try:
        return _dumped(value, "json")
    except Exception as error:  # serializers and computed fields may raise any exception
        names = [*getattr(type(value), "__pydantic_fields__", ()), *(getattr(value, "__pydantic_extra__", None) or ())]
        names += getattr(type(value), "__pydantic_computed_fields__", ())
        parts = [_part(value, name, error) for name in names]
        if not parts or not all(isinstance(part, dict) for part in parts):
            raise ValueError(reason_of(error)) from error
        return {name: written for part in parts for name, written in part.items()}


def _part(item: Any, name: str, error: Exception) -> Any:
    """Dump one field."""
    with suppress(Exception):
        return _dumped(item, "json", include={name})
    try:
        return to_builtins(_dumped(item, "python", include={name}))
    except Exception as culprit:
        raise ValueError(f"its field {name!r}: {reason_of(culprit)}") from error


def _dumped(item: Any, mode: str, **more: Any) -> Any:
    """Dump a value with pydantic, using its aliases unless its model has ``serialize_by_alias=False``."""
    kind: Any = type(item)
    config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
    options: dict[str, Any] = {"mode": mode, "by_alias": config.get("serialize_by_alias", True), "warnings": False}
    if _has_fallback():
        options["fallback"] = to_builtins
    if hasattr(item, "model_dump"):
        return item.model_dump(**options, **more)
    return kind.__pydantic_serializer__.to_python(item, **options, **more)


@lru_cache(maxsize=1)
def _has_fallback() -> bool:
    """Return whether the installed pydantic supports ``fallback`` for unknown types (2.11 or later)."""
    pydantic: Any = sys.modules["pydantic"]
    return "fallback" in inspect.signature(pydantic.BaseModel.model_dump).parameters


def _by_adapter(kind: type[Any]) -> _Writer:
    """Return a function that converts instances of a type with its own pydantic serialization (``SecretStr``)."""
    pydantic: Any = sys.modules["pydantic"]
    return partial(pydantic.TypeAdapter(kind).dump_python, mode="json")


def _typed(item: Any) -> dict[str, object]:
    """Return an item's fields as pydantic writes them in JSON. Values whose type a table may have are kept."""
    written, kept = _pydantic(item), _dumped(item, "python")
    if not isinstance(written, dict) or not isinstance(kept, dict):
        return written_fields(item)
    return {name: kept[name] if type(kept.get(name)) in _TYPED else value for name, value in written.items()}


def _pydantic_v1(item: Any) -> object:
    """Dump an item of pydantic 1, which has no serialization aliases."""
    try:
        return json.loads(item.json())
    except Exception as error:
        for name in type(item).__fields__:
            try:
                item.json(include={name})
            except Exception as culprit:
                raise ValueError(f"its field {name!r}: {reason_of(culprit)}") from culprit
        raise ValueError(reason_of(error)) from error


JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]  # JSON's types


def to_json(value: object) -> bytes:
    """Encode ``value`` as compact JSON in UTF-8, on one line.

    Raises:
        TypeError: If a value in it can't be written as JSON.
        ValueError: If ``value`` contains itself.
    """
    try:
        if _may_be_fast(value):
            return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        pass  # the slow path below converts the value, or raises an error with the reason
    return _ENCODER.encode(to_builtins(value))


def to_ascii_json(value: object) -> bytes:
    """Encode ``value`` as compact JSON in ASCII, in which all other characters are escaped."""
    return json.dumps(to_builtins(value), ensure_ascii=True, separators=(",", ":")).encode("ascii")


def to_builtins(value: object) -> JsonValue:
    """Return ``value`` in JSON's types, with U+FFFD for lone surrogates; TypeError or ValueError if it can't be."""
    try:
        return _plain(value)
    except RecursionError as error:
        raise ValueError("a value contains itself, or is nested too deep") from error


def legal_text(text: str) -> str:
    """Return ``text`` with lone surrogates replaced by U+FFFD, so that it can be encoded."""
    if text.isascii():
        return str.__str__(text)
    try:
        text.encode()
    except UnicodeEncodeError:  # a pair of surrogates becomes its character, a lone surrogate becomes U+FFFD
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return str.__str__(text)


_SIMPLE = frozenset({str, int, float, bool, NoneType, datetime, date, Decimal, UUID, bytes})


def _may_be_fast(value: object) -> bool:
    """Return whether msgspec writes ``value`` like the slow path. True if it is nested too deep for the check."""
    try:
        return _is_simple(value)
    except RecursionError:
        return True


def _is_simple(value: object) -> bool:
    """Return whether all values in ``value`` have simple types, so that msgspec can write all of them."""
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
    """Return the error to report if ``fields`` can't be written. It names the first invalid field."""
    for name, value in fields.items():
        try:
            to_json({name: value})
        except Exception as culprit:  # user serializers may raise any exception
            return ValueError(f"its field {name!r}: {reason_of(culprit)}")
    return error


def _plain(value: object) -> JsonValue:
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
    written = dump_item(value)
    if written is not NotImplemented:
        return _plain(written)
    built = msgspec.to_builtins(value, enc_hook=_outlandish)
    return built if built is None or isinstance(built, bool | int | str) else _plain(built)


def _key(key: object) -> str:
    """Return a mapping's key as a string: ``null``, ``true`` and ``false`` as in ``json``."""
    plain = _plain(key)
    if isinstance(plain, str):
        return plain
    return json.dumps(plain)


def _outlandish(value: Any) -> object:
    """Convert a value whose type msgspec does not know to known types."""
    for exact in (str, int, float):
        if isinstance(value, exact):  # msgspec does not accept subclasses
            return exact(value) if exact is not str else str.__str__(value)
    written = dump_item(value)
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
