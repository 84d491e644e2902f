import gzip

import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CSVFeedSpider, CrawlSpider, Rule, SitemapSpider, XMLFeedSpider


class Stories(XMLFeedSpider):
    name = "stories"
    start_urls = ["http://news.example/rss.xml"]
    itertag = "item"

    def adapt_response(self, response):
        return response.replace(body=response.body.replace(b"Story 3", b"Story three"))

    def parse_nodes(self, response, nodes):
        yield {"file": response.url}
        yield from super().parse_nodes(response, nodes)

    def parse_node(self, response, node):
        item = {
            "title": node.xpath("//title/text()").get(),
            "categories": node.xpath("category/text()").getall(),
            "first": node.xpath("//guid/text()").getall(),
        }
        if item["title"] == "Story 1":
            return None
        if item["title"] == "Story 2":
            return scrapy.Request(node.xpath("link/text()").get(), self.parse_story, cb_kwargs={"item": item})
        return [item, {"n": 1}]

    def process_results(self, response, results):
        for result in results:
            if isinstance(result, dict):
                result["seen"] = True
            yield result

    def parse_story(self, response, item):
        item["h1"] = response.css("h1::text").get()
        return item
