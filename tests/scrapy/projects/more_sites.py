import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


def unwanted(value):
    return None if "book-5" in value else value


class MoreSpider(CrawlSpider):
    name = "more"
    start_urls = ["http://books.example/"]
    allowed_domains = ["books.example"]

    def __init__(self, *args, **kwargs):
        self.rules = [
            Rule(LinkExtractor(allow="page-2"), callback=self.parse_list, follow=True, process_request=self.stamp),
            Rule(LinkExtractor(allow=r"book-\d+", process_value=unwanted, unique=True), callback="parse_book", follow=False,
                 process_request=lambda request, response: request.replace(cb_kwargs={"page": response.url}), cb_kwargs={"page": "", "kind": "b"}),
            Rule(LinkExtractor(allow="basket"), callback="missing_method"),
        ][: 2 if kwargs.pop("short", True) else 3]
        super().__init__(*args, **kwargs)

    def stamp(self, request, response):
        return request.replace(url=request.url + "?stamped=1", priority=5)

    async def parse_list(self, response):
        yield {"list": response.url, "rule": response.meta["rule"]}

    def parse_book(self, response, page, kind):
        return {"book": response.url, "page": page, "kind": kind, "text": response.meta["link_text"], "depth": response.meta["depth"]}

    async def parse_with_rules(self, response, callback, cb_kwargs, follow=True):
        yield {"seen": response.url}
        async for output in super().parse_with_rules(response, callback, cb_kwargs, follow):
            yield output
