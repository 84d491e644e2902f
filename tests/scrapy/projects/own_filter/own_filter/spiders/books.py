import scrapy


class BooksSpider(scrapy.Spider):
    name = "books"
    allowed_domains = ["books.example"]
    start_urls = ["http://books.example/catalogue/page-1.html"]

    def parse(self, response):
        for number, link in enumerate(response.css("article h3 a::attr(href)").getall()):
            url = response.urljoin(link).split("?")[0]
            yield scrapy.Request(f"{url}?sort=a&view={number}", self.parse_book)
            yield scrapy.Request(f"{url}?view=2&sort=a", self.parse_book)
            yield scrapy.Request(f"{url}?sort=b", self.parse_book)
        yield from response.follow_all(css=".next a", callback=self.parse)
        if "page-4" in response.url:
            yield scrapy.Request(response.url, self.parse_again)

    def parse_again(self, response):
        yield {"again": response.url}

    def parse_book(self, response):
        yield {"url": response.url.split("?")[0], "title": response.xpath("normalize-space(//h1)").get()}
