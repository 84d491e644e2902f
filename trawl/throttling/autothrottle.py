"""AutoThrottle: a host's delay follows its latency (H01-H12).

Theory of operation. A server that answers in ``latency`` seconds and is to have N requests at once is asked every
``latency / N`` seconds: that is the *target delay*. After each response the delay becomes the mean of itself and the
target, or the target where that is larger, within the bounds that the user set. Only a healthy page may lower it: an
error page is often quicker than a real one, and following it would speed up a crawl that hurts its server. So only a
response of status 200 that is no trigger counts as healthy; refusals, errors and cached pages never speed anything up
(H05, H15).

Starting points (target concurrency, longest delay, first delay): polite 1.0, 10 s, 2.0 s; a server that cooperates
4.0, 30 s, 1.0 s; many domains 2.0, 60 s, 1.0 s.
"""

from __future__ import annotations

import attrs

__all__ = ["AutoThrottle"]


@attrs.frozen(kw_only=True)
class AutoThrottle:
    """How delays follow latencies.

    Attributes:
        start_delay: The delay before the first response, in seconds.
        min_delay: The least delay, in seconds.
        max_delay: The longest delay, in seconds; not under the least.
        target_concurrency: Requests to one host wanted in flight on average; above 0. A target, not a cap.

    Raises:
        ValueError: The bounds cross (H06), or the target is not above 0.
    """

    start_delay: float = 5.0
    min_delay: float = 0.0
    max_delay: float = 60.0
    target_concurrency: float = attrs.field(default=1.0, validator=attrs.validators.gt(0))

    def __attrs_post_init__(self) -> None:
        if self.min_delay > self.max_delay:
            raise ValueError(f"min_delay ({self.min_delay:g} s) is above max_delay ({self.max_delay:g} s)")

    @property
    def first_delay(self) -> float:
        """The delay that a host starts with, in seconds (H02)."""
        return min(max(self.min_delay, self.start_delay), self.max_delay)

    def target_delay(self, latency: float) -> float:
        """The delay that ``latency`` (seconds) asks for (H03)."""
        return latency / self.target_concurrency

    def adjusted(self, delay: float, latency: float, *, is_healthy: bool) -> float:
        """The delay after a response (H04-H06).

        Args:
            delay: The delay before it, in seconds.
            latency: From the start of connecting to the headers, in seconds.
            is_healthy: Whether it may lower the delay.
        """
        target = self.target_delay(latency)
        wanted = min(max(target, (delay + target) / 2.0, self.min_delay), self.max_delay)
        return wanted if is_healthy or wanted > delay else delay
