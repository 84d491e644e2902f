"""Directives that make the reference from the package's own docstrings.

``public-names``: what a module exports, each with its first sentence. ``api``: a package, module by module.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
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

TYPES = ("class", "exception", "data", "type", "attribute")


def first_sentence(thing: object) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def public_modules(package: str) -> Iterator[ModuleType]:
    """A module, and all those below it."""
    face = importlib.import_module(package)
    yield face
    for found in pkgutil.walk_packages(getattr(face, "__path__", ()), f"{package}."):
        if not found.name.rpartition(".")[2].startswith("__"):
            yield importlib.import_module(found.name)


def is_ours(thing: object) -> TypeGuard[type | FunctionType]:
    """Whether a class or function is defined in trawl, not only exported by it."""
    return isinstance(thing, type | FunctionType) and thing.__module__.partition(".")[0] == "trawl"


def exports(module: ModuleType) -> Iterator[str]:
    """Lines of reStructuredText: what a module exports, each with its first sentence."""
    for name in sorted(module.__all__, key=str.lower):
        thing = getattr(module, name)
        if is_ours(thing):
            home = f"{thing.__module__}.{thing.__qualname__}"
            yield from (f":py:obj:`{name} <{home}>`", f"   {first_sentence(thing)}", "")
        elif not isinstance(thing, ModuleType):
            kind = type(thing).__name__ if type(thing).__module__ not in ("typing", "types") else "A type."
            yield from (f"``{name}``", f"   {kind}", "")


def defined_in(module: ModuleType) -> Iterator[str]:
    """The exports of a module that are defined in it, not in a module below."""
    for name in getattr(module, "__all__", ()):
        thing = getattr(module, name)
        if is_ours(thing) and thing.__module__ == module.__name__:
            yield name


class FromDocstrings(SphinxDirective):
    """A directive whose argument is a module."""

    required_arguments = 1

    def parse(self, lines: list[str], into: nodes.Element) -> None:
        """Parse reStructuredText into a node."""
        text = StringList(["```{eval-rst}", *lines, "```"], source=self.arguments[0])
        self.state.nested_parse(text, 0, into)


class PublicNames(FromDocstrings):
    """A list of what a module exports."""

    def run(self) -> list[nodes.Node]:
        """The list."""
        holder = nodes.container()
        self.parse([*exports(importlib.import_module(self.arguments[0]))], holder)
        return list(holder.children)


class Api(FromDocstrings):
    """The documented names of a package, a section for each module that has some."""

    def run(self) -> list[nodes.Node]:
        """The sections."""
        sections: list[nodes.Node] = []
        for module in public_modules(self.arguments[0]):
            section = nodes.section(ids=[nodes.make_id(f"module-{module.__name__}")])
            section += nodes.title("", "", nodes.literal(text=module.__name__))
            if hasattr(module, "__path__"):  # the face of a package: most of its names are defined below
                names = exports(module) if hasattr(module, "__all__") else ()
                own = ", ".join(defined_in(module))
                members = f"   :members: {own}" if own else "   :no-members:"
                self.parse([f".. automodule:: {module.__name__}", members, "", *names], section)
            else:
                self.parse([f".. automodule:: {module.__name__}"], section)
            sections.append(section)
        return sections


def home_of(name: str) -> str:
    """Where something known as ``trawl.Request`` is defined (``trawl.http.request.Request``); "" if it is nowhere."""
    module, _, rest = name.rpartition(".")
    while module:
        try:
            thing = attrgetter(rest)(importlib.import_module(module))
            return f"{thing.__module__}.{thing.__qualname__}"
        except ImportError:
            module, _, part = module.rpartition(".")
            rest = f"{part}.{rest}"
        except AttributeError:
            return ""
    return ""


_by_last_part: WeakKeyDictionary[BuildEnvironment, Mapping[str, list[str]]] = WeakKeyDictionary()


def of_last_part(env: BuildEnvironment) -> Mapping[str, list[str]]:
    """The names of all types and values by the part after the last dot; complete when references are resolved."""
    names = _by_last_part.get(env)
    if names is None:
        names = _by_last_part[env] = defaultdict(list)
        for name, entry in env.domains.python_domain.objects.items():
            if entry.objtype in TYPES:
                names[name.rpartition(".")[2]].append(name)
    return names


def known_elsewhere(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Element
) -> nodes.Element | None:
    """Resolve a name that is not documented where it is named.

    A package exports it; or a module imports it under TYPE_CHECKING only, and Sphinx looks for it in that module.
    """
    if node.get("refdomain") != "py":
        return None
    objects = env.domains.python_domain.objects
    target = str(node["reftarget"])
    homes = [home_of(target)] if target.startswith("trawl.") else []
    if not homes or homes[0] not in objects:
        homes = of_last_part(env)[target.rpartition(".")[2]]
    if len(homes) != 1:
        return None
    home = objects[homes[0]]
    return make_refnode(app.builder, node["refdoc"], home.docname, home.node_id, text, homes[0])


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives."""
    app.add_directive("public-names", PublicNames)
    app.add_directive("api", Api)
    app.connect("missing-reference", known_elsewhere)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
