"""A link, as a value."""

from __future__ import annotations

import attrs

__all__ = ["Link"]


@attrs.frozen
class Link:
    """A link found on a page; ``response.follow`` takes it.

    Attributes:
        url: Where it leads, absolute.
        text: The words inside it.
        fragment: What follows the ``#``, if it was taken off the URL.
        nofollow: Whether the page asks robots not to follow it (``rel="nofollow"``).
    """

    url: str
    text: str = ""
    fragment: str = ""
    nofollow: bool = False
