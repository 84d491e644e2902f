import scrapy


class ListingSpider(scrapy.Spider):
    name = "listing"
    start_urls = ["http://books.example/catalogue/page-1.html"]

    def parse(self, response):
        for n, row in enumerate(response.css("article")):
            title = row.css("h3 a::attr(title)").get()
            yield {"kind": "even" if n % 2 else "odd", "id": n, "title": title, "tags": ["x", "y, z"][:n]}
