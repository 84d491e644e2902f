import scrapy
from scrapy import signals
from scrapy.exceptions import DontCloseSpider


class FedSpider(scrapy.Spider):
    name = "fed"
    queue = [["http://www.shop.example/item.php?id=1"], [], ["http://www.shop.example/item.php?id=2"]]

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.pending = list(cls.queue)
        crawler.signals.connect(spider.spider_idle, signal=signals.spider_idle)
        return spider

    def spider_idle(self, spider):
        if not self.pending:
            return
        for url in self.pending.pop(0):
            self.crawler.engine.crawl(scrapy.Request(url, callback=self.parse_thing))
        raise DontCloseSpider

    def parse_thing(self, response):
        yield {"thing": response.url[-1]}
