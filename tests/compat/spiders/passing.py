import scrapy


class PassingSpider(scrapy.Spider):
    name = "passing"
    start_urls = ["http://www.shop.example/category.php?id=1"]
    handle_httpstatus_list = [404]
    download_delay = 0.1

    def parse(self, response):
        for row in response.css("a.item"):
            item = {"title": row.css("::text").get().strip(), "listed_on": response.url}
            request = scrapy.Request(response.urljoin(row.attrib["href"]), callback=self.parse_detail)
            request.meta["item"] = item
            request.cb_kwargs["position"] = row.xpath("count(preceding-sibling::a)").get()
            yield request
        yield scrapy.Request(
            "http://status.example/404",
            callback=self.parse_missing,
            cb_kwargs={"why": "gone"},
            meta={"dont_retry": True, "download_timeout": 20},
            headers={"Referer": response.url},
            priority=10,
        )

    def parse_detail(self, response, position):
        item = response.meta["item"]
        item["position"] = int(float(position))
        item["depth"] = response.meta["depth"]
        yield item

    def parse_missing(self, response, why):
        yield {"missing": response.status, "why": why, "referer": response.request.headers.get("Referer")}
