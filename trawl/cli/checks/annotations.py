"""Whether the annotations of a spider's callbacks say what the crawl takes, and what the spider's items are."""

from __future__ import annotations

import inspect
import types
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from trawl.cli.checks.finding import Finding
from trawl.cli.checks.source import SpiderSource
from trawl.http import Request
from trawl.items import is_item_type
from trawl.spiders import Spider

__all__ = ["check_annotations", "item_type_of"]

_MANY = (Iterable, Iterator, Generator, list, tuple)
_MANY_LATER = (AsyncIterable, AsyncIterator, AsyncGenerator)
_LATER = (Awaitable, Coroutine)


def check_annotations(spider: type[Spider], source: SpiderSource, callbacks: Iterable[str]) -> Iterator[Finding]:
    """Say which callbacks are annotated with what they can't give, or with other items than the spider's."""
    items = item_type_of(spider)
    for name in callbacks:
        function = inspect.getattr_static(spider, name)
        function = getattr(function, "__func__", function)
        annotation = _returned(function)
        if annotation is inspect.Parameter.empty:
            continue
        if problem := _shape_problem(function, annotation):
            yield Finding(*source.place(name), f"{name}() {problem}")
            continue
        for output in _outputs(annotation):
            if problem := _output_problem(output, items):
                yield Finding(*source.place(name), f"{name}() is annotated to give {_shown(output)}, {problem}")


def item_type_of(spider: type) -> Any:
    """What a spider is generic in: ``Quote`` of ``Spider[Quote]``; Any where it does not say."""
    for base in spider.__dict__.get("__orig_bases__", spider.__bases__):
        origin = get_origin(base)
        if origin is not None and isinstance(origin, type) and issubclass(origin, Spider):
            (given, *_) = get_args(base)
            return Any if isinstance(given, TypeVar) else given
        if isinstance(base, type) and issubclass(base, Spider) and base is not Spider:
            return item_type_of(base)
    return Any


def _returned(function: Callable[..., Any]) -> Any:
    """The annotation of what a function returns; empty where there is none, or it names what is not there."""
    try:
        return get_type_hints(function).get("return", inspect.Parameter.empty)
    except Exception:  # a name that only a type checker sees; whatever else is in a text that is evaluated
        return inspect.Parameter.empty


def _shape_problem(function: Callable[..., Any], annotation: Any) -> str:
    origins = {get_origin(member) or member for member in _members(annotation)}
    if origins & {Any, object}:
        return ""
    if inspect.isasyncgenfunction(function) and not origins & {*_MANY_LATER}:
        return f"is an async generator: annotate it AsyncIterator[...], not {_shown(annotation)}"
    if inspect.isgeneratorfunction(function) and not origins & {Iterable, Iterator, Generator}:
        return f"is a generator: annotate it Iterator[...], not {_shown(annotation)}"
    return ""


def _outputs(annotation: Any) -> Iterator[Any]:
    """The types of the single outputs in what a callback returns."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        for member in args:
            yield from _outputs(member)
    elif origin in (Coroutine, Generator) and args:
        yield from _outputs(args[-1] if origin is Coroutine else args[0])
    elif origin in (*_MANY, *_MANY_LATER, *_LATER) and args:
        for member in args[:1] if origin is not tuple else args:
            if member is not Ellipsis:
                yield from _outputs(member)
    elif annotation not in (*_MANY, *_MANY_LATER, *_LATER):
        yield annotation


def _output_problem(output: Any, items: Any) -> str:
    kind = get_origin(output) or output
    if kind in (None, type(None), Any, object) or isinstance(kind, TypeVar) or not isinstance(kind, type):
        return ""
    if issubclass(kind, Request) or kind is Mapping or getattr(kind, "_is_protocol", False) or kind is Protocol:
        return ""
    if not is_typeddict(kind) and not is_item_type(kind):
        return "which is neither a request nor an item (dict, dataclass, attrs, pydantic, msgspec)"
    wanted = [get_origin(member) or member for member in _members(items)]
    kinds = [dict if is_typeddict(member) and not is_typeddict(kind) else member for member in wanted]
    if any(member is Any or not isinstance(member, type) for member in kinds):
        return ""
    if any(kind is member or (not is_typeddict(member) and issubclass(kind, member)) for member in kinds):
        return ""
    return f"but the spider's items are {_shown(items)}"


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _shown(annotation: Any) -> str:
    return inspect.formatannotation(annotation)
