import re

import scrapy

BASE = "http://www.shop.example"


def cleaned(text):
    return re.sub(r"\s+", " ", text or "").strip()


class PlainSpider(scrapy.Spider):
    """Lists, generators inside lists, None: whatever a callback may return."""

    name = "plain"
    allowed_domains = ["shop.example"]
    custom_settings = {
        "CONCURRENT_REQUESTS": 4,
        "DOWNLOAD_DELAY": 0.05,
        "USER_AGENT": "Mozilla/5.0 (compatible; mybot/1.0)",
        "COOKIES_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "DEFAULT_REQUEST_HEADERS": {"Accept-Language": "en"},
        "HTTPERROR_ALLOWED_CODES": [404],
    }
    start_urls = [BASE]

    def parse(self, response):
        requests = []
        for href in response.xpath("//a[contains(@href, 'item')]/@href").extract():
            requests.append(scrapy.Request(response.urljoin(href), self.parse_item))
        requests.append(scrapy.Request("http://elsewhere.example/", self.parse_item))
        return requests

    def parse_item(self, response):
        if response.status == 404:
            return None
        return [{"name": cleaned(response.css("#item_name::text").get())}]
