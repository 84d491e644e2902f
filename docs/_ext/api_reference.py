"""Directives that make the reference from the package's own docstrings.

``public-names``: what a module exports, each with its first sentence. ``api``: a package, module by module.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import TypeGuard

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
    """A module, and those in it whose names are public; ``settings`` has a page of its own."""
    face = importlib.import_module(package)
    yield face
    for found in pkgutil.iter_modules(getattr(face, "__path__", ()), f"{package}."):
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
            yield from (f"``{name}``", f"   {type(thing).__name__}", "")


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
            if hasattr(module, "__path__"):  # the face of a package: its names are documented where they are defined
                names = exports(module) if hasattr(module, "__all__") else ()
                self.parse([f".. automodule:: {module.__name__}", "   :no-members:", "", *names], section)
            else:
                self.parse([f".. automodule:: {module.__name__}"], section)
            sections.append(section)
        return sections


def imported_for_types(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Element
) -> nodes.Element | None:
    """Find the home of a name that a module imports under TYPE_CHECKING only, which is looked for in that module."""
    if node.get("refdomain") != "py":
        return None
    types = {full: entry for full, entry in env.domains.python_domain.objects.items() if entry.objtype in TYPES}
    name = str(node["reftarget"]).rpartition(".")[2]
    homes = [full for full in types if full.rpartition(".")[2] == name]
    if len(homes) != 1:
        return None
    home = types[homes[0]]
    return make_refnode(app.builder, node["refdoc"], home.docname, home.node_id, text, homes[0])


def foreign(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Leave out what a module exports but another project documents."""
    return True if what == "module" and isinstance(thing, type | FunctionType) and not is_ours(thing) else None


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("public-names", PublicNames)
    app.add_directive("api", Api)
    app.connect("autodoc-skip-member", foreign)
    app.connect("missing-reference", imported_for_types)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
