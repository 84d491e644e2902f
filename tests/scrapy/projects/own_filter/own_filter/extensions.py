import json

from scrapy import signals


class Counting:
    def __init__(self, crawler):
        self.crawler = crawler
        self.scheduled = self.dropped = 0

    @classmethod
    def from_crawler(cls, crawler):
        ext = cls(crawler)
        crawler.signals.connect(ext.spider_closed, signal=signals.spider_closed)
        crawler.signals.connect(ext.item_scraped, signal=signals.item_scraped)
        return ext

    def item_scraped(self, item, response, spider):
        self.scheduled += 1
        fp = self.crawler.request_fingerprinter.fingerprint(response.request).hex()
        item["fp"] = fp

    def spider_closed(self, spider, reason):
        with open("count.json", "w") as f:
            json.dump({"items": self.scheduled, "reason": reason}, f)
