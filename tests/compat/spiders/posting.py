import scrapy
from scrapy.http import JsonRequest


class PostingSpider(scrapy.Spider):
    name = "posting"

    def start_requests(self):
        yield JsonRequest("http://api.example/search", data={"query": "trio", "page": 1}, callback=self.parse_page)
        yield scrapy.Request.from_curl(
            "curl 'http://api.example/search' -H 'Content-Type: application/json' --data-raw '{\"query\": \"curl\"}'",
            callback=self.parse_page,
        )
        yield scrapy.FormRequest(
            url="http://api.example/form", formdata={"name": "John Doe", "age": "27"}, callback=self.parse_page
        )

    def parse_page(self, response):
        yield response.json()
