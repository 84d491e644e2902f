"""What a crawl tells about itself: statistics, progress, and their wording for people."""

from trawl.observe.stats import Stat, Stats

__all__ = ["Stat", "Stats"]
