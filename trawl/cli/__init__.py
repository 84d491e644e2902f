"""The command ``trawl`` and its exit statuses.

:func:`main` imports the command's modules when it needs them. So ``trawl --help`` loads no part of a crawl, and Ctrl-C
or SIGTERM during an import ends the command in the usual way.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trawl.cli.view import CrawlWith

__all__ = ["FAILED", "INTERRUPTED", "NO_PROCESS", "OK", "UNSATISFACTORY", "USAGE", "exit_status", "main"]

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
    if reason in ("start_error", "feed_error", "memusage_exceeded", NO_PROCESS):
        return FAILED
    if reason in ("shutdown", "cancelled"):
        return INTERRUPTED
    return OK


def main(arguments: Sequence[str] | None = None, *, crawl_with: CrawlWith | None = None) -> int:
    """Run the command.

    Args:
        arguments: The command-line arguments after ``trawl``; None for the arguments of this process (``sys.argv``).
        crawl_with: Runs the crawl instead of the real engine, for tests.

    Returns:
        The exit status.
    """
    words = sys.argv[1:] if arguments is None else [*arguments]
    _open_closed_streams()
    try:
        with _heeding_sigterm():
            status = _run(arguments, words, crawl_with)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return _unwritten(error)
    return status


def _run(arguments: Sequence[str] | None, words: Sequence[str], crawl_with: CrawlWith | None) -> int:
    if words in (["--help"], ["-h"]):
        from trawl.cli.help_text import show_overview  # noqa: PLC0415

        return show_overview()
    from trawl.cli.app import main as run  # noqa: PLC0415

    return run(arguments, crawl_with=crawl_with)


def _open_closed_streams() -> None:
    """Open the null device for each closed standard stream.

    Otherwise, the next opened file would get the descriptor number of the stream, and the stream's output would go to
    that file.

    A feed to a closed standard output is still refused: see :func:`trawl.feeds.storages.open_standard_output`.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - the file stays open


def _unwritten(error: OSError) -> int:
    """Report that standard output can't be written, and keep Python from reporting it again at exit.

    Raises:
        OSError: If the cause of ``error`` is not standard output.
    """
    if error.filename is not None or error.errno not in _UNWRITTEN:
        raise error
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - the file stays open
    if error.errno != errno.EPIPE:  # after EPIPE, the reader of the pipe has read enough, so print nothing
        with suppress(OSError):
            print(f"trawl: standard output can't be written: {error.strerror}", file=sys.stderr)
    return FAILED


@contextmanager
def _heeding_sigterm() -> Iterator[None]:
    """End the process on SIGTERM, unless a crawl handles the signal.

    Without this handler, the first process of a container would ignore SIGTERM.
    """
    is_free = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not is_free or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)  # as the default action does; an exception here would break Trio's loop
