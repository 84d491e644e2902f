"""Which methods a spider's requests name as callbacks, and whether they are there and can be called so."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from trawl.cli.checks.finding import Finding
from trawl.cli.checks.source import SpiderSource
from trawl.settings.check import nearest
from trawl.spiders import CrawlSpider, SitemapSpider, Spider

__all__ = ["callbacks_of", "check_callbacks"]

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


def check_callbacks(spider: type[Spider], source: SpiderSource) -> Iterator[Finding]:
    """Say which callbacks that requests name are not there, or can't be called as they would be."""
    assigned = _assigned(source)
    for use in _uses(source):
        if use.text:
            words = f"{use.role} is the text {use.text!r}: name the method itself, self.{use.text}"
            yield Finding(use.path, use.line, words)
        elif use.name not in assigned and not hasattr(spider, use.name):
            close = nearest(use.name, [name for name in dir(spider) if callable(getattr(spider, name, None))])
            hint = f"; did you mean self.{close}?" if close else ""
            yield Finding(use.path, use.line, f"{spider.__name__} has no method {use.name!r}{hint}")
        elif use.name not in assigned and (problem := _problem(spider, use)):
            yield Finding(use.path, use.line, f"{use.role} {use.name}() can't be called: {problem}")


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
