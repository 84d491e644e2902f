import json

from scrapy import signals
from scrapy.exceptions import NotConfigured


class Report:
    def __init__(self, stats):
        self.stats = stats
        self.items = self.dropped = self.errors = 0
        self.last = None

    @classmethod
    def from_crawler(cls, crawler):
        if not crawler.settings.getbool("REPORT_ENABLED"):
            raise NotConfigured
        made = cls(crawler.stats)
        for name in ("spider_opened", "spider_closed", "item_scraped", "item_dropped", "spider_error"):
            crawler.signals.connect(getattr(made, name), signal=getattr(signals, name))
        return made

    def spider_opened(self, spider):
        self.stats.set_value("report/opened", spider.name)

    def spider_error(self, failure, response, spider):
        self.errors += 1
        self.last = [failure.type.__name__, failure.getErrorMessage(), response.url]

    def item_scraped(self, item, response, spider):
        self.items += 1

    def item_dropped(self, item, response, exception, spider):
        self.dropped += 1

    def spider_closed(self, spider, reason):
        found = [self.items, self.dropped, self.errors, self.last, reason, self.stats.get_value("report/opened")]
        with open("report.json", "w") as file:
            json.dump(found, file)
