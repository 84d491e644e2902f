"""Where Scrapy's users look for link extractors; those of trawl's own are in :mod:`trawl.links`."""

from trawl import links
from trawl.links import IGNORED_EXTENSIONS, Link

__all__ = ["IGNORED_EXTENSIONS", "Link", "LinkExtractor", "LxmlLinkExtractor"]


class LinkExtractor(links.LinkExtractor):
    """Finds the links that Scrapy's link extractor finds.

    Of several links to a URL only the first one's text counts for ``restrict_text``. A domain is compared with host and
    port as the URL has them. ``srcset`` is one address.
    """

    _is_scrapys = True


LxmlLinkExtractor = LinkExtractor
"""Scrapy's other name for it."""
