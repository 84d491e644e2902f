import scrapy
from scrapy.http import HtmlResponse, TextResponse, XmlResponse
from scrapy.linkextractors import LinkExtractor


class KindsSpider(scrapy.Spider):
    """Asks pages, images and documents for what only text has: where a response is not text, the callback fails."""

    name = "kinds"
    custom_settings = {"ROBOTSTXT_OBEY": False}
    urls = ["http://books.example/images/3.png", "http://api.example/detail/3", "http://news.example/rss.xml", "http://news.example/robots.txt", "http://news.example/prices.csv", "http://flaky.example/empty", "http://news.example/s2.xml.gz", "http://books.example/", "http://news.example/old/2", "http://news.example/old/3"]
    ways = {
        "title": lambda response: response.css("title::text").get(),
        "text": lambda response: len(response.text),
        "nodes": lambda response: len(response.xpath("//*")),
        "json": lambda response: response.json(),
        "type": lambda response: response.selector.type,
        "kinds": lambda response: [isinstance(response, kind) for kind in (TextResponse, HtmlResponse, XmlResponse)],
        "has": lambda response: [hasattr(response, each) for each in ("text", "css", "selector", "encoding", "body")],
        "encoding": lambda response: response.encoding,
        "follow": lambda response: response.follow("x?q=\u00fc").url,
        "jmespath": lambda response: response.jmespath("id").get(),
        "joined": lambda response: response.urljoin("x"),
        "all": lambda response: [each.url for each in response.follow_all(["x", "y"])],
        "copy": lambda response: [response.replace(url="http://a.example/b").url, response.replace(body=b"x").body.decode()],
    }

    def start_requests(self):
        for url in self.urls:
            for way in self.ways:
                yield scrapy.Request(url, self.parse, dont_filter=True, cb_kwargs={"way": way})
            if "detail" not in url:
                yield scrapy.Request(url, self.parse_links, dont_filter=True)

    def parse(self, response, way):
        yield {way: self.ways[way](response), "of": response.url}
        yield {"after": way, "of": response.url}

    def parse_links(self, response):
        yield {"links": [each.url for each in LinkExtractor().extract_links(response)], "of": response.url}
