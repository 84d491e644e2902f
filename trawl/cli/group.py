"""How the command shows what it can do: its words in groups, examples under each, words of other packages.

What was typed and can't be used, told in one line: which entry, and what to type to see what there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer._click.exceptions import NoArgsIsHelpError
from typer.core import TyperGroup
from typer.main import get_command

from trawl.cli import FAILED, INTERRUPTED, USAGE
from trawl.errors import TrawlError, UsageError
from trawl.plugins import load_plugin, plugin_names

__all__ = ["CRAWLING", "OTHERS", "STARTING", "TRAWL", "TRYING", "Group", "examples", "misuse_told", "sentence"]

_PLAINER = (
    (re.compile(r"^No such option: (\S+) \(Possible options: (.*)\)"), r"there is no option \1; did you mean \2?"),
    (re.compile(r"^No such option: (\S+)"), r"there is no option \1"),
    (re.compile(r"^Option '([^']*)' does not take a value\.?"), r"\1 takes no value"),
    (re.compile(r"^Got unexpected extra argument\(?s?\)? \((.*)\)"), r"nothing takes \1"),
    (re.compile(r"^Missing (?:argument|option) '([^']*)'\.?"), r"\1 is missing"),
    (re.compile(r"^Option '([^']*)' requires an argument\.?"), r"\1 needs a value after it"),
    (re.compile(r"^No such command '([^']*)'\.?"), r"there is no command \1"),
    (re.compile(r"^Invalid value for '([^']*)': Input should be a valid integer.*"), r"\1 takes a whole number"),
    (re.compile(r"^Invalid value for '([^']*)': Input should be "), r"\1 is to be "),
)

_SCRAPYS = {
    "bench": "the benchmarks are in the repository",
    "edit": "open the file that `trawl list` names",
    "genspider": "it is `trawl new spider NAME DOMAIN`",
    "runspider": "it is `trawl crawl FILE.py`",
    "startproject": "it is `trawl new project DIR`",
    "view": "it is `view()` in `trawl shell URL`",
}
"""Commands of Scrapy's that are called otherwise here."""

_LEVEL = "it is --log-level LEVEL"

_FORMAT = "the ending of the file says the format, or FILE:FORMAT does"

_RULES = "name the callback: --callback NAME"

_PRINTS = "items and requests are printed, a line each"

_SCRAPYS_OPTIONS = {
    "--cbkwargs": "it is --cb-kwargs JSON",
    "--logfile": "it is --log-file FILE",
    "--loglevel": _LEVEL,
    "--nocolour": _PRINTS,
    "--noitems": _PRINTS,
    "--nolinks": _PRINTS,
    "--nolog": "it is --log-level CRITICAL",
    "--output": "it is -o FILE",
    "--output-format": _FORMAT,
    "--overwrite-output": "it is -O FILE",
    "--pdb": "put breakpoint() where it is to stop, and add --quiet",
    "--pidfile": "the shell knows it: `trawl crawl ... & echo $! > FILE`",
    "--pipelines": "items go through the pipelines in `trawl crawl` only",
    "--profile": "it is `python -m cProfile -o FILE -m trawl crawl ...`",
    "--rules": _RULES,
    "-L": _LEVEL,
    "-c": "it is --callback NAME",
    "-d": "it is --depth N",
    "-m": "it is --meta JSON",
    "-r": _RULES,
    "-t": _FORMAT,
}
"""Options of Scrapy's that are called otherwise here, or done otherwise."""


def sentence(error: typer.TyperException, typed: str = "trawl") -> str:
    """What is wrong with what was typed, and where to read of it, in one line.

    Args:
        error: Which may know the words that it is about.
        typed: Those words, if it does not.
    """
    words = " ".join(error.format_message().split())
    for pattern, plainer in _PLAINER:
        said, count = pattern.subn(plainer, words, count=1)
        if count:
            words = re.sub(r"(?<=\S) Did you mean ", "; did you mean ", said)
            break
    if (found := re.match(r"there is no command (\w+)", words)) and found[1] in _SCRAPYS:
        words = f"{found[0]}: {_SCRAPYS[found[1]]}"
    context = getattr(error, "ctx", None)
    if (found := re.match(r"there is no option ([\w-]+)", words)) and (advice := _in_place_of(found[1], context)):
        words = f"{found[0]}: {advice}"
    path = getattr(context, "command_path", typed)
    return f"{words.rstrip('.')} ('{path} --help' shows what there is)"


def _in_place_of(option: str, context: Any) -> str:
    """What is typed in place of one of Scrapy's options; "" where the command has nothing like it."""
    advice = _SCRAPYS_OPTIONS.get(option, "")
    named = re.search(r"(?<!\S)(--[a-z-]+|-[oO])\b", advice)
    known = [name for parameter in getattr(getattr(context, "command", None), "params", ()) for name in parameter.opts]
    return "" if named and known and named[0] not in known else advice


@contextmanager
def misuse_told(context: Any = None) -> Iterator[None]:
    """End the command with one line on standard error where what was typed can't be used.

    Args:
        context: Of typer's; knows which words were typed.

    Raises:
        Exit: Of typer's: with the status of wrong usage.
    """
    try:
        yield
    except NoArgsIsHelpError:
        raise
    except KeyboardInterrupt:  # while something is imported, say; typer would say "Aborted!" and status 1
        raise typer.Exit(INTERRUPTED) from None
    except typer.TyperException as error:
        typer.echo(f"trawl: {_printable(sentence(error, _typed(context)))}", err=True)
        raise typer.Exit(error.exit_code) from error
    except TrawlError as error:  # another package's word that can't be loaded
        typer.echo(f"trawl: {_printable(str(error))}", err=True)
        raise typer.Exit(USAGE if isinstance(error, UsageError) else FAILED) from error


def _typed(context: Any) -> str:
    return "trawl" if context is None else f"{context.command_path} {context.invoked_subcommand or ''}".strip()


def _printable(text: str) -> str:
    from trawl.observe import printable  # noqa: PLC0415  # --help does not wait for it

    return printable(text)


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
