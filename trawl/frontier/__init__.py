"""Frontiers: stores of pending requests. Contains the protocol, the frontier in memory, and the settings of jobs."""

from trawl.frontier.base import (
    Amounts,
    Frontier,
    FrontierStatistics,
    LaneKey,
    OutboxItem,
    PushResult,
    Record,
    ScopeAmounts,
    SortKey,
    lane_key,
)
from trawl.frontier.memory import MemoryFrontier
from trawl.frontier.settings import SCHEMES, JobSettings, named_frontier

__all__ = [
    "Amounts",
    "Frontier",
    "FrontierStatistics",
    "JobSettings",
    "LaneKey",
    "MemoryFrontier",
    "OutboxItem",
    "Record",
    "SCHEMES",
    "ScopeAmounts",
    "SortKey",
    "PushResult",
    "lane_key",
    "named_frontier",
]
