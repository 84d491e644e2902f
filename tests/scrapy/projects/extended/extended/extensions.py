import json
import logging

from scrapy import signals
from scrapy.exceptions import NotConfigured

logger = logging.getLogger(__name__)


class StatsToFile:
    def __init__(self, crawler, item_count):
        self.stats = crawler.stats
        self.path = crawler.settings["STATS_PATH"]
        self.item_count = item_count
        self.items_scraped = 0
        self.dropped = []

    @classmethod
    def from_crawler(cls, crawler):
        if not crawler.settings.getbool("MYEXT_ENABLED"):
            raise NotConfigured
        ext = cls(crawler, crawler.settings.getint("MYEXT_ITEMCOUNT", 1000))
        crawler.signals.connect(ext.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(ext.spider_closed, signal=signals.spider_closed)
        crawler.signals.connect(ext.item_scraped, signal=signals.item_scraped)
        crawler.signals.connect(ext.response_downloaded, signal=signals.response_downloaded)
        crawler.signals.connect(ext.spider_error, signal=signals.spider_error)
        return ext

    def spider_opened(self, spider):
        logger.info("opened spider %s", spider.name)
        self.stats.set_value("my/opened", spider.name)

    def item_scraped(self, item, response, spider):
        self.items_scraped += 1
        if self.items_scraped % self.item_count == 0:
            logger.info("scraped %d items", self.items_scraped)

    def response_downloaded(self, response, request, spider):
        self.stats.inc_value("my/bytes", len(response.body), spider=spider)
        self.stats.max_value("my/longest", len(response.body))

    def spider_error(self, failure, response, spider):
        self.stats.inc_value("my/errors/%s" % failure.type.__name__)

    def spider_closed(self, spider, reason):
        wanted = {k: v for k, v in self.stats.get_stats().items() if k.startswith("my/") or k.startswith("middleware/")}
        wanted.update(
            reason=reason,
            items=self.stats.get_value("item_scraped_count"),
            requests=self.stats.get_value("downloader/request_count"),
            depth=self.stats.get_value("request_depth_max"),
        )
        with open(self.path, "w") as f:
            json.dump(wanted, f, indent=2, sort_keys=True)


class Disabled:
    @classmethod
    def from_crawler(cls, crawler):
        if not crawler.settings.getbool("DISABLED_ENABLED"):
            raise NotConfigured("DISABLED_ENABLED is off")
        return cls()
