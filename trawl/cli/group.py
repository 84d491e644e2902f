"""How the command shows what it can do: its words in groups, examples under each, words of other packages."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from trawl.cli.misuse import misuse_told
from trawl.plugins import load_plugin, plugin_names

__all__ = ["CRAWLING", "OTHERS", "STARTING", "TRAWL", "TRYING", "Group", "examples"]

CRAWLING = "Crawl"
TRYING = "Try out"
STARTING = "Begin"
TRAWL = "About trawl"
OTHERS = "From other packages"

COMMANDS = "Commands"
_TITLES = (STARTING, CRAWLING, TRYING, TRAWL, COMMANDS, OTHERS)

PLUGINS = "trawl.commands"
"""The group of entry points that add words."""


def examples(*lines: str) -> str:
    """The end of a word's help: examples, a line each as it is typed."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


class Group(TyperGroup):
    """The words of ``trawl``, those of other packages found when they are asked for."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read what was typed before a word; one line where that can't be used."""
        with misuse_told():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Do what a word does; one line where what was typed after it can't be used."""
        with misuse_told(ctx):
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all words, those of other packages last; these are not loaded."""
        return [*self.commands, *(name for name in plugin_names(PLUGINS) if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The word of this name; None where there is none.

        Raises:
            SettingsError: Another package has it, and it can't be loaded.
        """
        own = self.commands.get(cmd_name)
        if own is not None or cmd_name not in plugin_names(PLUGINS):
            return own
        found = load_plugin(PLUGINS, cmd_name)
        command = get_command(found) if hasattr(found, "registered_commands") else found
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the words below the titles of their groups."""
        rows: dict[str, list[tuple[str, str]]] = {}
        width = max(len(name) for name in self.list_commands(ctx))
        for name in self.list_commands(ctx):
            command = self.commands.get(name)
            title = OTHERS if command is None else _panel(command)
            words = "" if command is None else _first_words(command.help or "")
            rows.setdefault(title, []).append((name.ljust(width), words))
        for title in sorted(rows, key=_TITLES.index):
            with formatter.section(title):
                formatter.write_dl(rows[title])


def _panel(command: Any) -> str:
    panel: Any = getattr(command, "rich_help_panel", "")
    return panel if isinstance(panel, str) else COMMANDS


def _first_words(text: str) -> str:
    """The first sentence, up to a colon if it has one."""
    return re.split(r"[:;.] |[:.]$", " ".join(text.split()), maxsplit=1)[0]
