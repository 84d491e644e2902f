import gzip

import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CSVFeedSpider, CrawlSpider, Rule, SitemapSpider, XMLFeedSpider


class Ruled(CrawlSpider):
    name = "ruled"
    allowed_domains = ["books.example"]
    start_urls = ["http://books.example/catalogue/page-1.html", "http://books.example/catalogue/none.html"]
    handle_httpstatus_list = [404]
    rules = (
        Rule(LinkExtractor(restrict_css=".next"), follow=True, process_links="shorten", process_request="mark"),
        Rule(
            LinkExtractor(allow=r"book-\d+\.html", tags="a", attrs="href"),
            callback="parse_book",
            errback="missed",
            cb_kwargs={"kind": "book"},
            process_links=lambda links: [link for link in links if "ref=1" in link.url][:3],
        ),
    )

    def shorten(self, links):
        return links[:1]

    def mark(self, request, response):
        request.meta["from"] = response.url
        return request if "page-4" not in request.url else None

    def parse_start_url(self, response, **kwargs):
        yield {"start": response.url, "status": response.status}

    def process_results(self, response, results):
        return [{**result, "rule": response.meta.get("rule")} for result in results]

    def parse_book(self, response, kind):
        return [{"kind": kind, "url": response.url, "text": response.meta["link_text"]}]

    def missed(self, failure):
        yield {"missed": failure.request.url}
