"""The command ``trawl settings``: prints settings with their values and sources, and moves Scrapy's settings.py.

``--move`` prints the text of a ``pyproject.toml``. Settings of trawl and Scrapy go to ``[tool.trawl]``, other names to
``[tool.trawl.own]``. A comment names each setting that has no effect, a wrong value or no form in TOML. A setting
without effect is also written to ``[tool.trawl.own]``, because code may read it, unless it may be a secret.
"""

from __future__ import annotations

import ast
import json
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path, PurePath
from types import BuiltinFunctionType, FunctionType

import msgspec
from rich.console import Console
from rich.text import Text

from trawl.cli.load import load_module, load_spider
from trawl.cli.view import plain_table, stdout_console
from trawl.errors import SettingsError, SpiderNotFound, TrawlError, UsageError
from trawl.observe import MASK, clipped, printable, without_passwords
from trawl.passwords import SECRET_NAME
from trawl.scrapy_names.moved import RENAMED, disabled_by, is_disabled
from trawl.scrapy_names.settings import key_advice, setting_advice
from trawl.settings import DEFAULT, Layer, Settings, ambient, assignments, definitions, load, of_spider
from trawl.settings.check import nearest
from trawl.settings.load import PART_LISTS
from trawl.settings.values import OWN, known
from trawl.spiders import Spider

__all__ = ["lines_of", "move_command", "print_all", "settings_command", "spelled", "to_toml", "without_secrets"]

_VALUE_CHARACTERS = 70

_PAIR = re.compile(r'("([^"\\]*)":")(?:[^"\\]|\\.)*(")')


def settings_command(spider: str | None, name: str | None, settings: Sequence[str]) -> None:
    """Print all settings or one setting, with the values in this directory and for a spider."""
    console = stdout_console()
    chosen = _chosen(spider) if spider else None
    values = load(*ambient(spider=chosen), of_spider(chosen), assignments(settings))
    if name is not None:
        print_one(values, name, console)
    else:
        print_all(values, console)


def _chosen(target: str) -> type[Spider]:
    """Return the spider. If ``target`` is a setting, raise an error that says how to print it."""
    try:
        return load_spider(target)
    except SpiderNotFound as error:
        if target in {definition.name for definition in definitions()}:
            raise UsageError(f"{target} is a setting, not a spider: use `trawl settings --get {target}`") from error
        raise


def move_command(path: str) -> None:
    """Import a file of Scrapy's settings, and print it as a ``pyproject.toml``."""
    module = load_module(Path(path))
    with tokenize.open(path) as file:
        source = file.read()
    values = {name: value for name, value in vars(module).items() if name.isupper()}
    print(to_toml(values, lines_of(source)), end="")


def spelled(value: object) -> str:
    """Return a setting's value as ``-s`` accepts it: JSON, with import paths for classes."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=_json_of).decode()


def shown(name: str, value: object) -> str:
    """Return a setting's value as it is spelled, with ``***`` for each password and token.

    The output may end up in logs that other people read. A password is the text between ``:`` and ``@`` in a URL, the
    value of a key such as ``password``, ``token``, ``secret`` or ``Authorization``, or the whole value of a setting
    with such a word in its name.
    """
    text = spelled(value)
    if value and isinstance(value, str) and SECRET_NAME.search(name):
        return MASK
    return _PAIR.sub(_masked, without_passwords(text))


def _masked(pair: re.Match[str]) -> str:
    return f"{pair[1]}{MASK}{pair[3]}" if SECRET_NAME.search(pair[2]) else pair[0]


def print_one(settings: Settings, name: str, console: Console) -> None:
    """Print only the value of one setting, for scripts."""
    name = RENAMED.get(name, name)
    if name not in settings:
        if reason := setting_advice(name):
            raise SettingsError(f"{name} is Scrapy's and has no effect: {reason}", name)
        close = nearest(name, settings)
        raise SettingsError(f"unknown setting {name}{f'; did you mean {close}?' if close else ''}", name)
    console.print(printable(shown(name, settings[name])), soft_wrap=True)


def print_all(settings: Settings, console: Console) -> None:
    """Print every setting, as a table on a terminal and otherwise as lines ``NAME=VALUE # SOURCE``."""
    if not console.is_terminal:
        for name in settings:
            console.print(f"{name}={printable(shown(name, settings[name]))}  # {settings.source(name)}", soft_wrap=True)
        return
    table = plain_table()
    for title in ("setting", "value", "unit", "from"):
        table.add_column(title, overflow="fold", no_wrap=title == "setting")
    rows = [(definition.section, definition.name, definition.unit) for definition in definitions()]
    rows += [(OWN, name, "") for name in settings.own]
    for section, group in groupby(rows, key=lambda row: row[0]):
        table.add_row(Text(section, style="bold"))
        for _, name, unit in group:
            source = "" if settings.source(name) == DEFAULT else settings.source(name)
            cells = (name, clipped(shown(name, settings[name]), _VALUE_CHARACTERS), unit, source)
            table.add_row(*(Text(cell, style="green" if source else "") for cell in cells))
    console.print(table)


def _json_of(value: object) -> str:
    return _path(value) if isinstance(value, type) else repr(value)


_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_NAMED = type | FunctionType | BuiltinFunctionType
_NONE = "TOML has no None (custom_settings can set it)"
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|PASS\Z|CREDENTIAL")

_SCRAPYS: Mapping[str, str] = {
    "ROBOTSTXT_OBEY": "false",
    "DOWNLOAD_VERIFY_CERTIFICATES": "false",
    "CONCURRENT_REQUESTS_PER_DOMAIN": "8",
    "DOWNLOAD_DELAY": "0",
    "DOWNLOAD_DELAY_PER_SLOT": "0",
}
"""Scrapy's defaults that differ from trawl's."""


def to_toml(values: Mapping[str, object], lines: Mapping[str, int] | None = None) -> str:
    """Return the text of a ``pyproject.toml`` with settings, whose ``lines`` in ``settings.py`` messages name."""
    settings: list[str] = [] if "SCRAPY_COMPAT" in values else ["SCRAPY_COMPAT = true"]
    own: list[str] = []
    unused: list[str] = []
    values = {**values, **{name: off for name, (off, _) in disabled_by(values).items()}}
    for name, value in values.items():
        is_known = name in known() or name in RENAMED
        if reason := setting_advice(name) if not is_known else "":
            settings.append(f"# {name}: {reason}")
            if not _SECRET.search(name) and value is not None:
                unused.extend(_lines(name, value, "", is_known=False))
            continue
        if not is_known and value and isinstance(value, str) and _SECRET.search(name):
            own.append(f"# a secret? TRAWL_{name} in the environment sets it too, without a value in this file")
        place = f" (line {lines[name]})" if lines and name in lines else ""
        (settings if is_known else own).extend(_lines(name, value, place, is_known=is_known))
    settings.extend(_other_defaults(values))
    if unused:
        own += ["# without effect, for code that reads them:", *unused]
    return "\n".join(["[tool.trawl]", *settings, *(["", "[tool.trawl.own]", *own] if own else [])]) + "\n"


def without_secrets(name: str, value: object) -> object:
    """Return a setting's value with "" for each string that may be a secret, according to its name or its text."""
    if isinstance(value, str):
        is_secret = _SECRET.search(name.upper()) or without_passwords(value) != value
        return "" if is_secret else value
    if isinstance(value, dict):
        return {key: without_secrets(f"{name} {key}", part) for key, part in value.items()}
    return [without_secrets(name, part) for part in value] if isinstance(value, list) else value


def _other_defaults(values: Mapping[str, object]) -> Iterator[str]:
    """Yield a comment for each default that differs from Scrapy's and that ``values`` do not set."""
    delay = values.get("DOWNLOAD_DELAY")
    for name, scrapys in _SCRAPYS.items():
        is_felt = name != "DOWNLOAD_DELAY_PER_SLOT" or not isinstance(delay, int | float) or delay < 1
        if name not in values and is_felt:
            yield f"# {name} is {_value(known()[name].default)} by default; Scrapy's is {scrapys}"


def lines_of(source: str) -> dict[str, int]:
    """Return the last line of each upper-case name that a file sets."""
    names = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name))
    return {name.id: name.lineno for name in names if isinstance(name.ctx, ast.Store) and name.id.isupper()}


def _lines(name: str, value: object, place: str, *, is_known: bool) -> Iterator[str]:
    """Yield a line that sets ``name``, or a comment that says why not, and a comment for each key left out."""
    kept, left = _toml_part(value, name)
    yield from (f"# {name}: {part}" for part in left)
    if value is None:
        yield f"# {name} = None: {_NONE}, leave it unset"
        return
    try:
        if is_known:
            moved = {"SCRAPY_COMPAT": True, name: kept}
            load(Layer("settings.py", moved), tell=lambda warning: None)
        yield f"{name} = {_value(kept)}"
    except (TrawlError, TypeError) as error:
        yield f"# {name} = {' '.join(repr(value).split())}"
        yield f"# is left out{place}: {error}"


def _toml_part(value: object, path: str) -> tuple[object, list[str]]:
    """Return a setting's value, and a line of text for each key left out.

    Keys that only Scrapy has, and keys whose value is None, are left out. But in a setting that lists components, None
    becomes false. A None that :func:`disabled_by` turns into another setting is left out without a line of text.
    """
    if not isinstance(value, Mapping):
        return value, []
    kept: dict[object, object] = {}
    left: list[str] = []
    for key, part in value.items():
        if part is None and path in PART_LISTS:
            if not is_disabled(_path(key)):
                kept[key] = False
            continue
        if part is None:
            left.append(f"{_path(key)} = None is left out: {_NONE}")
            continue
        if words := key_advice(path, key):
            left.append(f"{_path(key)} = {' '.join(repr(part).split())} is left out: {words}")
            continue
        kept[key], inner = _toml_part(part, path)
        left += [f"{_path(key)}, {each}" for each in inner]
    return kept, left


def _value(value: object) -> str:
    """Return a value as TOML 1.0 writes it. Raises TypeError if TOML can't express the value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, _NAMED) and "<" in _path(value):  # a lambda or a local function
        raise TypeError("it has no import path; define it in a module, and write its import path here")
    if isinstance(value, PurePath | _NAMED):
        return _value(_path(value))
    if isinstance(value, Mapping):
        pairs = (f"{_key(_path(key))} = {_value(part)}" for key, part in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    if isinstance(value, list | tuple | set | frozenset):
        parts = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return f"[{', '.join(map(_value, parts))}]"
    raise TypeError(f"TOML can't express {type(value).__name__}; set it in custom_settings or update_settings()")


def _path(value: object) -> str:
    """Return the import path of a class or function, or any other value as a string."""
    if isinstance(value, _NAMED):
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)


def _key(text: str) -> str:
    return text if _BARE.match(text) else json.dumps(text, ensure_ascii=False)
