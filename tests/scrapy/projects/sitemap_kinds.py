from datetime import datetime

from scrapy import Request
from scrapy.spiders import SitemapSpider


class KindsSpider(SitemapSpider):
    """Begins at robots.txt, follows one of the two sitemaps, and takes only some dates."""

    name = "kinds"
    allowed_domains = ["news.example"]
    sitemap_urls = ["http://www.news.example/robots.txt"]
    sitemap_follow = [r"/s1", "s2.xml.gz"]
    sitemap_rules = [(r"/article/[0-4]$", "parse_article"), ("/about/", "parse_about"), ("", "parse_rest")]
    other_urls = ["http://www.news.example/latest"]
    custom_settings = {"DEPTH_LIMIT": 3, "ROBOTSTXT_OBEY": False}

    def sitemap_filter(self, entries):
        for entry in entries:
            if "lastmod" in entry and datetime.strptime(entry["lastmod"], "%Y-%m-%d").day == 2:
                continue
            if entries.type == "sitemapindex" or "/about/3" not in entry["loc"]:
                yield entry

    async def start(self):
        async for each in super().start():
            yield each
        for url in self.other_urls:
            yield Request(url, self.parse_latest, priority=5)

    def parse_article(self, response):
        yield {"article": response.url, "encoding": response.encoding, "h1": response.css("h1::text").get()}

    def parse_about(self, response):
        yield {"about": response.url, "status": response.status}

    def parse_rest(self, response):
        yield {"rest": response.url, "depth": response.meta["depth"]}

    def parse_latest(self, response):
        yield {"latest": len(response.css("a.story"))}
