"""The help and usage errors of the command: commands in titled groups, examples, one line for an error.

Plain typer truncates descriptions, loads no commands of other packages, and prints an error in four lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from trawl.cli import FAILED, INTERRUPTED, PLUGINS, overview
from trawl.errors import TrawlError
from trawl.plugins import load_plugin, plugin_names

__all__ = ["Group", "examples"]

_LEVEL = "use --log-level LEVEL"
_VERBOSE = "`trawl version` shows the version, `trawl crawl SPIDER --log-level DEBUG` more messages"
_FORMAT = "the file's extension gives the format, or FILE:FORMAT does"
_RULES = "name the callback with --callback NAME"
_PRINTS = "items and requests are printed one per line"

_TyperException: Any = getattr(typer, "TyperException", typer.BadParameter.__mro__[2])
"""The base class of typer's usage errors, which has no public name before typer 0.28."""

_SCRAPY = {
    "bench": "the benchmarks are in the repository",
    "edit": "open the file that `trawl list` names",
    "genspider": "use `trawl new spider NAME DOMAIN`",
    "runspider": "use `trawl crawl FILE.py`",
    "startproject": "use `trawl new project DIR`",
    "view": "use `view()` in `trawl shell URL`",
    "--cbkwargs": "use --cb-kwargs JSON",
    "--logfile": "use --log-file FILE",
    "--loglevel": _LEVEL,
    "--nocolour": _PRINTS,
    "--noitems": _PRINTS,
    "--nolinks": _PRINTS,
    "--nolog": "use --log-level CRITICAL",
    "--output": "use -o FILE",
    "--output-format": _FORMAT,
    "--overwrite-output": "use -O FILE",
    "--pdb": "put breakpoint() where it should stop, and add --quiet",
    "--pidfile": "the shell knows it: `trawl crawl ... & echo $! > FILE`",
    "--pipelines": "items go through the pipelines in `trawl crawl` only",
    "--profile": "use `python -m cProfile -o FILE -m trawl crawl ...`",
    "--rules": _RULES,
    "--debug": _LEVEL,
    "--verbose": _VERBOSE,
    "-L": _LEVEL,
    "-V": _VERBOSE,
    "-c": "use --callback NAME",
    "-d": "use --depth N",
    "-m": "use --meta JSON",
    "-r": _RULES,
    "-t": _FORMAT,
    "-v": _VERBOSE,
}
"""Scrapy's commands and options that trawl does not have, with their replacements."""


def examples(*lines: str) -> str:
    """Return the end of a command's help: examples as typed, one per line."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def _sentence(error: Any, typed: str) -> str:
    """Return one line with the error and a hint to ``--help``. ``typed`` is the command if the error has no context."""
    context = getattr(error, "ctx", None)
    words = " ".join(error.format_message().split()).rstrip(".")
    words = re.sub(r"(Input should be a valid integer).*", r"\1", words)
    if (found := re.match(r"No such (?:option: |command ')([\w-]+)'?", words)) and (
        advice := _advice(found[1], context)
    ):
        words = f"{found[0]}; {advice}"
    if found := re.fullmatch(r"No such command '(\S+\.py)'", words):
        words = f"{words}; use `trawl crawl {found[1]}`"
    return f"{words} (see '{getattr(context, 'command_path', typed)} --help')"


def _advice(name: str, context: Any) -> str:
    """Return the replacement of Scrapy's ``name``; "" if this command has none."""
    advice = _SCRAPY.get(name, "")
    named = re.search(r"(?<!\S)(--[a-z-]+|-[oO])\b", advice)
    command = getattr(context, "command", None)
    parameters = (
        () if isinstance(command, Group) else getattr(command, "params", ())
    )  # without a command, the option may belong to any command
    known = [name for parameter in parameters for name in parameter.opts]
    return "" if named and known and named[0] not in known else advice


@contextmanager
def _errors_in_one_line(context: Any = None) -> Iterator[None]:
    """End the command with one line on standard error after a usage error or an error raised by trawl."""
    try:
        yield
    except KeyboardInterrupt:  # for example during an import; typer would print "Aborted!" and exit with 1
        raise typer.Exit(INTERRUPTED) from None
    except _TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # this error prints the help; typer does not export its class
            raise
        typed = "trawl" if context is None else f"{context.command_path} {context.invoked_subcommand or ''}".strip()
        from trawl.observe import printable  # noqa: PLC0415  # not imported for --help

        typer.echo(f"trawl: {printable(_sentence(error, typed))}", err=True)
        raise typer.Exit(error.exit_code) from error
    except SystemExit as error:  # raised by user code, because typer itself raises Exit
        from trawl.tracebacks import user_place  # noqa: PLC0415

        typer.echo(f"trawl: {user_place(error) or 'user code'}: exit() was called: {error!r}", err=True)
        raise typer.Exit(FAILED) from error
    except TrawlError as error:
        from trawl.cli.view import print_error, stderr_console  # noqa: PLC0415

        raise typer.Exit(print_error(error, stderr_console())) from error


class Group(TyperGroup):
    """The commands of ``trawl``. Commands of other packages are loaded when they are called."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse the options before the command's name."""
        with _errors_in_one_line():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _errors_in_one_line(ctx):
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands. Commands of other packages come last."""
        return [*self.commands, *(name for name in plugin_names(PLUGINS) if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name, or None."""
        own = self.commands.get(cmd_name)
        if own is not None or cmd_name not in plugin_names(PLUGINS):
            return own
        found = load_plugin(PLUGINS, cmd_name)
        command = get_command(found) if hasattr(found, "registered_commands") else found
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the text of ``trawl --help``."""
        formatter.write(overview())
