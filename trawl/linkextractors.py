"""Link extractors at Scrapy's import path. trawl's own extractor is in :mod:`trawl.links`."""

from urllib.parse import urljoin

from w3lib.url import safe_url_string

from trawl import links
from trawl.http import Response
from trawl.links import IGNORED_EXTENSIONS, Link

__all__ = ["IGNORED_EXTENSIONS", "Link", "LinkExtractor", "LxmlLinkExtractor"]


class LinkExtractor(links.LinkExtractor):
    """Finds the same links as Scrapy's link extractor.

    If several links have the same URL, ``restrict_text`` only checks the text of the first link. A domain is compared
    with the host and port in the URL. ``srcset`` is treated as one address. Patterns are compared with URLs in w3lib's
    form, and links contain URLs in this form. Requests for these links have the WHATWG normal form.
    """

    _is_scrapys = True

    def _url_of(self, address: str, base: str, response: Response) -> str | None:
        """Return the URL of an address on the page; None if it is not a valid URL."""
        try:
            value = urljoin(base, address)
            given = value if self._process_value is None else self._process_value(value)
            return None if given is None else urljoin(response.url, safe_url_string(given, response.encoding))
        except ValueError:
            return None


LxmlLinkExtractor = LinkExtractor
"""Scrapy's other name for :class:`LinkExtractor`."""
