import scrapy
from scrapy.http import HtmlResponse, TextResponse
from scrapy.utils.python import to_bytes, to_unicode
from scrapy.utils.response import get_base_url
from scrapy.utils.url import add_http_if_no_scheme
from w3lib.html import remove_tags, replace_escape_chars
from w3lib.url import canonicalize_url, url_query_cleaner


class UtilsSpider(scrapy.Spider):
    name = "utils"
    places = ["books.example/catalogue/page-1.html", "http://www.news.example/article/1"]

    def start_requests(self):
        for place in self.places:
            yield scrapy.Request(add_http_if_no_scheme(place))

    def parse(self, response):
        assert isinstance(response, HtmlResponse) and isinstance(response, TextResponse)
        yield {
            "base": get_base_url(response),
            "bytes": to_bytes(response.url).decode(),
            "title": to_unicode(response.css("title::text").get().encode()),
            "links": [
                canonicalize_url(url_query_cleaner(response.urljoin(href)))
                for href in response.css("a::attr(href)").getall()[:4]
            ],
            "text": replace_escape_chars(remove_tags(response.css("h1, h3").get())),
        }
