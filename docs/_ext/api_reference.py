"""Directives that generate the API reference from docstrings.

``public-names`` lists the names that a module exports, with their first sentences. ``api`` documents all exports fully.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from operator import attrgetter
from types import FunctionType, ModuleType
from typing import TypeGuard
from weakref import WeakKeyDictionary

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode
from sphinx.util.typing import ExtensionMetadata

import trawl
from docs._ext.api_text import assigned

FIRST = {"Spider", "Request", "Response", "Selector", "Item", "simulate", "SimulatedWeb"}
SHORT_VALUE = 100  # maximum number of characters of a value that is shown
TYPES = ("class", "exception", "data", "type", "attribute")


def first_sentence(thing: object) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def is_ours(thing: object) -> TypeGuard[type | FunctionType]:
    """Return whether a class or function is defined in trawl, and not only exported by it."""
    return isinstance(thing, type | FunctionType) and thing.__module__.partition(".")[0] == "trawl"


def exports(module: ModuleType) -> Iterator[str]:
    """Yield lines of reStructuredText with a module's exports and their first sentences."""
    for name in sorted(module.__all__, key=str.lower):
        thing = getattr(module, name)
        if is_ours(thing):
            home = home_of(thing)
            yield from (f":py:obj:`{name} <{home}>`", f"   {first_sentence(thing)}", "")
        elif not isinstance(thing, ModuleType):
            yield from (f"``{name}``", f"   {assigned(module.__name__, name)[1].partition(chr(10))[0]}", "")


def is_defined_in(module: ModuleType, thing: object) -> TypeGuard[type | FunctionType]:
    """Return whether a module, or a module of a package, defines a class or function."""
    return is_ours(thing) and f"{thing.__module__}.".startswith(f"{module.__name__}.")


def documented(module: ModuleType) -> Iterator[str]:
    """Yield lines of reStructuredText with the public names of a module or package and their docstrings.

    The most important names come first, followed by the other names of ``import trawl``.
    """
    yield from (f".. py:currentmodule:: {module.__name__}", "")
    for name in sorted(module.__all__, key=lambda name: (name not in FIRST, name not in trawl.__all__)):
        thing = getattr(module, name)
        if is_defined_in(module, thing):
            kind = "function" if isinstance(thing, FunctionType) else "class"
            yield from (f".. auto{kind}:: {module.__name__}.{name}", "")


def values(module: ModuleType) -> Iterator[str]:
    """Yield lines of reStructuredText with a module's values and aliases, and the names that it imports."""
    others = []
    for name in sorted(module.__all__, key=str.lower):
        thing = getattr(module, name)
        if is_defined_in(module, thing):
            continue
        expression, words = ("", "") if isinstance(thing, ModuleType) else assigned(module.__name__, name)
        if not words:
            others.append(name)
            continue
        yield f".. py:data:: {module.__name__}.{name}"
        yield from (f"   :value: {expression}",) * (len(expression) <= SHORT_VALUE)
        yield from ("", *(f"   {line}".rstrip() for line in words.splitlines()), "")
    if others:
        yield "Also here: " + ", ".join(f"``{name}``" for name in others) + "."


class FromDocstrings(SphinxDirective):
    """Base of directives whose argument is a module."""

    required_arguments = 1

    def parse(self, lines: list[str], into: nodes.Element) -> None:
        """Parse reStructuredText into a node."""
        text = StringList(["```{eval-rst}", *lines, "```"], source=self.arguments[0])
        self.state.nested_parse(text, 0, into)


class PublicNames(FromDocstrings):
    """A list of a module's exports."""

    def run(self) -> list[nodes.Node]:
        """Return the list."""
        holder = nodes.container()
        self.parse([*exports(importlib.import_module(self.arguments[0]))], holder)
        return list(holder.children)


class Api(FromDocstrings):
    """The documentation of the names in ``__all__`` of a package or module."""

    def run(self) -> list[nodes.Node]:
        """Return the section."""
        module = importlib.import_module(self.arguments[0])
        section = nodes.section(ids=[nodes.make_id(f"module-{module.__name__}")])
        section += nodes.title("", "", nodes.literal(text=module.__name__))
        self.parse([f".. automodule:: {module.__name__}", "   :no-members:", ""], section)
        self.parse([*documented(module), *values(module)], section)
        return [section]


def thing_of(name: str) -> object:
    """Return the object with a name such as ``trawl.http.request.Request.url``; None if it does not exist."""
    module, _, rest = name.rpartition(".")
    while module:
        try:
            return attrgetter(rest)(importlib.import_module(module))
        except ImportError:
            module, _, part = module.rpartition(".")
            rest = f"{part}.{rest}"
        except AttributeError:
            return None
    return importlib.import_module(name) if name == "trawl" else None


def home_of(thing: object) -> str:
    """Return where an object of trawl is defined (``trawl.http.request.Request``); "" if that is unknown."""
    module = getattr(thing, "__module__", None) or ""
    return f"{module}.{getattr(thing, '__qualname__', '')}" if module.partition(".")[0] == "trawl" else ""


_by_last_part: WeakKeyDictionary[BuildEnvironment, Mapping[str, list[str]]] = WeakKeyDictionary()


def of_last_part(env: BuildEnvironment) -> Mapping[str, list[str]]:
    """Return the names of all types and values by their last part. Complete when references are resolved."""
    names = _by_last_part.get(env)
    if names is None:
        names = _by_last_part[env] = defaultdict(list)
        for name, entry in env.domains.python_domain.objects.items():
            if entry.objtype in TYPES:
                names[name.rpartition(".")[2]].append(name)
    return names


_by_home: WeakKeyDictionary[BuildEnvironment, Mapping[str, str]] = WeakKeyDictionary()


def by_home(env: BuildEnvironment) -> Mapping[str, str]:
    """Return the public names by their definition: ``trawl.http.Request`` by ``trawl.http.request.Request``."""
    names = _by_home.get(env)
    if names is None:
        found = {home_of(thing_of(name)): name for name in env.domains.python_domain.objects}
        names = _by_home[env] = found
    return names


@cache
def all_names() -> frozenset[str]:
    """Return all names that trawl's modules define. Private names may be mentioned, but are not linked."""
    modules = [info.name for info in pkgutil.walk_packages(trawl.__path__, "trawl.") if "__" not in info.name]
    return frozenset(name for module in modules for name in vars(importlib.import_module(module)))


def known_elsewhere(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Element
) -> nodes.Element | None:
    """Resolve a name that is not documented in the module that mentions it.

    Either a package exports the name, or a module imports it only under TYPE_CHECKING, and Sphinx looks for it in that
    module. Private names of trawl are shown without a link. Names that trawl does not have still cause a warning.
    """
    if node.get("refdomain") != "py":
        return None
    objects = env.domains.python_domain.objects
    target = str(node["reftarget"])
    last = target.rpartition(".")[2]
    thing = thing_of(target) if target.startswith("trawl.") else None
    home = by_home(env).get(home_of(thing), "")
    if not home:
        same = of_last_part(env)[last]
        home = same[0] if len(same) == 1 else ""
    if home:
        entry = objects[home]
        return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, text, home)
    return text if thing is not None or last in all_names() else None


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives."""
    app.add_directive("public-names", PublicNames)
    app.add_directive("api", Api)
    app.connect("missing-reference", known_elsewhere)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
