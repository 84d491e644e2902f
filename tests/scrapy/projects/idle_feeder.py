import scrapy
from scrapy import signals
from scrapy.exceptions import DontCloseSpider


class QueueSpider(scrapy.Spider):
    """Takes its URLs from a queue each time when it has nothing to do."""

    name = "queue"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.queue = ["http://books.example/catalogue/book-%d.html" % n for n in range(5)]
        self.batches = 0

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.spider_idle, signal=signals.spider_idle)
        crawler.signals.connect(spider.opened, signal=signals.spider_opened)
        return spider

    def opened(self, spider):
        spider.logger.info("opened %s", spider.name)

    def next_requests(self):
        taken, self.queue = self.queue[:2], self.queue[2:]
        self.batches += bool(taken)
        for url in taken:
            yield scrapy.Request(url, dont_filter=True, meta={"batch": self.batches})

    def start_requests(self):
        return self.next_requests()

    def spider_idle(self):
        requests = list(self.next_requests())
        for request in requests:
            self.crawler.engine.crawl(request)
        if requests:
            raise DontCloseSpider

    def parse(self, response):
        yield {"title": response.css("h1::text").get().strip(), "batch": response.meta["batch"]}
