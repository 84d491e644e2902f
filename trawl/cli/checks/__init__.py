"""What can be said of a spider before it crawls."""

from trawl.cli.checks.every import check_spider, check_work
from trawl.cli.checks.finding import Finding
from trawl.cli.checks.starts import names_no_start

__all__ = ["Finding", "check_spider", "check_work", "names_no_start"]
