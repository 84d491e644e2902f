import gzip

import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CSVFeedSpider, CrawlSpider, Rule, SitemapSpider, XMLFeedSpider


class Mapped(SitemapSpider):
    name = "mapped"
    sitemap_urls = ["http://news.example/robots.txt"]
    sitemap_follow = [r"/s\d"]
    sitemap_rules = [("/article/[1-4]$", "parse_article"), ("/article/", "parse_other")]
    custom_settings = {"ROBOTSTXT_OBEY": False}

    def sitemap_filter(self, entries):
        for entry in entries:
            if entries.type == "urlset" and entry["loc"].endswith("/2"):
                continue
            entry["loc"] = entry["loc"].replace("about", "nothing")
            yield entry

    def _get_sitemap_body(self, response):
        if response.body[:2] == b"\x1f\x8b":
            return gzip.decompress(response.body)
        return response.body

    def parse_article(self, response):
        yield {"article": response.url, "map": response.meta["map"], "h1": response.css("h1::text").get()}

    async def parse_other(self, response):
        return {"other": response.url}

    def _parse_sitemap(self, response):
        for request in super()._parse_sitemap(response):
            request.meta["map"] = response.url
            yield request
