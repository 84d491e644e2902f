"""Types and limits in words, for error messages and for the reference.

``Annotated[float, Meta(ge=0)]`` is "a number" whose range is "at least 0". Only the shapes that settings use are known.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, is_typeddict

import msgspec

__all__ = ["members_of", "range_words", "short", "type_words", "without_meta"]

_PLAIN: Mapping[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    bytes: "bytes",
    type(None): "null",
    None: "null",
    object: "a class or its import path",
    Any: "anything",
    type: "a class",
}
_SHOWN_CHARACTERS = 60


def without_meta(annotation: Any) -> tuple[Any, tuple[msgspec.Meta, ...]]:
    """The type inside ``Annotated``, and the constraints beside it."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        return inner, tuple(note for note in notes if isinstance(note, msgspec.Meta))
    return annotation, ()


def members_of(annotation: Any) -> tuple[Any, ...]:
    """The members of a union; a type that is none is its own only member."""
    inner, _ = without_meta(annotation)
    if get_origin(inner) in (Union, types.UnionType):
        return get_args(inner)
    return (annotation,)


def type_words(annotation: Any) -> str:
    """What may stand here, in words and without its limits: "a number", "a list of whole numbers or null"."""
    return " or ".join(_one_type(member) for member in members_of(annotation))


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
        return f"a mapping of {_plural(args[0])} to {_plural(args[1])}" if args else "a mapping"
    if base is tuple and args and Ellipsis not in args:
        return "a list of " + " and ".join(_one_type(arg) for arg in args)
    if base in (list, set, frozenset, tuple) or origin is not None:
        return f"a list of {_plural(args[0])}" if args else "a list"
    return getattr(inner, "__name__", str(inner))


def _plural(annotation: Any) -> str:
    """The words for several of them: "whole numbers"."""
    words = []
    for member in members_of(annotation):
        one = _one_type(member)
        article, _, rest = one.partition(" ")
        words.append({"a class or its import path": "classes or import paths"}.get(one) or _many(article, rest, one))
    return " or ".join(dict.fromkeys(words))


def _many(article: str, rest: str, one: str) -> str:
    if article != "a":
        return one
    head, of, tail = rest.partition(" of ")
    return f"{head}s{of}{tail}"


def range_words(annotation: Any) -> str:
    """The limits on the value in words, "" without any: "at least 0", "above 0, at most 1", "each at least 100"."""
    limits: dict[str, None] = {}
    for member in members_of(annotation):
        inner, metas = without_meta(member)
        for meta in metas:
            limits.update(dict.fromkeys(_limits(meta)))
        if get_origin(inner) in (list, set, frozenset, tuple):
            for arg in get_args(inner):
                each = range_words(arg) if arg is not Ellipsis else ""
                limits.update({f"each {each}": None} if each else {})
    _, metas = without_meta(annotation)
    for meta in metas:
        limits.update(dict.fromkeys(_limits(meta)))
    return ", ".join(limits)


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
    """A value as it is named in an error message: one line, at most 60 characters."""
    shown = value.__qualname__ if isinstance(value, type) else repr(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else shown[: _SHOWN_CHARACTERS - 1] + "…"
