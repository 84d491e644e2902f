import scrapy
from scrapy import FormRequest, Request


class PostSpider(scrapy.Spider):
    name = "posting"
    url = "http://forum.example/echo"

    def start_requests(self):
        yield FormRequest(self.url, formdata={"q": "grüße", "n": "1", "tags": ["a", "b"]}, callback=self.parse_echo)
        yield FormRequest(self.url, method="GET", formdata={"q": "x y", "n": "2"}, callback=self.parse_echo)
        yield FormRequest(self.url + "?a=1", formdata=[("k", "1"), ("k", "2"), ("k2", "&=")], callback=self.parse_echo)
        yield Request(self.url, method="POST", body="raw=ü", encoding="latin-1", callback=self.parse_echo)
        meta = {"dont_merge_cookies": True}  # the next one may be sent before it
        yield Request(self.url, method="PUT", body=b"\x00\xff", meta=meta, callback=self.parse_echo)
        yield Request(
            self.url + "?c",
            cookies=[{"name": "a", "value": "1"}, {"name": "b", "value": "x y"}],
            headers={"Cookie": "ignored=1", "Referer": "http://forum.example/from"},
            callback=self.parse_echo,
        )
        yield Request(self.url + "?d", cookies={"once": "1"}, meta={"dont_merge_cookies": True}, callback=self.parse_echo)

    def parse_echo(self, response):
        data = response.json()
        data["url"] = response.url
        data["type"] = response.request.headers.get("Content-Type", b"").decode()
        yield data
