"""The text of ``trawl --help``: all commands in their groups.

This module does not use typer, because importing typer takes twice as long as all of ``trawl --help``. The commands and
their options are defined in :mod:`trawl.cli.app`.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap

from trawl.cli import FAILED, OK
from trawl.plugins import plugin_names

__all__ = ["COMMANDS", "EXAMPLES", "OPTIONS", "PLUGINS", "overview", "show_overview"]

PLUGINS = "trawl.commands"
"""The entry point group whose entries add commands."""

COMMANDS: dict[str, dict[str, str]] = {
    "Start": {
        "demo": "Serve a site of quotes and books on this machine to try spiders on, until Ctrl-C",
        "new": "Create a project or a spider, with a test on a virtual clock",
        "move": "Change a Scrapy project so that it runs on trawl, and list what to decide yourself",
    },
    "Crawl": {
        "crawl": "Run a spider, or several at the same time that share the limits of a site",
        "worker": "Join a job in a server and work on it until it has finished",
        "export": "Write the items of a job in a server to files, each item once, even if it is killed and run again",
        "job": "Show the state of a job",
        "top": "Show the processes of a job in a server while they work",
        "receipt": "Check the crawl of any program",
    },
    "Try out": {
        "check": "Find errors in spiders without running them",
        "list": "List the spiders in files and folders without running them",
        "simulate": "Run a spider against a simulated web in virtual time",
        "plan": "Estimate the end of a crawl and of each host before it starts, on the virtual clock",
        "fetch": "Fetch a URL as a crawl would, with robots.txt and throttling, and print the body",
        "parse": "Fetch a URL, run a spider's callback on it, and print its items and requests",
        "shell": "Look at pages interactively",
    },
    "About trawl": {
        "settings": "Show every setting with its value and the source of the value",
        "help": "Explain the words of the summary, or show the help of a command",
        "version": "Show the versions of trawl, Python and Trio, and the number of compiled modules if there are any",
        "completion": "Print a script that completes trawl's commands and options in a shell",
    },
}
"""The built-in commands by the titles of their groups, with the start of their help."""

OPTIONS: dict[str, str] = {"--version": "Show the versions and exit.", "-h, --help": "Show this message and exit."}
"""The options that go before a command, with their help."""

_BEGINNING = """\
Usage: trawl [OPTIONS] COMMAND [ARGS]...

  A polite, fast web crawler.
"""

EXAMPLES = """
  Examples:
    trawl new project books         start a project
    trawl crawl spider.py -O items.jsonl
    trawl COMMAND --help            more about each, with examples"""
"""The end of the text."""

MAX_WIDTH, MIN_WIDTH = 78, 50
"""Maximum and minimum width of the text, in columns. On narrower terminals, the text has the minimum width."""


def overview() -> str:
    """Return the text of ``trawl --help``, as wide as the terminal allows."""
    width = max(min(shutil.get_terminal_size().columns - 2, MAX_WIDTH), MIN_WIDTH)
    groups = dict(COMMANDS)
    built_in = {name for commands in COMMANDS.values() for name in commands}
    if others := [name for name in plugin_names(PLUGINS) if name not in built_in]:
        groups["From other packages"] = dict.fromkeys(others, "")
    longest = max(len(name) for commands in groups.values() for name in commands)
    texts = [_section("Options", OPTIONS, max(map(len, OPTIONS)), width)]
    texts += [_section(title, commands, longest, width) for title, commands in groups.items()]
    return "\n".join([_BEGINNING, *texts]) + EXAMPLES


def show_overview() -> int:
    """Print the overview. Returns the exit status."""
    try:
        print(overview(), flush=True)
    except BrokenPipeError:  # the reader closed the pipe, as in `trawl --help | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise, Python's flush at exit would fail
        return FAILED
    return OK


def _section(title: str, rows: dict[str, str], longest: int, width: int) -> str:
    """Return a title and its rows. The second column starts after the longest name."""
    indent = " " * (longest + 4)
    lines = [
        textwrap.fill(text, width, initial_indent=f"  {name.ljust(longest)}  ", subsequent_indent=indent)
        if text
        else f"  {name}"
        for name, text in rows.items()
    ]
    return "\n".join([f"{title}:", *lines, ""])
