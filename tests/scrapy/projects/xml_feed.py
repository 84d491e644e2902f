import scrapy


class XmlSpider(scrapy.Spider):
    name = "xml_feed"
    start_urls = ["http://books.example/catalogue/page-1.html"]
    custom_settings = {"FEED_EXPORT_INDENT": 4}

    def parse(self, response):
        for n, product in enumerate(response.css("article.product")[:4]):
            yield {
                "title": product.css("h3 a::attr(title)").get() + " <&>",
                "links": product.css("a::attr(href)").getall(),
                "details": {"n": n, "price": product.css(".price::text").get()},
                "none": None,
                "pair": (n, "two"),
                "yes": True,
            }
