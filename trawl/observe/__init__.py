"""What a crawl tells about itself: statistics, progress, and their wording for people."""

from trawl.observe.printable import clipped, printable
from trawl.observe.progress import ERROR_KEYS, Pace, Progress, pace, progress_line, waiting_words
from trawl.observe.settings import LogLevel, ObserveSettings
from trawl.observe.stats import Stat, Stats
from trawl.observe.summary import nothing_sent, summary_rows
from trawl.observe.words import counted, duration_words, number_words, rate_words, times_words

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
