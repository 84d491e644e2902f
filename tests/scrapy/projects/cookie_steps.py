import json

import scrapy


class CookiesSpider(scrapy.Spider):
    name = "cookies"
    custom_settings = {"ROBOTSTXT_OBEY": False, "CONCURRENT_REQUESTS": 1}

    def steps(self):
        echo = "http://forum.example/echo"
        yield echo, {"cookies": {"a": "1", "b": 2, "c": True, "d": None, b"e": b"5"}}
        yield echo + "?plain", {}
        yield "http://forum.example/echo?again", {"headers": {"Cookie": "h=1"}}
        yield echo + "?merged", {"headers": {"Cookie": "h=1"}, "cookies": {"a": "changed"}}
        yield echo + "?apart", {"headers": {"Cookie": "h=1"}, "meta": {"dont_merge_cookies": True}}
        yield echo + "?apart2", {"cookies": {"z": "1"}, "meta": {"dont_merge_cookies": True}}
        yield echo + "?jar", {"cookies": {"j": "1"}, "meta": {"cookiejar": 1}}
        yield echo + "?jar1", {"meta": {"cookiejar": 1}}
        yield echo + "?jar2", {"meta": {"cookiejar": 2}}
        listed = [
            {"name": "l", "value": "1", "domain": "forum.example", "path": "/"},
            {"name": "m", "value": "2", "path": "/echo"},
            {"name": "n", "value": "3", "domain": "other.example"},
            {"name": "o", "value": "4", "secure": True},
            {"value": "nameless"},
        ]
        yield echo + "?list", {"cookies": listed}
        yield echo + "?odd", {"cookies": {"utf": "\u00e9", "text": "a b", "eq": "x=y"}}
        yield "http://forum.example/login", {"cookies": {"before": "login"}}
        yield echo + "?after", {}

    def start_requests(self):
        self.left = list(self.steps())
        yield self.request()

    def request(self):
        url, options = self.left.pop(0)
        return scrapy.Request(url, self.parse_step, dont_filter=True, **options)

    def parse_step(self, response):
        if b"json" in response.headers["Content-Type"]:
            yield {"url": response.url, "cookies": json.loads(response.text)["cookies"]}
        if self.left:
            yield self.request()
