"""Links found on a page, and what finds them."""

from trawl.links.extensions import IGNORED_EXTENSIONS
from trawl.links.extractor import LinkExtractor
from trawl.links.link import Link

__all__ = ["IGNORED_EXTENSIONS", "Link", "LinkExtractor"]
