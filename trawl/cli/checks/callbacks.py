"""Which methods a spider's requests name as callbacks, and whether they are there and can be called so.

Whether the annotations of a spider's callbacks say what the crawl takes, and what the spider's items are.
"""

from __future__ import annotations

import ast
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

import attrs

from trawl.cli.checks.source import CheckMessage, SpiderSource
from trawl.http import Request
from trawl.items import is_item_type
from trawl.settings.check import nearest
from trawl.spiders import CrawlSpider, SitemapSpider, Spider

__all__ = ["callbacks_of", "check_annotations", "check_callbacks", "item_type_of"]

_MANY = (Iterable, Iterator, Generator, list, tuple)

_MANY_LATER = (AsyncIterable, AsyncIterator, AsyncGenerator)

_LATER = (Awaitable, Coroutine)


def check_annotations(spider: type[Spider], source: SpiderSource, callbacks: Iterable[str]) -> Iterator[CheckMessage]:
    """Say which callbacks are annotated with what they can't give, or with other items than the spider's."""
    items = item_type_of(spider)
    for name in callbacks:
        function = inspect.getattr_static(spider, name)
        function = getattr(function, "__func__", function)
        annotation = _returned(function)
        if annotation is inspect.Parameter.empty:
            continue
        if problem := _shape_problem(function, annotation):
            yield CheckMessage(*source.place(name), f"{name}() {problem}")
            continue
        for output in _outputs(annotation):
            if problem := _output_problem(output, items):
                yield CheckMessage(*source.place(name), f"{name}() is annotated to give {_shown(output)}, {problem}")


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


_MADE_WITH_CALLBACK_SECOND = frozenset({"Request", "FormRequest", "JsonRequest", "follow", "follow_all"})

_KNOWN = ("parse", "parse_start_url", "parse_node", "parse_row", "parse_entry")


@attrs.frozen
class _Use:
    """A callback that a request names.

    Attributes:
        path: The file.
        line: The line.
        role: ``callback`` or ``errback``.
        name: The method of ``self``; "" where it is a text.
        text: The text that stands in its place; "" where it is none.
        by_name: What ``cb_kwargs`` gives; None where that is not written out.
    """

    path: str
    line: int
    role: str
    name: str
    text: str
    by_name: tuple[str, ...] | None


def check_callbacks(spider: type[Spider], source: SpiderSource) -> Iterator[CheckMessage]:
    """Say which callbacks that requests name are not there, or can't be called as they would be."""
    assigned = _assigned(source)
    for use in _uses(source):
        if use.text:
            words = f"{use.role} is the text {use.text!r}: name the method itself, self.{use.text}"
            yield CheckMessage(use.path, use.line, words)
        elif use.name not in assigned and not hasattr(spider, use.name):
            close = nearest(use.name, [name for name in dir(spider) if callable(getattr(spider, name, None))])
            hint = f"; did you mean self.{close}?" if close else ""
            yield CheckMessage(use.path, use.line, f"{spider.__name__} has no method {use.name!r}{hint}")
        elif use.name not in assigned and (problem := _problem(spider, use)):
            yield CheckMessage(use.path, use.line, f"{use.role} {use.name}() can't be called: {problem}")


def callbacks_of(spider: type[Spider], source: SpiderSource) -> list[str]:
    """The names of the user's methods that get responses, in no order that means anything."""
    names = {use.name for use in _uses(source) if use.role == "callback"}
    if issubclass(spider, CrawlSpider):
        given = [getattr(rule, "callback", None) for rule in spider.rules]
        names.update(callback for callback in given if isinstance(callback, str))
    if issubclass(spider, SitemapSpider):
        names.update(callback for _, callback in spider.sitemap_rules if isinstance(callback, str))
    names.update(_KNOWN)
    return sorted(name for name in names if source.is_own(name) and callable(getattr(spider, name, None)))


def _uses(source: SpiderSource) -> Iterator[_Use]:
    for method in source.methods():
        for node in ast.walk(method.node):
            if isinstance(node, ast.Call):
                for role, value in _named(node):
                    if (use := _use(method.path, node, role, value)) is not None:
                        yield use


def _named(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if function in _MADE_WITH_CALLBACK_SECOND and len(call.args) > 1:
        yield "callback", call.args[1]
    if function != "Rule":
        yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg in ("callback", "errback"))


def _use(path: str, call: ast.Call, role: str, value: ast.expr) -> _Use | None:
    by_name = _by_name(call) if role == "callback" else ()
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return _Use(path, value.lineno, role, "", value.value, by_name)
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "self":
        return _Use(path, value.lineno, role, value.attr, "", by_name)
    return None


def _by_name(call: ast.Call) -> tuple[str, ...] | None:
    """The names in ``cb_kwargs``, where it is absent or written out."""
    for keyword in call.keywords:
        if keyword.arg is None:
            return None
        if keyword.arg == "cb_kwargs":
            given = keyword.value
            if isinstance(given, ast.Call) and getattr(given.func, "id", "") == "dict" and not given.args:
                names: Iterable[Any] = [each.arg for each in given.keywords]
            elif isinstance(given, ast.Dict):
                names = [key.value if isinstance(key, ast.Constant) else None for key in given.keys]
            else:
                return None
            known = [name for name in names if isinstance(name, str)]
            return tuple(known) if len(known) == len(list(names)) else None
    return ()


def _assigned(source: SpiderSource) -> set[str]:
    """What methods put on ``self``."""
    return {
        node.attr
        for method in source.methods()
        for node in ast.walk(method.node)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def _problem(spider: type[Spider], use: _Use) -> str:
    function = inspect.getattr_static(spider, use.name)
    if use.by_name is None or not inspect.isfunction(function):
        return ""
    try:
        # A request may be changed after it is made (`request.cb_kwargs["x"] = ...`): what is missing may come yet.
        inspect.signature(function).bind_partial(None, None, **dict.fromkeys(use.by_name))
    except TypeError as error:
        return str(error)
    return ""
