"""The engine: runs one crawl from its context to its end."""

from trawl.engine.context import CrawlContext
from trawl.engine.crawl import Crawl, WaitingCount, Watcher
from trawl.engine.fetcher import Recorder
from trawl.engine.items import ItemReceiver, Processor
from trawl.engine.run import run_crawl, try_crawl
from trawl.engine.settings import EngineSettings
from trawl.engine.watchers import Pace

__all__ = [
    "Crawl",
    "EngineSettings",
    "ItemReceiver",
    "CrawlContext",
    "Pace",
    "Processor",
    "Recorder",
    "WaitingCount",
    "Watcher",
    "run_crawl",
    "try_crawl",
]
