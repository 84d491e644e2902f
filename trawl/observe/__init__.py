"""Statistics, progress and the summary of a crawl, and their wording for people."""

from trawl.observe.progress import (
    ERROR_KEYS,
    FAILINGS,
    LogLevel,
    ObserveSettings,
    Progress,
    Speed,
    came_to_nothing,
    failings,
    progress_line,
    speed_between,
    summary_rows,
    waiting_words,
)
from trawl.observe.stats import Stat, Stats
from trawl.observe.text import clipped, counted, duration_words, number_words, printable, rate_words, times_words

__all__ = [
    "ERROR_KEYS",
    "FAILINGS",
    "LogLevel",
    "ObserveSettings",
    "Speed",
    "Progress",
    "Stat",
    "Stats",
    "came_to_nothing",
    "clipped",
    "counted",
    "duration_words",
    "failings",
    "number_words",
    "speed_between",
    "printable",
    "progress_line",
    "rate_words",
    "summary_rows",
    "times_words",
    "waiting_words",
]
