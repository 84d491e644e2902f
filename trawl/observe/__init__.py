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
from trawl.observe.text import (
    MASK,
    clipped,
    counted,
    duration_words,
    number_words,
    printable,
    rate_words,
    times_words,
    without_passwords,
)

__all__ = [
    "ERROR_KEYS",
    "FAILINGS",
    "MASK",
    "LogLevel",
    "ObserveSettings",
    "Progress",
    "Speed",
    "Stat",
    "Stats",
    "came_to_nothing",
    "clipped",
    "counted",
    "duration_words",
    "failings",
    "number_words",
    "printable",
    "progress_line",
    "rate_words",
    "speed_between",
    "summary_rows",
    "times_words",
    "waiting_words",
    "without_passwords",
]
