"""Where pending requests are kept: the protocol, and the frontier in memory."""

from trawl.frontier.base import Amounts, Frontier, FrontierStatistics, LaneKey, Record, Scopes, SortKey
from trawl.frontier.memory import MemoryFrontier

__all__ = ["Amounts", "Frontier", "FrontierStatistics", "LaneKey", "MemoryFrontier", "Record", "Scopes", "SortKey"]
