import scrapy


class PicturesSpider(scrapy.Spider):
    name = "pictures"
    start_urls = ["http://files.example/gallery"]

    def parse(self, response):
        yield {"image_urls": [response.urljoin(src) for src in response.css("img::attr(src)").getall()]}
