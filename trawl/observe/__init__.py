"""Statistics, progress and the summary of a crawl, and their wording for people."""

from trawl.observe.progress import (
    ERROR_KEYS,
    LogLevel,
    ObserveSettings,
    Progress,
    Speed,
    nothing_sent,
    progress_line,
    speed_between,
    summary_rows,
    waiting_words,
)
from trawl.observe.stats import Stat, Stats
from trawl.observe.text import clipped, counted, duration_words, number_words, printable, rate_words, times_words

__all__ = [
    "ERROR_KEYS",
    "LogLevel",
    "ObserveSettings",
    "Speed",
    "Progress",
    "Stat",
    "Stats",
    "clipped",
    "counted",
    "duration_words",
    "nothing_sent",
    "number_words",
    "speed_between",
    "printable",
    "progress_line",
    "rate_words",
    "summary_rows",
    "times_words",
    "waiting_words",
]
