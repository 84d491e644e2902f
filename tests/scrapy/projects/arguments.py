from urllib.parse import quote_plus

import scrapy


class SearchSpider(scrapy.Spider):
    name = "search"
    allowed_domains = ["books.example"]
    start_urls = ["http://books.example/search?q=stoner"]

    def __init__(self, query=None, pages="1", *args, **kwargs):
        super(SearchSpider, self).__init__(*args, **kwargs)
        self.pages = int(pages)
        for word in (query or "").split(","):
            self.start_urls.append("http://books.example/search?q=%s" % quote_plus(word))
        self.label = getattr(self, "label", "none")

    def parse(self, response):
        hits = response.css("a.hit::attr(href)").getall()
        assert int(response.css("p.count::text").get()) == len(hits)
        for href in hits[: self.pages]:
            yield response.follow(href, callback=self.parse_hit, cb_kwargs={"search": response.url})

    def parse_hit(self, response, search):
        yield {
            "title": response.css("h1::text").get("").strip(),
            "url": response.url,
            "search": search,
            "label": self.label,
            "tag": self.tag if hasattr(self, "tag") else None,
        }
