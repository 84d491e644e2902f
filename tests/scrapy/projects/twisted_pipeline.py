import scrapy
from twisted.internet.defer import inlineCallbacks, returnValue
from twisted.internet.threads import deferToThread


class SlowPipeline:
    @inlineCallbacks
    def process_item(self, item, spider):
        item["length"] = yield deferToThread(len, item["title"])
        returnValue(item)


class TwistedSpider(scrapy.Spider):
    name = "twisted"
    start_urls = ["http://books.example/catalogue/page-1.html"]
    custom_settings = {"ITEM_PIPELINES": {SlowPipeline: 300}}

    def parse(self, response):
        for title in response.css("h3 a::attr(title)").getall():
            yield {"title": title}
