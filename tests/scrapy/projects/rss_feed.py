from scrapy.spiders import XMLFeedSpider


class RssSpider(XMLFeedSpider):
    name = "rss"
    allowed_domains = ["news.example"]
    start_urls = ["http://www.news.example/rss.xml"]
    iterator = "iternodes"
    itertag = "item"

    def adapt_response(self, response):
        self.logger.info("feed of %d bytes", len(response.body))
        return response

    def parse_node(self, response, node):
        item = {
            "title": node.xpath("title/text()").get(),
            "guid": node.xpath("./guid/text()").extract_first(),
            "categories": node.xpath("category/text()").extract(),
            "date": node.xpath("pubDate/text()").get(),
        }
        return response.follow(node.xpath("link/text()").get(), self.parse_story, meta={"item": item})

    def process_results(self, response, results):
        return [each for each in results if each is not None]

    def parse_story(self, response):
        item = response.meta["item"]
        item["headline"] = response.css("h1::text").get()
        return item
