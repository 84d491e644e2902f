"""What can be said of a spider before it crawls."""

from trawl.cli.checks.every import check_spider
from trawl.cli.checks.finding import Finding

__all__ = ["Finding", "check_spider"]
