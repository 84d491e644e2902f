import scrapy


class ReportsSpider(scrapy.Spider):
    name = "reports"
    start_urls = ["http://files.example/"]

    def parse(self, response):
        for n, li in enumerate(response.css("li")):
            yield {
                "id": n,
                "docs": [response.urljoin(href) for href in li.css("a.doc::attr(href)").getall()],
                "names": li.css("a::text").getall(),
            }
        images = [response.urljoin(src) for src in response.css("img::attr(src)").getall()]
        yield {"id": "pictures", "image_urls": images, "cover": images[-1]}
        yield {"id": "plain"}
