"""Link extractors where Scrapy's users look for them; trawl's own are in :mod:`trawl.links`."""

from urllib.parse import urljoin

from w3lib.url import safe_url_string

from trawl import links
from trawl.http import Response
from trawl.links import IGNORED_EXTENSIONS, Link

__all__ = ["IGNORED_EXTENSIONS", "Link", "LinkExtractor", "LxmlLinkExtractor"]


class LinkExtractor(links.LinkExtractor):
    """Finds the links that Scrapy's link extractor finds.

    Of several links to a URL only the first one's text counts for ``restrict_text``. A domain is compared with host and
    port as the URL has them. ``srcset`` is one address. Patterns see URLs, and links have them, as w3lib writes them;
    requests for them are in WHATWG normal form.
    """

    _is_scrapys = True

    def _url_of(self, address: str, base: str, response: Response) -> str | None:
        """Return the URL that an address on the page makes; None if it makes none."""
        try:
            value = urljoin(base, address)
            given = value if self._process_value is None else self._process_value(value)
            return None if given is None else urljoin(response.url, safe_url_string(given, response.encoding))
        except ValueError:
            return None


LxmlLinkExtractor = LinkExtractor
"""Scrapy's other name for it."""
