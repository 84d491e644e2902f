"""What an interval is multiplied by: one draw a send, from a stream that belongs to the scope.

A stream is derived from the run's seed and the scope's id, so what one scope draws does not depend on what others do.
It is SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): its state is one integer,
where a ``random.Random`` would cost 2.5 kB for each of 50,000 hosts.
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["Stream", "factor", "lengthening"]

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


class Stream:
    """Draws of one scope, the same for the same seed and id in every process.

    Args:
        seed: The run's seed.
        id: The scope.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int | str, id: str) -> None:
        self._state = int.from_bytes(blake2b(f"{seed}:{id}".encode(), digest_size=8).digest(), "little")

    def draw(self) -> float:
        """The next number in [0.0, 1.0)."""
        self._state = z = (self._state + _GAMMA) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53


def lengthening(jitter: tuple[float, float]) -> tuple[float, float]:
    """The part of a jitter that makes intervals longer: what a server asks for is never drawn shorter (D12)."""
    low, high = jitter
    return max(1.0, low), max(1.0, high)


def factor(jitter: tuple[float, float], drawn: float) -> float:
    """What an interval is multiplied by when ``drawn``, in [0.0, 1.0), was drawn for it."""
    low, high = jitter
    return low + (high - low) * drawn
