import scrapy
from scrapy.http import HtmlResponse, TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.selector import Selector


class LinksSpider(scrapy.Spider):
    name = "links"
    start_urls = ["http://www.shop.example/"]
    link_extractor = LinkExtractor(restrict_css="#menu", deny=("/private",), unique=True)

    def parse(self, response):
        if not isinstance(response, TextResponse):
            yield {"file": response.url, "size": len(response.body)}
            return
        if not isinstance(response, HtmlResponse):
            return
        for link in self.link_extractor.extract_links(response):
            yield scrapy.Request(link.url, callback=self.parse)
        sel = Selector(text=response.text)
        yield {
            "url": response.url,
            "title": sel.xpath("//title/text()").get(),
            "from_response": response.selector.css("title::text").get(),
        }
