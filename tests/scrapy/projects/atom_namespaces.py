from scrapy import Selector
from scrapy.spiders import XMLFeedSpider


class AtomSpider(XMLFeedSpider):
    """An Atom feed, whose elements are all in namespaces."""

    name = "atom"
    start_urls = ["http://www.news.example/atom.xml"]
    namespaces = [
        ("a", "http://www.w3.org/2005/Atom"),
        ("dc", "http://purl.org/dc/elements/1.1/"),
        ("m", "http://search.yahoo.com/mrss/"),
    ]
    iterator = "xml"
    itertag = "a:entry"

    def parse_node(self, response, node):
        yield {
            "title": node.xpath("a:title/text()").get(),
            "creator": node.xpath("./dc:creator/text()").get(),
            "thumbnail": node.xpath(".//m:thumbnail/@url").get(),
            "width": node.xpath("number(.//m:thumbnail/@width)").get(),
            "content": Selector(text=node.xpath("a:content/text()").get()).css("b::text").get(),
        }
        url = response.urljoin(node.xpath("a:link/@href").get())
        if node.xpath("a:id/text()").re_first(r"urn:(\d+)") == "0":
            yield response.follow(url, self.parse_article)
            yield response.follow(response.url, self.parse_plain, dont_filter=True)

    def parse_article(self, response):
        yield {"h1": response.css("h1::text").get()}

    def parse_plain(self, response):
        response.selector.register_namespace("atom", "http://www.w3.org/2005/Atom")
        yield {"registered": response.xpath("//atom:title/text()").getall()}
        response.selector.remove_namespaces()
        yield {"removed": response.xpath("//entry/creator/text()").getall(), "type": type(response.selector.type).__name__}
