"""Signatures and docstrings as a reader of the reference wants them.

Sphinx prints the constructor that attrs makes from the names of its internals, evaluates what msgspec annotates, and
takes what stands before a colon in a property's first line for its type. Here both get the values and the sentences.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Union, get_args, get_origin

import attrs
import msgspec
from sphinx.application import Sphinx
from sphinx.util.inspect import signature, stringify_signature
from sphinx.util.typing import ExtensionMetadata

SHORT = 40  # characters of a default; what is longer is named by "..."
EMPTY: dict[object, str] = {dict: "{}", list: "[]", set: "set()", tuple: "()"}
SETTINGS = "Its fields are settings, in lower case: :doc:`/reference/settings` says what each does."
ALIAS = re.compile(r"TypeAliasForwardRef\(['\"](\w+)['\"]\)")
LONG_NAME = re.compile(r"(?<![\w.~`])(?:[a-z_]\w*\.)+(?=[A-Za-z_])")


@attrs.frozen(repr=False)
class Written:
    """A default that is shown as it is written here."""

    text: str

    def __repr__(self) -> str:
        return self.text


def shown(value: object, factory: Callable[..., object] | None) -> Written:
    """A default as it is written; ``...`` for one that is long, that has no literal, or that is made anew each time."""
    text = EMPTY.get(factory, "...") if factory else repr(value)
    return Written(text if len(text) <= SHORT and "<" not in text else "...")


def plain(annotation: Any) -> Any:
    """An annotation without what ``Annotated`` adds to it, at any depth."""
    if get_origin(annotation) is Annotated:
        return plain(get_args(annotation)[0])
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return Union[tuple(map(plain, arguments))]  # noqa: UP007  # of a tuple
    if isinstance(annotation, types.GenericAlias) and arguments:
        origin: Any = get_origin(annotation)
        return origin[tuple(map(plain, arguments))]
    return annotation


def made_by_attrs(thing: type) -> bool:
    """Whether the constructor of a class is the one that attrs writes."""
    return "__attrs_attrs__" in vars(thing) and "attr_dict" in getattr(vars(thing).get("__init__"), "__globals__", ())


def of_attrs(thing: type, aliases: Any) -> inspect.Signature:
    """The signature of an attrs class, with the values of its defaults."""
    found = signature(vars(thing)["__init__"], bound_method=True, type_aliases=aliases)
    fields = {field.alias: field for field in attrs.fields(thing)}

    def told(parameter: inspect.Parameter) -> inspect.Parameter:
        field, default = fields[parameter.name], parameter.default
        if default is not inspect.Parameter.empty:
            default = shown(field.default, getattr(field.default, "factory", None))
        annotation = parameter.annotation
        if annotation is inspect.Parameter.empty:  # it has a converter without a type of its own
            annotation = field.type or inspect.Parameter.empty
        return parameter.replace(default=default, annotation=annotation)

    return found.replace(parameters=[told(parameter) for parameter in found.parameters.values()])


def of_struct(thing: type[msgspec.Struct]) -> inspect.Signature:
    """The signature of a msgspec class, with the values of its defaults and without its constraints."""
    found = inspect.signature(thing)
    fields = {field.name: field for field in msgspec.structs.fields(thing)}

    def told(parameter: inspect.Parameter) -> inspect.Parameter:
        field, default = fields[parameter.name], parameter.default
        if not field.required:
            factory = None if field.default_factory is msgspec.NODEFAULT else field.default_factory
            default = shown(field.default, factory)
        return parameter.replace(default=default, annotation=plain(field.type))

    return found.replace(parameters=[told(parameter) for parameter in found.parameters.values()])


def is_of_settings(thing: object) -> bool:
    """Whether a class holds a part of the settings."""
    return isinstance(thing, type) and issubclass(thing, msgspec.Struct) and thing.__name__.endswith("Settings")


def mended(text: str | None) -> str | None:
    """A signature without what Sphinx makes of an alias inside a type."""
    return text and ALIAS.sub(r"\1", text)


def process_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: object, text: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Write the signature of a class whose constructor is generated; mend any other."""
    if what not in ("class", "exception") or not isinstance(thing, type):
        return mended(text), mended(returned)
    if getattr(thing, "_is_protocol", False):
        return "", None  # nobody makes one
    if issubclass(thing, msgspec.Struct):
        found = of_struct(thing)
    elif made_by_attrs(thing):
        found = of_attrs(thing, app.config.autodoc_type_aliases)
    else:
        return mended(text), mended(returned)
    with_types = not is_of_settings(thing)  # the page of settings has theirs
    written = stringify_signature(
        found,
        show_annotation=with_types,
        show_return_annotation=False,
        unqualified_typehints=True,
        short_literals=True,
    )
    return mended(written), None


def keep_first_line(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Keep Napoleon from reading a property's first line as ``type: words``: an empty comment stands before it."""
    if what in ("attribute", "data", "property") and lines and lines[0]:
        lines[:0] = ["..", ""]
    lines[:] = [line for line in lines if not line.startswith("Method generated by attrs")]
    if what == "class" and is_of_settings(thing):
        lines += ["", SETTINGS, ""]


def shorten_types(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Show the types of attributes by their last names, as signatures do. It comes after Napoleon."""
    for at, line in enumerate(lines):
        if line.lstrip().startswith((":vartype ", ":type ")):
            field, colon, rest = line.partition(": ")
            lines[at] = field + colon + LONG_NAME.sub(lambda found: f"~{found[0]}", rest)


def public_bases(base: Any) -> list[object]:
    """A base class; those of a private one."""
    plain_base: Any = get_origin(base) or base
    if not plain_base.__name__.startswith("_"):
        return [base]
    return [one for above in getattr(plain_base, "__orig_bases__", plain_base.__bases__) for one in public_bases(above)]


def drop_plain_bases(app: Sphinx, name: str, thing: type, options: object, bases: list[object]) -> None:
    """Name no base that tells a reader nothing: neither ``object`` nor a private one, in whose place its own stand."""
    told = [base for base in bases if base not in (object, msgspec.Struct)]
    bases[:] = [public for base in told for public in public_bases(base)] or bases


def drop_base_lines(app: Sphinx, doctree: Any, docname: str) -> None:
    """Remove the lines that would name such a base alone."""
    for paragraph in [node for node in doctree.findall() if node.astext() in ("Bases: object", "Bases: Struct")]:
        if paragraph.parent is not None and paragraph.tagname == "paragraph":
            paragraph.parent.remove(paragraph)


def assigned(module: str, name: str) -> tuple[str, str]:
    """The expression that a module's value is assigned, and the string below it; "" where there is none."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    body = list(statements(tree))
    for at, node in enumerate(body):
        if isinstance(node, ast.ImportFrom) and node.module and name in [(a.asname or a.name) for a in node.names]:
            source = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
            return assigned(node.module, source) if node.module.partition(".")[0] == "trawl" else ("", "")
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in [getattr(one, "id", None) for one in targets]:
            below = body[at + 1] if at + 1 < len(body) else None
            words = getattr(getattr(below, "value", None), "value", "") if isinstance(below, ast.Expr) else ""
            return ast.unparse(node.value) if node.value else "", inspect.cleandoc(words) if words else ""
    return "", ""


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a module, those under a condition among them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If | ast.Try):
            yield from statements(node)
        elif isinstance(node, ast.stmt):
            yield node


def setup(app: Sphinx) -> ExtensionMetadata:
    """Change what autodoc writes."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-process-docstring", keep_first_line, priority=400)
    app.connect("autodoc-process-docstring", shorten_types, priority=600)
    app.connect("autodoc-process-bases", drop_plain_bases)
    app.connect("doctree-resolved", drop_base_lines)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
