"""One value against one type: what it becomes, or the entry in it that is wrong.

msgspec converts and knows the limits, but says neither which key of a mapping was wrong nor what was given. So mappings
and lists are walked here and msgspec sees single values only; a refusal names the innermost part that is wrong (I03).
That also keeps a type away from msgspec that crashes it (0.22: a float with limits beside a tuple in one union).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import msgspec.structs

from trawl.errors import SettingsError
from trawl.settings.foreign_keys import why_no_key
from trawl.settings.wording import members_of, range_words, short, type_words, without_meta

__all__ = ["checked", "nearest"]

_LISTS = (list, tuple, set, frozenset)
_CLOSE_ENOUGH = 0.6


def checked(value: object, annotation: Any, path: str) -> Any:
    """``value`` as a value of ``annotation``: a list for a tuple, 1.0 for 1, but never a number for a text.

    Args:
        value: What was given.
        annotation: The setting's type with its limits.
        path: The name of the entry, for the message: ``"DOWNLOAD_DELAY"``, ``"THROTTLING_SCOPES['api']"``.

    Raises:
        SettingsError: It does not fit; the sentence names the innermost entry that is wrong.
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
    """The one of ``names`` that is spelled most like ``name``; "" if none is."""
    by_case = {known.upper(): known for known in sorted(names)}
    close = get_close_matches(name.upper(), by_case, n=1, cutoff=_CLOSE_ENOUGH)
    return by_case[close[0]] if close else ""


def _member_for(value: object, annotation: Any) -> Any:
    """Those members of a union that have the shape of ``value``: a mapping, a list, or neither."""
    members = members_of(annotation)
    if len(members) == 1:
        return annotation
    shape = _shape_of(value)
    fitting = tuple(member for member in members if _shape_for(member) in (shape, ""))
    return Union[fitting] if fitting else annotation  # noqa: UP007  # made of as many members as fit


def _shape_of(value: object) -> str:
    return "mapping" if isinstance(value, Mapping) else "list" if isinstance(value, _LISTS) else "plain"


def _shape_for(annotation: Any) -> str:
    """The shape of a type's values; "" where any will do."""
    inner, _ = without_meta(annotation)
    if inner in (Any, object):
        return ""
    if _fields(inner) is not None or _is_mapping(get_origin(inner)):
        return "mapping"
    return "list" if get_origin(inner) in _LISTS else "plain"


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _fields(kind: Any) -> Mapping[str, Any] | None:
    """The keys of a typed mapping and their types; None for any other type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    if is_typeddict(kind):
        return get_type_hints(kind, include_extras=True)
    return None


def _of_key(path: str, key: object, fields: Iterable[str]) -> str:
    """What to write in place of an unknown key."""
    if words := why_no_key(path, key):
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
        raise SettingsError(f"{path} must be {len(item_types)} values, not {short(value)}", path)
    parts = [checked(part, kind, f"{path}[{i}]") for i, (part, kind) in enumerate(zip(given, item_types, strict=True))]
    for meta in metas:
        _converted(parts, Annotated[list[Any], meta], Annotated[origin[args], meta], path)
    return origin(parts)


def _converted(value: object, annotation: Any, whole: Any, path: str) -> Any:
    try:
        return msgspec.convert(value, annotation)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        if isinstance(error.__cause__, ValueError | TypeError):  # what a value's own check says (__post_init__)
            raise SettingsError(f"{path}: {error.__cause__}", path) from error
        raise _refusal(value, whole, path) from error


def _refusal(value: object, annotation: Any, path: str) -> SettingsError:
    limits = range_words(annotation)
    expected = f"{type_words(annotation)}, {limits}" if limits else type_words(annotation)
    return SettingsError(f"{path} must be {expected}, not {short(value)}", path)
