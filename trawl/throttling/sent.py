"""What the throttle needs to know of a request that was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trawl.http import Request
    from trawl.throttling.explain import Reason
    from trawl.throttling.scopes import Charges

__all__ = ["Sent"]


class Sent(Protocol):
    """What the throttle needs to know of a request that was sent (the scheduler's entry has it)."""

    @property
    def request(self) -> Request:
        """The request as it was pending."""
        ...

    @property
    def scopes(self) -> Charges:
        """What it is charged to."""
        ...

    @property
    def steps(self) -> Sequence[int]:
        """The step of each scope when it was granted, in the order of ``scopes``; empty if it was not."""
        ...

    @property
    def slots(self) -> Sequence[int]:
        """The slot it has in each scope, in the order of ``scopes``; empty if it has none."""
        ...

    @property
    def granted_at(self) -> float:
        """When it was granted."""
        ...

    @property
    def left_by(self) -> Reason | None:
        """Why it was left though its scopes were open, before it was granted; None: it was not."""
        ...

    @property
    def sent_at(self) -> float | None:
        """When it went to the wire."""
        ...

    @property
    def is_exempt(self) -> bool:
        """Whether it passed its scopes by (``dont_throttle``)."""
        ...
