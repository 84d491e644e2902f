import scrapy

from shop.items import ProductLoader


class ShopSpider(scrapy.Spider):
    name = "shop"
    allowed_domains = ["books.example"]

    def start_requests(self):
        for page in range(1, 5):
            yield scrapy.Request(f"http://books.example/catalogue/page-{page}.html", cb_kwargs={"page": page})

    def parse(self, response, page):
        self.logger.info("page %s", page)
        yield from response.follow_all(css="h3 a", callback=self.parse_product)
        yield from response.follow_all(css="a.again", callback=self.parse_product, dont_filter=True)

    def parse_product(self, response):
        loader = ProductLoader(response=response)
        loader.add_css("name", "h1")
        loader.add_css("price", "p.price_color::text")
        loader.add_xpath("upc", "//tr[1]/td/text()")
        loader.add_css("tags", "li.tag::text")
        loader.add_css("breadcrumb", ".breadcrumb a::text")
        yield loader.load_item()
