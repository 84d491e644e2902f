"""Links found on a page."""

from trawl.links.link import Link

__all__ = ["Link"]
