"""The engine: runs one crawl from its context to its end."""

from trawl.engine.context import CrawlContext
from trawl.engine.crawl import Crawl, Watcher
from trawl.engine.fetcher import Recorder
from trawl.engine.items import ItemReceiver, Processor
from trawl.engine.run import run_crawl, try_crawl
from trawl.engine.settings import EngineSettings

__all__ = [
    "Crawl",
    "EngineSettings",
    "ItemReceiver",
    "CrawlContext",
    "Processor",
    "Recorder",
    "Watcher",
    "run_crawl",
    "try_crawl",
]
