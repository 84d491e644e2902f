"""Where pending requests are kept: the protocol, and the frontier in memory."""

from trawl.frontier.base import (
    Amounts,
    Frontier,
    FrontierStatistics,
    JobStore,
    LaneKey,
    OutboxItem,
    Record,
    Scopes,
    SortKey,
)
from trawl.frontier.memory import MemoryFrontier
from trawl.frontier.sections import Section

__all__ = [
    "Amounts",
    "Frontier",
    "FrontierStatistics",
    "JobStore",
    "LaneKey",
    "MemoryFrontier",
    "OutboxItem",
    "Record",
    "Scopes",
    "Section",
    "SortKey",
]
