import scrapy

PAGE = "http://books.example/catalogue/page-1.html"


class Seen:
    def process_request(self, request, spider):
        request.meta["had_timeout"] = request.meta["download_timeout"]

    def process_response(self, request, response, spider):
        request.meta["had_slot"] = request.meta["download_slot"]
        request.meta["had_latency"] = request.meta["download_latency"] >= 0
        return response


class AddressesSpider(scrapy.Spider):
    name = "addresses"
    allowed_domains = ["books.example"]
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Seen: 543}, "DOWNLOAD_TIMEOUT": 20}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for fragment in ("", "", "#top"):
            self.start_urls.append(PAGE + fragment)

    def parse(self, response):
        told = ("had_timeout", "had_slot", "had_latency", "download_timeout", "download_slot")
        yield {
            "url": response.url,
            "asked": response.request.url,
            "links": [response.follow(link).url for link in ("", "?page=2", "#x")],
            **{key: response.meta[key] for key in told},
        }
        for spelling in ("?a=%c3%a9&b=", "?&b&a=%C3%A9", "#f", "?a=b%20c", "?a=b+c", "?x=%31", "?x=1"):
            yield scrapy.Request(PAGE + spelling, self.parse_again, meta={"download_slot": "mine"})
        request = scrapy.Request("http://books.example/catalogue/page-2.html", self.parse_again)
        request.cookies = {"shelf": "2"}
        request.headers = {"X-Shelf": "2"}
        yield request

    def parse_again(self, response):
        query = sorted(response.url.partition("?")[2].replace("%20", "+").lower().strip("&").split("&"))
        yield {"again": response.url.partition("?")[0], "slot": response.meta["download_slot"], "arguments": len(query)}
