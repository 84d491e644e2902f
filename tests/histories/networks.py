"""Separate networks for the workers of a history, as Linux network namespaces.

Each namespace has a link to the site and a link to the store. The site and the store are on this machine's side of two
bridges. Disconnecting a link loses the data in transit, which a proxy can't do. The kernels at both ends do not notice
it, and retransmit for minutes. Only links to the store are disconnected, because a request that reaches the site late
would make the next request look early.

The addresses are reserved for benchmark tests (RFC 2544, 198.18.0.0/15), so that no real network is hidden. One process
at a time uses them, and a second process waits. If a process is killed, the next process removes its networks.
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
"""Prefixes of the addresses in the two networks."""

GATE = "0.1"
"""Suffix of this machine's address in each network."""

OURS = re.compile(r"tw[0-9a-f]{6}(-\d+|[ab])")
"""Names of namespaces and bridges."""


class Networks:
    """Two bridges, and a namespace with a link to both for each worker that needs one.

    Attributes:
        store: This machine's address at which workers reach the store.
        hosts: Addresses of this machine for the hosts of a site.
    """

    def __init__(self, hosts: int) -> None:
        self.store = f"{STORE}.{GATE}"
        self.hosts = [f"{SITE}.7.{number}" for number in range(1, hosts + 1)]
        self._name = f"tw{token_hex(3)}"  # names of interfaces have at most 15 bytes
        self._made: dict[int, str] = {}

    def build(self) -> None:
        """Create the bridges. All addresses of the site belong to this machine."""
        for number, (end, net) in enumerate((("a", SITE), ("b", STORE))):
            # A bridge without its own address takes the lowest address of its links whenever a link comes or goes.
            # Workers would then send to the old address for a minute, and retransmitted requests would arrive late.
            _ip("link", "add", self._name + end, "address", f"02:00:00:00:00:{number:02x}", "type", "bridge")
            _ip("addr", "add", f"{net}.{GATE}/16", "dev", self._name + end)
            _ip("link", "set", self._name + end, "up")
        _ip("route", "add", "local", f"{SITE}.7.0/24", "dev", f"{self._name}a")

    def remove(self) -> None:
        """Remove the bridges and namespaces."""
        _remove([*self._made.values()], [f"{self._name}a", f"{self._name}b"])

    def command(self, number: int) -> list[str]:
        """Return the prefix of a command that runs in a worker's network.

        The network is created if it does not exist.
        """
        if number not in self._made:
            self._made[number] = f"{self._name}-{number}"
            self._make(number, self._made[number])
        return ["ip", "netns", "exec", self._made[number]]

    def pull(self, number: int) -> None:
        """Disconnect a worker's link to the store."""
        _ip("link", "set", f"{self._name}b{number}", "down")

    def plug(self, number: int) -> None:
        """Connect a worker's link to the store again."""
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
    """Yield networks for a site with this number of hosts while the block runs."""
    # The lock lasts as long as this process, and applies to all processes that see the same interfaces.
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
    """Return why namespaces can't be created here; "" if they can."""
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
    """Remove the existing namespaces and bridges. A failed build has created only some of them."""
    for space in spaces:
        subprocess.run(["ip", "netns", "del", space], check=False)
    for bridge in bridges:
        subprocess.run(["ip", "link", "del", bridge], check=False)


def _told(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
