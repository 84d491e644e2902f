"""What a crawl tells about itself: statistics, progress, and their wording for people."""

from trawl.observe.settings import LogLevel, ObserveSettings
from trawl.observe.stats import Stat, Stats
from trawl.observe.summary import (
    ERROR_KEYS,
    Pace,
    Progress,
    nothing_sent,
    pace,
    progress_line,
    summary_rows,
    waiting_words,
)
from trawl.observe.text import clipped, counted, duration_words, number_words, printable, rate_words, times_words

__all__ = [
    "ERROR_KEYS",
    "LogLevel",
    "ObserveSettings",
    "Pace",
    "Progress",
    "Stat",
    "Stats",
    "clipped",
    "counted",
    "duration_words",
    "nothing_sent",
    "number_words",
    "pace",
    "printable",
    "progress_line",
    "rate_words",
    "summary_rows",
    "times_words",
    "waiting_words",
]
