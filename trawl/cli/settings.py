"""The command ``trawl settings``: prints settings with their values and sources, and converts Scrapy's settings.py."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterable, Sequence

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trawl.cli.load import load_module, load_spider
from trawl.cli.view import stdout_console
from trawl.compat.settings import RENAMED, setting_advice
from trawl.compat.to_toml import lines_of, to_toml
from trawl.errors import SettingsError, SpiderNotFound, UsageError
from trawl.observe import MASK, clipped, printable, without_passwords
from trawl.settings import DEFAULT, Settings, ambient, assignments, definitions, load, of_spider
from trawl.settings.check import nearest
from trawl.spiders import Spider

__all__ = ["move_command", "print_all", "print_one", "settings_command", "spelled"]

_VALUE_CHARACTERS = 70

_SECRET_KEY = re.compile(r'("(?:password|token|secret)":")(?:[^"\\]|\\.)*(")', re.IGNORECASE)
_SECRET_NAME = re.compile(r"PASSWORD|SECRET|TOKEN")


def settings_command(spider: str | None, name: str | None, settings: Sequence[str]) -> None:
    """Print the settings as they are here.

    Args:
        spider: A spider whose ``custom_settings`` are included.
        name: The only setting to print; None for all.
        settings: ``-s NAME=VALUE``.
    """
    console = stdout_console()
    chosen = _chosen(spider) if spider else None
    values = load(*ambient(spider=chosen), of_spider(chosen), assignments(settings))
    if name is not None:
        print_one(values, name, console)
    else:
        print_all(values, console)


def _chosen(target: str) -> type[Spider]:
    """Return the spider; for a setting in its place, say how to print that."""
    try:
        return load_spider(target)
    except SpiderNotFound as error:
        if target in {definition.name for definition in definitions()}:
            raise UsageError(f"{target} is a setting, not a spider: use `trawl settings --get {target}`") from error
        raise


def move_command(path: str) -> None:
    """Print Scrapy's ``settings.py`` as a ``pyproject.toml``.

    Args:
        path: The file; it is imported.
    """
    module = load_module(path)
    with tokenize.open(path) as file:
        source = file.read()
    values = {name: value for name, value in vars(module).items() if name.isupper()}
    print(to_toml(values, lines_of(source)), end="")


def spelled(value: object) -> str:
    """Return a setting's value as ``-s`` takes it: JSON, classes by their import path."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=_path_of).decode()


def shown(name: str, value: object) -> str:
    """Return a setting's value as it is spelled, with ``***`` for each password and token.

    What is printed ends up in logs of others. A password is what stands between ``:`` and ``@`` in a URL, what a key
    ``password`` or ``token`` has, and the whole value of a setting with such a word in its name.
    """
    text = spelled(value)
    if value and isinstance(value, str) and _SECRET_NAME.search(name):
        return MASK
    return _SECRET_KEY.sub(rf"\1{MASK}\2", without_passwords(text))


def print_one(settings: Settings, name: str, console: Console) -> None:
    """Print the value of one setting alone, for scripts.

    Raises:
        SettingsError: There is no such setting.
    """
    name = RENAMED.get(name, name)
    if name not in settings:
        if reason := setting_advice(name):
            raise SettingsError(f"{name} is Scrapy's and has no effect: {reason}", name)
        close = nearest(name, settings)
        raise SettingsError(f"unknown setting {name}{f'; did you mean {close}?' if close else ''}", name)
    console.print(printable(shown(name, settings[name])), soft_wrap=True)


def print_all(settings: Settings, console: Console) -> None:
    """Print every setting: on a terminal as a table, elsewhere as lines ``NAME=VALUE  # SOURCE``."""
    if not console.is_terminal:
        for name in settings:
            console.print(f"{name}={printable(shown(name, settings[name]))}  # {settings.source(name)}", soft_wrap=True)
        return
    table = Table(box=box.SIMPLE, pad_edge=False, header_style="cyan")
    for title in ("setting", "value", "unit", "from"):
        table.add_column(title, overflow="fold", no_wrap=title == "setting")
    section = ""
    for definition in definitions():
        if definition.section != section:
            section = definition.section
            table.add_row(Text(section, style="bold"))
        source = settings.source(definition.name)
        style = "" if source == DEFAULT else "green"
        cells: Iterable[str] = (
            definition.name,
            clipped(shown(definition.name, settings[definition.name]), _VALUE_CHARACTERS),
            definition.unit,
            "" if source == DEFAULT else source,
        )
        table.add_row(*(Text(cell, style=style) for cell in cells))
    if settings.own:
        table.add_row(Text("Your own", style="bold"))
    for name, value in settings.own.items():
        source = settings.source(name)
        table.add_row(name, clipped(shown(name, value), _VALUE_CHARACTERS), "", "" if source == DEFAULT else source)
    console.print(table)


def _path_of(value: object) -> str:
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value)
