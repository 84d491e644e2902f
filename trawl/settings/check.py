"""Conversion of one value to the type of its setting, and descriptions of types and limits in words.

msgspec converts values and checks limits, but its errors name neither the key of a mapping nor the value. So this
module walks mappings and lists itself and passes only single values to msgspec. An error then names the innermost wrong
entry. This also avoids a type that crashes msgspec (0.22: a float with limits together with a tuple in one union).

Strings from the environment and ``-s`` are read as JSON if they are JSON. If the JSON value does not fit the setting,
the string itself is tried (``USER_AGENT=5``). As with Scrapy's ``-s``, ``1`` and ``0`` may stand for booleans, and a
string with commas for a list (``RETRY_HTTP_CODES=500,502``).

In words, ``Annotated[float, Meta(ge=0)]`` is "a number" with the range "at least 0".
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import msgspec.structs

from trawl import scrapy_names
from trawl.errors import SettingsError
from trawl.passwords import MASK, SECRET_NAME

__all__ = [
    "checked",
    "from_json",
    "from_text",
    "members_of",
    "nearest",
    "range_words",
    "short",
    "type_words",
    "without_meta",
]

_PLAIN: Mapping[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    bytes: "bytes",
    type(None): "null",
    None: "null",
    object: "a class or its import path",
    Any: "anything",
    type: "a class",
}

_LISTS = (list, tuple, set, frozenset)
_SHOWN_CHARACTERS = 60
_CLOSE_ENOUGH = 0.6


def without_meta(annotation: Any) -> tuple[Any, tuple[msgspec.Meta, ...]]:
    """Return the type inside ``Annotated`` and its constraints."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        return inner, tuple(note for note in notes if isinstance(note, msgspec.Meta))
    return annotation, ()


def members_of(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union; for any other type, return only the type."""
    inner, _ = without_meta(annotation)
    if get_origin(inner) in (Union, types.UnionType):
        return get_args(inner)
    return (annotation,)


def type_words(annotation: Any) -> str:
    """Return a type in words, without its limits: "a number", "a list of whole numbers or null"."""
    return " or ".join(map(_one_type, members_of(annotation)))


def _one_type(annotation: Any) -> str:
    inner, _ = without_meta(annotation)
    origin, args = get_origin(inner), get_args(inner)
    words = _PLAIN.get(inner, "") if isinstance(inner, type) or inner in (Any, None) else ""
    if words:
        return words
    if origin is Literal:
        return "one of " + ", ".join(str(value) for value in args)
    if is_typeddict(inner) or (isinstance(inner, type) and issubclass(inner, msgspec.Struct)):
        return "a mapping"
    base = origin or inner
    if isinstance(base, type) and issubclass(base, Mapping):
        if args and args[0] is Any:
            return f"a mapping whose values are {_plural(args[1])}"
        return f"a mapping of {_plural(args[0])} to {_plural(args[1])}" if args else "a mapping"
    if base is tuple and args and Ellipsis not in args:
        return "a list of " + " and ".join(_one_type(arg) for arg in args)
    if base in _LISTS or origin is not None:
        return f"a list of {_plural(args[0])}" if args else "a list"
    return getattr(inner, "__name__", str(inner))


def _plural(annotation: Any) -> str:
    """Return a type in the plural: "whole numbers"."""
    words = []
    for member in members_of(annotation):
        one = _one_type(member)
        head, of, tail = one.removeprefix("a ").partition(" of ")
        many = f"{head}s{of}{tail}" if one.startswith("a ") else one
        words.append("classes or import paths" if one == _PLAIN[object] else many)
    return " or ".join(dict.fromkeys(words))


def range_words(annotation: Any) -> str:
    """Return the limits of a type in words: "at least 0", "above 0, at most 1", "each at least 100"; "" if none."""
    limits: list[str] = []
    for member in members_of(annotation):
        inner, metas = without_meta(member)
        limits += [words for meta in metas for words in _limits(meta)]
        if get_origin(inner) in _LISTS:
            each = [range_words(arg) for arg in get_args(inner) if arg is not Ellipsis]
            limits += [f"each {words}" for words in each if words]
    limits += [words for meta in without_meta(annotation)[1] for words in _limits(meta)]
    return ", ".join(dict.fromkeys(limits))


def _limits(meta: msgspec.Meta) -> Iterator[str]:
    for bound, words in ((meta.ge, "at least"), (meta.gt, "above"), (meta.le, "at most"), (meta.lt, "below")):
        if bound is not None:
            yield f"{words} {bound:g}"
    if meta.multiple_of is not None:
        yield f"a multiple of {meta.multiple_of:g}"
    if meta.pattern is not None:
        yield f"matching {meta.pattern}"
    if meta.min_length is not None and meta.min_length == meta.max_length:
        yield f"{meta.min_length} of them"
    elif meta.min_length is not None:
        yield f"{meta.min_length} of them or more"
    elif meta.max_length is not None:
        yield f"{meta.max_length} of them at most"


def short(value: object) -> str:
    """Return a value for an error message: one line, at most 60 characters."""
    shown = value.__qualname__ if isinstance(value, type) else repr(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[: _SHOWN_CHARACTERS - 1] + "…"


def checked(value: object, annotation: Any, path: str) -> Any:
    """Convert ``value`` to ``annotation``: a list to a tuple, 1 to 1.0, but never a string to a number.

    The SettingsError for a value that does not fit names the innermost wrong entry below ``path``, which is
    ``"DOWNLOAD_DELAY"`` or ``"THROTTLING_SCOPES['api']"``.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"{path} must be a finite number, not {value}", path)
    annotation, whole = _member_for(value, annotation), annotation
    inner, metas = without_meta(annotation)
    origin, args = get_origin(inner), get_args(inner)
    fields = _fields(inner)
    if isinstance(value, Mapping) and fields is not None:
        return _checked_fields(value, inner, fields, path)
    if isinstance(value, Mapping) and _is_mapping(origin):
        return {
            checked(key, args[0], f"the key {short(key)} of {path}"): checked(part, args[1], f"{path}[{short(key)}]")
            for key, part in value.items()
        }
    if isinstance(value, _LISTS) and origin in _LISTS:
        return _checked_parts(value, origin, args, metas, path)
    if fields is not None or _is_mapping(origin) or origin in _LISTS:
        if isinstance(value, msgspec.Struct) and not is_typeddict(inner) and isinstance(value, origin or inner):
            return value
        raise _refusal(value, whole, path)
    return _converted(value, annotation, whole, path)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the name in ``names`` with the most similar spelling; "" if no name is similar."""
    by_case = {known.upper(): known for known in sorted(names)}
    close = get_close_matches(name.upper(), by_case, n=1, cutoff=_CLOSE_ENOUGH)
    return by_case[close[0]] if close else ""


def _member_for(value: object, annotation: Any) -> Any:
    """Return the members of a union that have the shape of ``value``: a mapping, a list, or neither."""
    members = members_of(annotation)
    if len(members) == 1:
        return annotation
    shape = "mapping" if isinstance(value, Mapping) else "list" if isinstance(value, _LISTS) else "plain"
    fitting = tuple(member for member in members if _shape_for(member) in (shape, ""))
    return Union[fitting] if fitting else annotation  # noqa: UP007  # the number of members varies


def _shape_for(annotation: Any) -> str:
    """Return the shape of a type's values; "" for any shape."""
    inner, _ = without_meta(annotation)
    if inner in (Any, object):
        return ""
    if _fields(inner) is not None or _is_mapping(get_origin(inner)):
        return "mapping"
    return "list" if get_origin(inner) in _LISTS else "plain"


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _fields(kind: Any) -> Mapping[str, Any] | None:
    """Return the keys of a typed mapping with their types; None for any other type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    if is_typeddict(kind):
        return get_type_hints(kind, include_extras=True)
    return None


def _of_key(path: str, key: object, fields: Iterable[str]) -> str:
    """Return the replacement of an unknown key, as the end of a sentence."""
    if words := scrapy_names.settings.key_advice(path, key):
        return f", which is Scrapy's: {words}"
    close = nearest(str(key), fields)
    return f"; did you mean {close!r}?" if close else f"; known are {', '.join(sorted(fields))}"


def _checked_fields(value: Mapping[Any, object], kind: Any, fields: Mapping[str, Any], path: str) -> Any:
    parts: dict[str, Any] = {}
    for key, part in value.items():
        if key not in fields:
            words = f"{path} has an unknown key {short(key)}{_of_key(path, key, fields)}"
            raise SettingsError(words, f"{path}[{key!r}]")
        parts[key] = checked(part, fields[key], f"{path}[{key!r}]")
    if is_typeddict(kind):
        if missing := sorted(kind.__required_keys__ - parts.keys()):
            raise SettingsError(f"{path} lacks the key {missing[0]!r}", path)
        return parts
    return _converted(parts, kind, kind, path)


def _checked_parts(value: Iterable[Any], origin: Any, args: tuple[Any, ...], metas: tuple[Any, ...], path: str) -> Any:
    given = list(value)
    is_fixed = origin is tuple and Ellipsis not in args
    item_types = args if is_fixed else args[:1] * len(given)
    if len(item_types) != len(given):
        raise SettingsError(f"{path} must have {len(item_types)} values, not {short(value)}", path)
    parts = [checked(part, kind, f"{path}[{i}]") for i, (part, kind) in enumerate(zip(given, item_types, strict=True))]
    for meta in metas:
        _converted(parts, Annotated[list[Any], meta], Annotated[origin[args], meta], path)
    return origin(parts)


def _converted(value: object, annotation: Any, whole: Any, path: str) -> Any:
    try:
        return msgspec.convert(value, annotation)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        if isinstance(error.__cause__, ValueError | TypeError):  # raised by the value's own check (__post_init__)
            raise SettingsError(f"{path}: {error.__cause__}", path) from error
        raise _refusal(value, whole, path) from error


def _refusal(value: object, annotation: Any, path: str) -> SettingsError:
    limits = range_words(annotation)
    expected = f"{type_words(annotation)}, {limits}" if limits else type_words(annotation)
    given = MASK if path.startswith("HTTP_AUTH") or SECRET_NAME.search(path) else short(value)
    return SettingsError(f"{path} must be {expected}, not {given}", path)


_TRUTHS = {"true": True, "false": False, "1": True, "0": False}


def from_text(text: str, annotation: Any, path: str) -> Any:
    """Convert a string to ``annotation``, as JSON or in another way. An error message is about the value as JSON."""
    readings = [from_json(text), text]
    inner = [without_meta(member)[0] for member in members_of(annotation)]
    if bool in inner and text.lower() in _TRUTHS:
        readings.append(_TRUTHS[text.lower()])
    if any(get_origin(member) in _LISTS for member in inner):
        readings.append([from_json(part.strip()) for part in text.split(",") if part.strip()])
        readings.append([part.strip() for part in text.split(",") if part.strip()])
    refusal: SettingsError | None = None
    for reading in readings:
        try:
            return checked(reading, annotation, path)
        except SettingsError as error:
            refusal = refusal or error
    assert refusal is not None
    if not text.startswith(("{", "[")) or readings[0] is not text:
        raise refusal
    why = "it has no such values"  # for example NaN
    try:
        json.loads(text)  # Python's message is more precise than msgspec's
    except ValueError as error:
        why = str(error)
    raise SettingsError(f"{refusal}, which is not JSON: {why}", path) from refusal


def from_json(text: str) -> object:
    """Return ``text`` decoded as JSON (RFC 8259), or ``text`` itself if it is not JSON."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeError):
        return text
