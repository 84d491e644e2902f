import json
from urllib.parse import urlencode

import scrapy
from scrapy.http import JsonRequest


class ProductsApiSpider(scrapy.Spider):
    name = "products_api"
    allowed_domains = ["api.example"]
    base = "http://api.example/v1/products"
    custom_settings = {"DEFAULT_REQUEST_HEADERS": {"Accept": "application/json", "Accept-Language": "de"}}

    def start_requests(self):
        yield JsonRequest("http://api.example/token", data={"client": "me", "grants": ["read"]}, callback=self.got_token)
        yield JsonRequest("http://api.example/search", data={"query": "ubik", "page": 0}, callback=self.parse_search)

    def got_token(self, response):
        token = json.loads(response.text)["access_token"]
        headers = {"Authorization": "Bearer " + token}
        yield scrapy.Request(self.base + "?" + urlencode({"limit": 5}), headers=headers, cb_kwargs={"headers": headers})

    def parse(self, response, headers):
        data = json.loads(response.body)
        for product in data["data"]:
            yield scrapy.Request(
                f"http://api.example/detail/{product['id']}", callback=self.parse_detail, cb_kwargs={"product": product}
            )
        if data["next"]:
            url = self.base + "?" + urlencode({"limit": 5, "cursor": data["next"]})
            yield response.follow(url, headers=headers, cb_kwargs={"headers": headers})

    def parse_detail(self, response, product):
        yield {**product, **response.json()}

    def parse_search(self, response):
        data = response.json()
        yield from data["hits"]
        sent = json.loads(response.request.body)
        if (sent["page"] + 1) * 3 < data["total"]:
            sent["page"] += 1
            yield JsonRequest(response.url, data=sent, callback=self.parse_search)
