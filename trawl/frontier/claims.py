"""Which fingerprints were seen, as far as memory knows: what was claimed a short while ago, and what is not stored yet.

A claim lives here until its request is stored, and is stored in the same transaction. Beside those, the fingerprints of
last use are remembered in two generations: when the younger is full it takes the older one's place. So a crawl of
common size never asks its database, and a large one asks it for what it has not met for a while.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Claims"]


class Claims:
    """What memory knows of the seen set.

    Args:
        known: All fingerprints that are stored, or None where they are too many to remember.
        count: How many are stored.
        generation: How many a generation holds.

    Attributes:
        count: Fingerprints ever claimed, those that are stored included.
    """

    __slots__ = ("_claimed", "_generation", "_is_complete", "_old", "_young", "count")

    def __init__(self, known: Iterable[bytes] | None, count: int, generation: int) -> None:
        self._claimed: set[bytes] = set()
        self._young: set[bytes] = set()
        self._old: set[bytes] = set(known or ())
        self._is_complete = known is not None
        self._generation = generation
        self.count: int = count

    def claim(self, fingerprint: bytes) -> bool | None:
        """Claim it. True: it was new; False: it was not; None: the database knows, tell :meth:`settle` its answer."""
        if fingerprint in self._claimed or fingerprint in self._young:
            return False
        if fingerprint in self._old:
            self._remember(fingerprint)
            return False
        self._claimed.add(fingerprint)
        self.count += 1
        return True if self._is_complete else None

    def settle(self, fingerprint: bytes, *, was_stored: bool) -> None:
        """What the database says of a claim that memory could not decide."""
        if was_stored:
            self.withdraw(fingerprint)
            self._remember(fingerprint)

    def withdraw(self, fingerprint: bytes) -> None:
        """Forget a claim whose request was not stored; one that was stays."""
        if fingerprint in self._claimed:
            self._claimed.remove(fingerprint)
            self.count -= 1

    def stored(self, fingerprint: bytes) -> None:
        """Its request is stored, and the claim with it."""
        self._claimed.discard(fingerprint)
        self._remember(fingerprint)

    def _remember(self, fingerprint: bytes) -> None:
        if len(self._young) >= self._generation:
            self._is_complete &= not self._old
            self._old, self._young = self._young, set()
        self._young.add(fingerprint)
