"""Chromium and its DevTools protocol: finds the program, starts it without a network, and talks to it over a pipe.

Chromium reads commands from descriptor 3 and writes replies and events to descriptor 4, as JSON messages that end in
NUL (``--remote-debugging-pipe``). No other program of the machine can reach this pipe, and Chromium ends when the pipe
is closed, even if Python was killed. One task writes, so that a cancelled caller never leaves half a message::

    call(session, method, params) ──► queue ──► writer ──► Chromium ──► reader ──┬─► the caller, by the command's number
                                                                                └─► the handler of the event's session

A command that creates something has a function ``undo``, which gets the reply if the caller was cancelled, so that a
cancelled ``Target.createTarget`` leaves no tab.

**No network**. Chromium runs in a network namespace of its own, unless the kernel forbids it or Chromium can't start in
it. In any case, all its traffic goes to a proxy that does not exist, and WebRTC may not bypass it. So each request is
either answered by trawl or fails (:mod:`trawl.browser.page`).
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import msgspec
import trio

from trawl.blocking import Blocking
from trawl.errors import BrowserEnded, UsageError

__all__ = ["Chromium", "CommandFailed", "Connection", "Handler", "Reply", "find_chromium", "open_chromium"]

logger: logging.Logger = logging.getLogger("trawl.browser")

INSTALL = "`apt install chromium-headless-shell` or `npx @puppeteer/browsers install chrome-headless-shell`"
"""How to get a Chromium, for messages."""

NAMES = ("chrome-headless-shell", "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Names of the program on the path. The headless shells come first, because a page costs them half the CPU time."""

MAX_UNSENT_BYTES = 4 << 20
"""Bytes of commands that wait for the pipe. Further callers wait."""

MAX_MESSAGE_BYTES = 256 << 20
"""Maximum size of a message from Chromium. A longer message ends the connection."""

CLOSE_GRACE = 3.0
"""Maximum seconds to wait for the end of the killed process and for the removal of its profile."""

PROFILE = "trawl-browser-"

_SWITCHES = """
    headless=new disable-gpu disable-dev-shm-usage disable-background-networking disable-component-update disable-sync
    no-first-run no-default-browser-check mute-audio disable-extensions disable-default-apps disable-breakpad
    disable-crash-reporter disable-client-side-phishing-detection disable-domain-reliability disable-hang-monitor
    disable-prompt-on-repost metrics-recording-only no-pings password-store=basic use-mock-keychain
    disable-field-trial-config hide-scrollbars force-color-profile=srgb disable-ipc-flooding-protection
    disable-background-timer-throttling disable-backgrounding-occluded-windows disable-renderer-backgrounding
"""
_DISABLED_FEATURES = """
    Translate OptimizationHints MediaRouter DialMediaRouteProvider InterestFeedContentSuggestions
    AutofillServerCommunication PrivacySandboxSettings4 HttpsUpgrades HttpsFirstBalancedModeAutoEnable PaintHolding
    CertificateTransparencyComponentUpdater
"""

FLAGS = (*[f"--{name}" for name in _SWITCHES.split()], f"--disable-features={','.join(_DISABLED_FEATURES.split())}")
"""Flags for a Chromium that renders pages and does nothing by itself."""

NO_NETWORK = (
    "--proxy-server=http://127.0.0.1:1",
    "--proxy-bypass-list=<-loopback>",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",  # for the headless shell
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",  # for Chromium
    "--dns-prefetch-disable",
)
"""Flags that leave Chromium no network. Requests that are not intercepted fail."""


class CommandFailed(RuntimeError):
    """Chromium refused a command, for example because its page is gone."""


class _Message(msgspec.Struct):
    id: int | None = None
    sessionId: str = ""
    method: str = ""
    params: dict[str, Any] = {}
    result: dict[str, Any] = {}
    error: dict[str, Any] | None = None


class _Command(msgspec.Struct, omit_defaults=True):
    id: int
    method: str
    params: Any = None
    sessionId: str = ""


Reply: TypeAlias = "dict[str, Any]"
"""The result of a command, or the parameters of an event."""

Handler = Callable[[str, Reply], None]
"""Called with the name and the parameters of each event of a session. Must not wait."""

GONE = "trawl.gone"
"""The event that each handler gets when the connection has ended."""


def _plain(value: object) -> str:
    """Return a string of a subclass, such as a header's value in a moved crawl, as msgspec accepts it."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a value of type {type(value).__name__} has no written form in JSON")


_decode_message = msgspec.json.Decoder(_Message).decode
_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def _decode(data: bytes) -> _Message:
    """Return a message, or raise ValueError if ``data`` is not a message."""
    try:
        return _decode_message(data)
    except msgspec.DecodeError:  # for example, msgspec refuses half of a surrogate pair in a string of the page
        found = json.loads(data)
        if not isinstance(found, dict) or not isinstance(found.get("id", 0), int):
            raise ValueError(f"no message: {data[:100]!r}") from None
        return _Message(**{key: value for key, value in found.items() if key in _Message.__struct_fields__})


@attrs.define(eq=False)
class _Pending:
    """A command that waits for its reply. ``task`` is None after its caller was cancelled."""

    method: str
    undo: Callable[[Reply], None] | None
    task: trio.lowlevel.Task | None
    result: Reply | Exception | None = None

    def settle(self, result: Reply | Exception) -> None:
        """Pass the reply or the error to the caller, or else a reply to ``undo``."""
        if self.task is not None:
            self.result = result
            trio.lowlevel.reschedule(self.task)
        elif self.undo is not None and not isinstance(result, Exception):
            self.undo(result)


class Connection:
    """DevTools: commands that are awaited, and events that are passed to functions.

    ``receive`` raises ``trio.EndOfChannel`` at the end. ``ended`` is None while the connection is open.
    """

    def __init__(self, send: Callable[[bytes], Awaitable[None]], receive: Callable[[], Awaitable[bytes]]) -> None:
        self.ended: BrowserEnded | None = None
        self._send = send
        self._receive = receive
        self._number = 0
        self._pending: dict[int, _Pending] = {}
        self._handlers: dict[str, Handler] = {}
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._writer = trio.lowlevel.ParkingLot()  # waits for commands
        self._callers = trio.lowlevel.ParkingLot()  # wait for room

    def handle(self, session: str, handler: Handler) -> None:
        """Pass the events of ``session`` to ``handler`` from now on."""
        self._handlers[session] = handler

    def forget(self, session: str) -> None:
        """Drop the events of ``session`` from now on."""
        self._handlers.pop(session, None)

    def post(self, session: str, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a command without waiting for its reply, unless the connection has ended. Returns its number."""
        self._number += 1
        if self.ended is None:
            data = _encode(_Command(self._number, method, params, session))
            self._unsent.append(data)
            self._unsent_bytes += len(data)
            self._writer.unpark()
        return self._number

    async def call(
        self,
        session: str,
        method: str,
        params: Mapping[str, Any] | None = None,
        undo: Callable[[Reply], None] | None = None,
    ) -> Reply:
        """Send a command and return its reply. A checkpoint. If it is cancelled, ``undo`` gets a later reply.

        Raises:
            BrowserEnded: If the connection has ended, or ends before the reply.
            CommandFailed: If Chromium refuses the command.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while self._unsent_bytes > MAX_UNSENT_BYTES and self.ended is None:
            await self._callers.park()
        if self.ended is not None:
            raise BrowserEnded(self.ended.cause)
        pending = _Pending(method, undo, trio.lowlevel.current_task())
        number = self.post(session, method, params)
        self._pending[number] = pending

        def abandon(_: object) -> trio.lowlevel.Abort:
            pending.task = None
            if undo is None:
                del self._pending[number]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abandon)
        assert pending.result is not None
        if isinstance(pending.result, Exception):
            raise pending.result
        return pending.result

    async def run(self) -> None:
        """Read and write until the carrier ends. Then waiting callers get an error, and handlers :data:`GONE`."""
        cause = "the connection to the browser has ended"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                try:
                    await self._read()
                except ValueError as error:
                    cause = f"the browser sent a message that is not DevTools: {error}"
                nursery.cancel_scope.cancel()
        finally:
            self._end(cause)

    def _end(self, cause: str) -> None:
        self.ended = BrowserEnded(cause)
        pending, self._pending = self._pending, {}
        for each in pending.values():
            each.settle(BrowserEnded(cause))
        handlers, self._handlers = self._handlers, {}
        for handler in handlers.values():
            handler(GONE, {})
        self._unsent.clear()
        self._callers.unpark_all()

    async def _read(self) -> None:
        while True:
            try:
                data = await self._receive()
            except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
                return
            message = _decode(data)
            if message.id is None:
                if (handler := self._handlers.get(message.sessionId)) is not None:
                    handler(message.method, message.params)
            elif (pending := self._pending.pop(message.id, None)) is None:  # no caller waits for this reply
                continue
            elif message.error is None:
                pending.settle(message.result)
            else:
                pending.settle(CommandFailed(f"{pending.method}: {message.error.get('message', '')}"))

    async def _write(self) -> None:
        while True:
            while not self._unsent:
                await self._writer.park()
            unsent, self._unsent = self._unsent, []
            for data in unsent:
                try:
                    await self._send(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
                self._unsent_bytes -= len(data)
            self._callers.unpark_all()


class Pipe:
    """Messages that end in NUL, over the pipes of a process."""

    def __init__(self, out: trio.abc.SendStream, into: trio.abc.ReceiveStream) -> None:
        self._out = out
        self._in = into
        self._data = bytearray()
        self._searched = 0  # number of bytes of ``_data`` without a NUL

    async def send(self, message: bytes) -> None:
        """Send one message. A checkpoint."""
        await self._out.send_all(message + b"\0")

    async def receive(self) -> bytes:
        """Return the next message, or raise ``trio.EndOfChannel`` at the end. A checkpoint."""
        while (end := self._data.find(b"\0", self._searched)) < 0:
            self._searched = len(self._data)
            if self._searched > MAX_MESSAGE_BYTES:
                raise ValueError(f"a message has more than {MAX_MESSAGE_BYTES} bytes")
            data = await self._in.receive_some(1 << 18)
            if not data:
                raise trio.EndOfChannel
            self._data += data
        message = bytes(self._data[:end])
        del self._data[: end + 1]
        self._searched = 0
        return message


class Chromium:
    """A running Chromium. ``pid`` leads a process group."""

    def __init__(self, path: str, connection: Connection, pid: int, output: bytearray) -> None:
        self.connection = connection
        self.pid = pid
        # Without the headless shell, each tab would get a window.
        self.is_hidden: bool = "headless-shell" not in Path(path).name
        self._output = output

    def last_words(self) -> str:
        """Return the last line of its error output."""
        lines = [line for line in self._output.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else "it wrote nothing"

    async def call(self, method: str, **params: Any) -> Reply:
        """Send a command to the browser itself, and return its reply. A checkpoint."""
        return await self.connection.call("", method, params)

    def memory_bytes(self) -> int:
        """Return the memory of its processes (proportional set size); 0 if the system does not report it."""
        total = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError, IndexError):
                # The group is the third field after the name, which is in parentheses and may contain anything.
                if int((folder / "stat").read_text().rpartition(")")[2].split()[2]) == self.pid:
                    rollup = (folder / "smaps_rollup").read_text()
                    total += int(rollup.partition("\nPss:")[2].split()[0]) * 1024
        return total


def find_chromium(given: str = "") -> str:
    """Return the path of a Chromium: ``given``, or one of :data:`NAMES` on the path, or Playwright's Chromium.

    Raises:
        UsageError: If no Chromium is found. The message says how to install Chromium.
    """
    if given:
        found = shutil.which(given)
        if found is None:
            raise UsageError(f"BROWSER_PATH: {given!r} is not a program that can be run")
        return found
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return found
    for each in sorted(Path.home().glob(".cache/ms-playwright/chromium*/*/*"), reverse=True):
        if each.name in ("headless_shell", "chrome", "chrome-headless-shell") and os.access(each, os.X_OK):
            return str(each)
    raise UsageError(
        f"no Chromium was found, for pages with meta browser: install one ({INSTALL}), or set BROWSER_PATH"
    )


def check_sandbox(*, has_sandbox: bool) -> None:
    """Raise UsageError if the user is root, for whom Chromium has no sandbox."""
    if has_sandbox and hasattr(os, "geteuid") and os.geteuid() == 0:
        raise UsageError(
            "Chromium has no sandbox for root, and the pages of strangers run in it: run the crawl as another user, or"
            " set BROWSER_SANDBOX to False if all pages are your own"
        )


def _new_profile() -> tuple[str, int]:
    """Make and lock the folder of a profile, and remove the profiles of killed processes.

    Other containers may share the folder but not the ids of processes, so the lock protects the profile from them.
    """
    for old in Path(tempfile.gettempdir()).glob(f"{PROFILE}*-*"):
        pid = old.name.removeprefix(PROFILE).partition("-")[0]
        if pid.isdigit() and not _is_alive(int(pid)):
            with suppress(OSError):  # the profile is locked, or another process has removed it
                _remove(str(old), _lock(str(old)))
    folder = tempfile.mkdtemp(prefix=f"{PROFILE}{os.getpid()}-")
    return folder, _lock(folder)


def _lock(folder: str) -> int:
    """Return a descriptor that locks a folder until it is closed. Raises OSError if the folder is locked."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # the process belongs to another user
        return True
    return True


# A namespace without a network is needed, because some versions of Chromium send STUN packets in spite of all flags.
_NONE_ALLOWED = "the kernel allows no network namespace"
_NAMESPACE = f"""u="unshare --net"; [ "$(id -u)" = 0 ] || u="$u --map-current-user"
$u true </dev/null >/dev/null 2>&1 || {{ echo "{_NONE_ALLOWED}" >&2; exit 1; }}
"""
_NO_NAMESPACE = "u=\n"
# The pipes move from 0 and 1, which a subprocess has, to 3 and 4, which Chromium uses.
_EXEC = 'exec $u "$@" 3<&0 4>&1 </dev/null >/dev/null'


@asynccontextmanager
async def open_chromium(
    path: str, flags: Sequence[str], *, has_sandbox: bool, blocking: Blocking, has_network: bool = False
) -> AsyncGenerator[Chromium, None]:
    """Run a Chromium with a new profile and without a network. A checkpoint.

    When the block ends for any reason, all processes of this Chromium are killed and its profile is removed. With
    ``has_network``, Chromium itself requests pages of this machine.

    Raises:
        BrowserEnded: If Chromium ends before its first reply. The message contains Chromium's last output.
        UsageError: If the sandbox is wanted and the user is root.
    """
    check_sandbox(has_sandbox=has_sandbox)
    profile, lock = await blocking.run(_new_profile)
    arguments = [*FLAGS, *(() if has_network else NO_NETWORK), *(() if has_sandbox else ["--no-sandbox"]), *flags]
    command = [path, *arguments, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
    starts = [_NO_NAMESPACE] if has_network else [_NAMESPACE, _NO_NAMESPACE]
    try:
        for start in starts:
            async with _running(path, ["/bin/sh", "-c", start + _EXEC, "sh", *command]) as chromium:
                try:
                    await chromium.call("Browser.getVersion")
                except BrowserEnded:
                    words = chromium.last_words()
                else:
                    yield chromium
                    return
            if start is _NAMESPACE and words != _NONE_ALLOWED:
                logger.warning("%s did not start in a network namespace (%s). Starting it without one.", path, words)
        raise BrowserEnded(f"{path} did not start: {words}")
    finally:
        with trio.move_on_after(CLOSE_GRACE, shield=True):
            await blocking.run_abandonable(_remove, profile, lock)


@asynccontextmanager
async def _running(path: str, command: Sequence[str]) -> AsyncGenerator[Chromium, None]:
    """Run a command that becomes a Chromium. When the block ends, all its processes are killed. A checkpoint."""
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        async with trio.open_nursery() as nursery:
            output = bytearray()
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            nursery.start_soon(_keep_last, process.stderr, output)
            pipe = Pipe(process.stdin, process.stdout)
            connection = Connection(pipe.send, pipe.receive)
            nursery.start_soon(connection.run)
            yield Chromium(path, connection, process.pid, output)
            nursery.cancel_scope.cancel()
    finally:
        with trio.move_on_after(CLOSE_GRACE, shield=True):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
                await stream.aclose()


def _remove(folder: str, lock: int) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


async def _keep_last(stream: trio.abc.ReceiveStream, output: bytearray) -> None:
    """Read the error output of Chromium, and keep its end."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while data := await stream.receive_some():
            output += data
            del output[:-4000]
