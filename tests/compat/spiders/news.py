from scrapy.spiders import XMLFeedSpider


class NewsSpider(XMLFeedSpider):
    name = "news"
    allowed_domains = ["files.example"]
    start_urls = ["http://files.example/feed.xml"]
    iterator = "iternodes"  # This is actually unnecessary, since it's the default value
    itertag = "item"

    def parse_node(self, response, node):
        self.logger.info("Hi, this is a <%s> node!: %s", self.itertag, "".join(node.getall()))
        item = {}
        item["id"] = node.xpath("@id").get()
        item["name"] = node.xpath("name").xpath("string()").get()
        return item
