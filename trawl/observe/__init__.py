"""What a crawl tells about itself: statistics, progress, and their wording for people."""

from trawl.observe.printable import clipped, printable
from trawl.observe.settings import LogLevel, ObserveSettings
from trawl.observe.stats import Stat, Stats

__all__ = ["LogLevel", "ObserveSettings", "Stat", "Stats", "clipped", "printable"]
