import re

import scrapy
from scrapy.http import Request
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


def open_javascript(value):
    m = re.search(r"javascript:go\('(.*?)'", value)
    return m.group(1) if m else value


class LinksSpider(CrawlSpider):
    name = "links"
    allowed_domains = ["books.example", "news.example"]
    start_urls = ["http://books.example/sort.html", "http://www.news.example/latest", "http://books.example/"]
    rules = (
        Rule(
            LinkExtractor(allow="book-", process_value=open_javascript, canonicalize=True),
            callback="parse_page",
            process_links="drop_session",
        ),
        Rule(
            LinkExtractor(allow=r"/article/", deny_domains=["ads.example"], unique=True),
            callback="parse_page",
            process_request="tag_request",
            cb_kwargs={"section": "news"},
            errback="failed",
        ),
        Rule(LinkExtractor(allow_domains=["books.example"], deny=["private"], restrict_css="ul.nav"), callback="parse_nav"),
    )

    def drop_session(self, links):
        for link in links:
            link.url = re.sub(r"[?&]sid=\d+", "", link.url)
        return links

    def tag_request(self, request, response):
        request.meta["came_from"] = response.url
        if request.url.endswith("/4"):
            return None
        return request.replace(priority=5)

    def parse_page(self, response, section="books"):
        yield {
            "url": response.url,
            "section": section,
            "text": response.meta.get("link_text", "").strip(),
            "from": response.meta.get("came_from"),
        }

    def parse_nav(self, response):
        extractor = LinkExtractor(tags=("img", "a"), attrs=("src", "href"), deny_extensions=[], restrict_xpaths="//article")
        links = extractor.extract_links(response)
        yield {"nav": response.url, "links": [(link.url, link.text, link.nofollow) for link in links][:3]}
        yield Request(links[0].url, callback=self.parse_page, cb_kwargs={"section": "first"})

    def failed(self, failure):
        self.logger.error(failure)
