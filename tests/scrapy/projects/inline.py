import scrapy


class InlineSpider(scrapy.Spider):
    """Asks for what belongs to an item in the callback itself."""

    name = "inline"
    custom_settings = {"ROBOTSTXT_OBEY": False}

    async def start(self):
        for page in (1, 2):
            yield scrapy.Request(f"http://books.example/catalogue/page-{page}.html")

    async def parse(self, response):
        for product in response.css("article.product")[:2]:
            item = {"title": product.css("h3 a::attr(title)").get()}
            request = response.follow(product.css("h3 a")[0])
            page = await self.crawler.engine.download_async(request)
            item["upc"] = page.css("td::text").get()
            detail = scrapy.Request(f"http://api.example/detail/{int(item['upc'], 16)}")
            item["stock"] = (await self.crawler.engine.download_async(detail)).json()["stock"]
            yield item
