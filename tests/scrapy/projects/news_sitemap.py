from datetime import datetime

from scrapy.spiders import SitemapSpider


class NewsSitemapSpider(SitemapSpider):
    name = "news_sitemap"
    allowed_domains = ["news.example"]
    sitemap_urls = ["http://www.news.example/robots.txt"]
    sitemap_rules = [(r"/article/\d+", "parse_article"), ("/about/", "parse_about")]
    sitemap_alternate_links = True
    since = datetime(2024, 1, 2)

    def sitemap_filter(self, entries):
        for entry in entries:
            if "lastmod" not in entry or datetime.strptime(entry["lastmod"], "%Y-%m-%d") >= self.since:
                yield entry

    def parse_article(self, response):
        yield {
            "url": response.url,
            "headline": response.css("h1::text").get(),
            "published": response.css("time::attr(datetime)").get(),
            "text": "\n".join("".join(p.xpath(".//text()").getall()) for p in response.css("article p")),
            "encoding": response.encoding,
            "tags": response.xpath("//a[@rel='tag']/text()").extract(),
        }

    def parse_about(self, response):
        self.logger.debug("nothing at %s", response.url)
