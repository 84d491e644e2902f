import scrapy
from w3lib.url import canonicalize_url


class LatestSpider(scrapy.Spider):
    name = "latest"
    allowed_domains = ["news.example"]
    start_urls = ["http://www.news.example/latest#headlines"]

    def parse(self, response):
        self.logger.info("start %s", response.url)
        for link in response.css("a"):
            yield response.follow(link, callback=self.parse_article, meta={"from": response.url})

    def parse_article(self, response):
        if "/article/" not in response.url:
            return
        key = response.url.split("/article/")[1]
        yield {
            "key": key,
            "url": response.url,
            "canonical": canonicalize_url(response.css("link[rel=canonical]::attr(href)").get() or response.url),
            "from": response.meta["from"],
            "next": response.urljoin(response.css("article a::attr(href)").getall()[-1])
            if response.css("article a")
            else None,
            "h1": response.css("h1::text").get(),
        }
