"""What can be said of a spider before it crawls."""

from trawl.cli.checks.attributes import names_no_start
from trawl.cli.checks.every import check_spider, check_work
from trawl.cli.checks.source import CheckMessage

__all__ = ["CheckMessage", "check_spider", "check_work", "names_no_start"]
