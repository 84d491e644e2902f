"""The command ``trawl`` and its exit statuses.

:func:`main` imports the command's modules when it needs them, so that Ctrl-C or SIGTERM during an import ends the
command in the usual way. The text of ``trawl --help`` is here, because importing typer takes twice as long.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from trawl.plugins import plugin_names

if TYPE_CHECKING:
    from trawl.cli.view import CrawlWith

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "NO_PROCESS",
    "OK",
    "UNSATISFACTORY",
    "USAGE",
    "exit_status",
    "main",
    "COMMANDS",
    "EXAMPLES",
    "OPTIONS",
    "PLUGINS",
    "overview",
    "show_overview",
]

OK = 0
"""The crawl ended by itself."""

FAILED = 1
"""The crawl failed or could not start: the spider could not be loaded, or ``start()`` or a feed failed.

Also the status after the crawl exceeded its memory limit, so that a supervisor restarts it.
"""

USAGE = 2
"""The command line or a setting is wrong, and nothing was started."""

UNSATISFACTORY = 3
"""The crawl ended by itself, but had a failure that ``--fail-on`` names."""

INTERRUPTED = 130
"""The crawl was stopped by Ctrl-C: 128 plus the number of SIGINT, as in shells."""

NO_PROCESS = "no_process"
"""Finish reason of a crawl with ``--processes`` whose processes have all ended before the job was finished."""

_UNWRITTEN = frozenset({errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.EPIPE})


def exit_status(reason: str) -> int:
    """Return the exit status for the reason why a crawl ended."""
    if reason in ("start_error", "feed_error", "memusage_exceeded", "browser_failed", NO_PROCESS):
        return FAILED
    if reason in ("shutdown", "cancelled"):
        return INTERRUPTED
    return OK


def main(arguments: Sequence[str] | None = None, *, crawl_with: CrawlWith | None = None) -> int:
    """Run the command, with the arguments after ``trawl``; None for the arguments of this process (``sys.argv``).

    ``crawl_with`` runs the crawl instead of the real engine, for tests. Returns the exit status.
    """
    words = sys.argv[1:] if arguments is None else [*arguments]
    _open_closed_streams()
    try:
        with _heeding_sigterm():
            if words in (["--help"], ["-h"]):
                status = show_overview()
            else:
                from trawl.cli.app import main as run  # noqa: PLC0415

                status = run(arguments, crawl_with=crawl_with)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return _unwritten(error)
    return status


def _open_closed_streams() -> None:
    """Open the null device for each closed standard stream, whose number the next opened file would get otherwise."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - the file stays open


def _unwritten(error: OSError) -> int:
    """Report that standard output can't be written, and keep Python from reporting it again at exit."""
    if error.filename is not None or error.errno not in _UNWRITTEN:
        raise error
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - the file stays open
    if error.errno != errno.EPIPE:  # after EPIPE, the reader of the pipe has read enough, so print nothing
        with suppress(OSError):
            print(f"trawl: standard output can't be written: {error.strerror}", file=sys.stderr)
    return FAILED


@contextmanager
def _heeding_sigterm() -> Iterator[None]:
    """End the process on SIGTERM, unless a crawl handles the signal. A container's first process would ignore it."""
    is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not is_free or threading.current_thread() is not threading.main_thread():
        yield
        return
    # As the default action does. An exception here would break Trio's loop.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
        "panel": "Show and steer a job in a browser, whichever processes work on it",
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
    print(overview(), flush=True)
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
