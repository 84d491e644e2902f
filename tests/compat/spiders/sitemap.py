import scrapy
from scrapy.spiders import SitemapSpider


class MapSpider(SitemapSpider):
    name = "sitemap"
    sitemap_urls = ["http://www.shop.example/robots.txt"]
    sitemap_rules = [
        ("/item", "parse_item"),
    ]
    sitemap_follow = ["/sitemap_items"]

    other_urls = ["http://www.shop.example/about"]

    async def start(self):
        async for item_or_request in super().start():
            yield item_or_request
        for url in self.other_urls:
            yield scrapy.Request(url, self.parse_other)

    def parse_item(self, response):
        return {"item": response.url}

    def parse_other(self, response):
        return {"other": response.url}
