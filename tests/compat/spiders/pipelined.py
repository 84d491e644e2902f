import scrapy
from scrapy.exceptions import DropItem


class Price(scrapy.Item):
    name = scrapy.Field()
    price = scrapy.Field()


class CheapOnly:
    def __init__(self, most):
        self.most = most

    @classmethod
    def from_crawler(cls, crawler):
        return cls(most=crawler.spider.most)

    def open_spider(self, spider):
        self.seen = set()

    def process_item(self, item, spider):
        if item["price"] > self.most:
            raise DropItem(f"Too dear: {item['name']}")
        if item["name"] in self.seen:
            raise DropItem(f"Duplicate: {item['name']}")
        self.seen.add(item["name"])
        return item


class PipelinedSpider(scrapy.Spider):
    name = "pipelined"
    start_urls = [f"http://files.example/table?page={page}" for page in range(1, 4)]
    custom_settings = {"ITEM_PIPELINES": {CheapOnly: 300}}
    most = 20

    def parse(self, response):
        for row in response.css("table.prices tr")[1:]:
            yield Price(name=row.css("a::text").get(), price=float(row.css("td::text").re_first(r"[\d.]+")))
