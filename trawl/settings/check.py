"""One value against one type: what it becomes, or the entry in it that is wrong.

msgspec converts and knows the limits, but says neither which key of a mapping was wrong nor what was given. So a
mapping or list is walked down to the first part that does not fit, and the refusal names that part (I03).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import msgspec.structs

from trawl.errors import SettingsError
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
    return _refuse_part(value, annotation, path)


def nearest(name: str, names: Iterable[str]) -> str:
    """The one of ``names`` that is spelled most like ``name``; "" if none is."""
    by_case = {known.upper(): known for known in sorted(names)}
    close = get_close_matches(name.upper(), by_case, n=1, cutoff=_CLOSE_ENOUGH)
    return by_case[close[0]] if close else ""


def _refuse(value: object, annotation: Any, path: str) -> None:
    """Raise for the innermost part of ``value`` that does not fit, if there is one."""
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"{path} must be a finite number, not {value}", path)
    annotation = _member_for(value, annotation)
    inner, _ = without_meta(annotation)
    origin, args = get_origin(inner), get_args(inner)
    if isinstance(value, Mapping) and (fields := _fields(inner)) is not None:
        for key, part in value.items():
            if key not in fields:
                raise _unknown_key(str(key), fields, path)
            _refuse_part(part, fields[key], f"{path}[{key!r}]")
    elif isinstance(value, Mapping) and _is_mapping(origin):
        for key, part in value.items():
            _refuse_part(key, args[0], f"the key {short(key)} of {path}")
            _refuse_part(part, args[1], f"{path}[{short(key)}]")
    elif isinstance(value, _LISTS) and origin in _LISTS:
        item_types = args if origin is tuple and Ellipsis not in args else args[:1] * len(value)
        for index, (part, item_type) in enumerate(zip(value, item_types, strict=False)):
            _refuse_part(part, item_type, f"{path}[{index}]")


def _refuse_part(value: object, annotation: Any, path: str) -> Any:
    _refuse(value, annotation, path)
    try:
        return msgspec.convert(value, annotation)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        if isinstance(error.__cause__, ValueError | TypeError):  # what a section's own check says (__post_init__)
            raise SettingsError(f"{path}: {error.__cause__}", path) from error
        raise _refusal(value, annotation, path) from error


def _member_for(value: object, annotation: Any) -> Any:
    """The one member of a union that is a container like ``value``; the union itself where there is no such one."""
    members = members_of(annotation)
    if len(members) == 1:
        return annotation
    if isinstance(value, Mapping):
        fitting = [m for m in members if _fields(without_meta(m)[0]) or _is_mapping(get_origin(without_meta(m)[0]))]
    else:
        fitting = [m for m in members if isinstance(value, _LISTS) and get_origin(without_meta(m)[0]) in _LISTS]
    return fitting[0] if len(fitting) == 1 else annotation


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _fields(kind: Any) -> Mapping[str, Any] | None:
    """The keys of a typed mapping and their types; None for any other type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    if is_typeddict(kind):
        return get_type_hints(kind, include_extras=True)
    return None


def _unknown_key(key: str, fields: Mapping[str, Any], path: str) -> SettingsError:
    close = nearest(key, fields)
    hint = f"; did you mean {close!r}?" if close else f"; known are {', '.join(sorted(fields))}"
    return SettingsError(f"{path} has an unknown key {short(key)}{hint}", f"{path}[{key!r}]")


def _refusal(value: object, annotation: Any, path: str) -> SettingsError:
    limits = range_words(annotation)
    expected = f"{type_words(annotation)}, {limits}" if limits else type_words(annotation)
    return SettingsError(f"{path} must be {expected}, not {short(value)}", path)
