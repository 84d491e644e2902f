import asyncio
from asyncio import gather, sleep

import scrapy


class Enrich:
    async def process_item(self, item, spider):
        await asyncio.sleep(0.01)
        item["rates"] = await gather(self.rate("EUR"), self.rate("USD"))
        return item

    async def rate(self, currency):
        await sleep(0)
        return len(currency)


class OnAsyncioSpider(scrapy.Spider):
    name = "on_asyncio"
    start_urls = ["http://books.example/catalogue/book-1.html", "http://books.example/catalogue/book-2.html"]
    custom_settings = {"ITEM_PIPELINES": {Enrich: 300}, "ROBOTSTXT_OBEY": False}

    async def parse(self, response):
        await asyncio.sleep(0.01)
        yield {"title": response.css("h1::text").get().strip(), "kind": type(response).__name__}
