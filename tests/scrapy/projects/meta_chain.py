from copy import deepcopy

import scrapy


class ChainSpider(scrapy.Spider):
    """Shop, list, book, its neighbour: an item grows along the way in meta."""

    name = "chain"
    allowed_domains = ["books.example"]
    start_urls = ["http://books.example/"]

    def parse(self, response):
        for li in response.xpath("//ul[@class='nav']/li"):
            item = {"category": li.xpath("./a/text()").extract_first(), "referrers": []}
            url = response.urljoin(li.xpath("./a/@href").extract_first())
            yield scrapy.Request(url, callback=self.parse_list, meta={"item": item, "download_timeout": 20})

    def parse_list(self, response):
        item = response.meta["item"]
        for a in response.xpath("//h3/a")[:3]:
            item["title"] = a.xpath("@title").extract_first()
            item["referrers"].append(response.request.headers.get("Referer", b"").decode())
            yield scrapy.Request(
                response.urljoin(a.xpath("@href").extract_first()),
                callback=self.parse_book,
                meta={"item": deepcopy(item)},
            )

    def parse_book(self, response):
        item = response.meta["item"]
        item["upc"] = response.css("td::text").extract()[0]
        item["depth"] = response.meta["depth"]
        yield response.follow(
            response.css("a.also")[0],
            callback=self.parse_also,
            meta=response.meta,
            dont_filter=True,
        )

    def parse_also(self, response):
        item = response.meta["item"]
        item["also"] = response.css("h1::text").extract_first().strip()
        item["last_depth"] = response.meta["depth"]
        item["timeout"] = response.meta.get("download_timeout")
        item["referrers"].append(response.request.headers["Referer"].decode())
        yield item
