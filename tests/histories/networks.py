"""Networks of their own for the workers of a history: namespaces of Linux.

Each has a cable to the site and one to the store. The site and the store are on this machine's side of two bridges. A
cable that is pulled out loses what is on it, which no proxy does: the kernels at both ends know nothing of it, and send
again what was not acknowledged, for minutes. Only the store's cables are pulled: a request that is late on its way to
the site would look early there.

The addresses are those for tests of devices (RFC 2544, 198.18.0.0/15), so that no real network is hidden. One process
at a time has them: a second waits. What a killed process left is removed by the next.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from secrets import token_hex

__all__ = ["Networks", "networks", "why_not"]

SITE, STORE = "198.18", "198.19"
"""What the addresses of two networks begin with."""

GATE = "0.1"
"""What this machine's address in each ends with."""

OURS = re.compile(r"tw[0-9a-f]{6}(-\d+|[ab])")
"""A namespace of a worker, or a bridge."""


class Networks:
    """Two bridges, and a namespace for each worker that asks for one, with a cable to both.

    Attributes:
        store: This machine's address for the workers' way to the store.
        hosts: Addresses of this machine for the hosts of a site.
    """

    def __init__(self, hosts: int) -> None:
        self.store = f"{STORE}.{GATE}"
        self.hosts = [f"{SITE}.7.{number}" for number in range(1, hosts + 1)]
        self._name = f"tw{token_hex(3)}"  # of an interface: at most 15 bytes
        self._made: dict[int, str] = {}

    def build(self) -> None:
        """Make the bridges; any address of the site's is this machine's."""
        for number, (end, net) in enumerate((("a", SITE), ("b", STORE))):
            # One without an address of its own takes the least of its cables' whenever one comes or goes. Then workers
            # send to the one that it had before, for a minute, and what is sent again arrives that late: early.
            _ip("link", "add", self._name + end, "address", f"02:00:00:00:00:{number:02x}", "type", "bridge")
            _ip("addr", "add", f"{net}.{GATE}/16", "dev", self._name + end)
            _ip("link", "set", self._name + end, "up")
        _ip("route", "add", "local", f"{SITE}.7.0/24", "dev", f"{self._name}a")

    def remove(self) -> None:
        """Remove all of it."""
        _remove([*self._made.values()], [f"{self._name}a", f"{self._name}b"])

    def command(self, number: int) -> list[str]:
        """Return what runs a command in the network of a worker, which is made if it is not there."""
        if number not in self._made:
            self._made[number] = f"{self._name}-{number}"
            self._make(number, self._made[number])
        return ["ip", "netns", "exec", self._made[number]]

    def pull(self, number: int) -> None:
        """Pull out a worker's cable to the store."""
        _ip("link", "set", f"{self._name}b{number}", "down")

    def plug(self, number: int) -> None:
        """Put it in again."""
        _ip("link", "set", f"{self._name}b{number}", "up")

    def _make(self, number: int, space: str) -> None:
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")
        for end, net in (("a", SITE), ("b", STORE)):
            ours, theirs = f"{self._name}{end}{number}", f"eth-{end}"
            _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", space)
            _ip("link", "set", ours, "master", self._name + end, "up")
            _ip("-n", space, "addr", "add", f"{net}.1.{number}/16", "dev", theirs)
            _ip("-n", space, "link", "set", theirs, "up")


@contextmanager
def networks(hosts: int) -> Iterator[Networks]:
    """Networks for a site of so many hosts, until the block ends."""
    # The lock lasts as long as this process, and holds for all that see the same interfaces.
    with open("/proc/self/ns/net") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_leftovers()
        made = Networks(hosts)
        try:
            made.build()
            yield made
        finally:
            made.remove()


def why_not() -> str:
    """Return why there can be no namespaces here; "": there can."""
    if shutil.which("ip") is None:
        return "network namespaces need the command ip (iproute2)"
    probe = f"tw{token_hex(3)}"
    tried = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"this user may not make network namespaces: {tried.stderr.strip()}"
    _ip("netns", "del", probe)
    return ""


def _remove_leftovers() -> None:
    spaces = [line.split()[0] for line in _told("netns", "list").splitlines() if line]
    bridges = [link["ifname"] for link in json.loads(_told("-j", "link", "show", "type", "bridge") or "[]") if link]
    _remove(filter(OURS.fullmatch, spaces), filter(OURS.fullmatch, bridges))


def _remove(spaces: Iterable[str], bridges: Iterable[str]) -> None:
    """Remove what is there of it: a build that failed has made a part."""
    for space in spaces:
        subprocess.run(["ip", "netns", "del", space], check=False)
    for bridge in bridges:
        subprocess.run(["ip", "link", "del", bridge], check=False)


def _told(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
