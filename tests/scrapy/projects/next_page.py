import scrapy


class NextPageSpider(scrapy.Spider):
    name = "next_page"
    start_urls = ["http://books.example/catalogue/page-1.html"]
    custom_settings = {"ROBOTSTXT_OBEY": True, "CONCURRENT_REQUESTS": 4}

    def parse(self, response):
        for product in response.css("article.product"):
            item = {
                "id": int(product.attrib["data-id"]),
                "title": product.css("h3 a::attr(title)").get(),
                "list_price": product.css(".price::text").get(),
            }
            href = product.xpath(".//h3/a/@href").get()
            yield response.follow(href, self.parse_book, meta={"item": item})

        next_page = response.css("li.next a::attr(href)").extract_first()
        if next_page is not None:
            yield scrapy.Request(response.urljoin(next_page), callback=self.parse)

    def parse_book(self, response):
        item = response.meta["item"]
        item["tags"] = response.css("li.tag::text").getall()
        item["stock"] = response.xpath("//td/text()").re_first(r"\((\d+) available")
        item["depth"] = response.meta["depth"]
        yield item
