"""A link, as a value."""

from __future__ import annotations

import attrs

__all__ = ["Link"]


# Not frozen: a rule's process_links, as many spiders have it, writes `link.url = ...` on the links it is given.
@attrs.define(unsafe_hash=True)
class Link:
    """A link found on a page; ``response.follow`` takes it. Two are equal when all of their parts are.

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
