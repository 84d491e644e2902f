import scrapy


class HeaderSpider(scrapy.Spider):
    name = "headers"
    start_urls = ["http://books.example/catalogue/book-%d.html" % n for n in range(1, 4)]

    def parse(self, response):
        content_type = response.headers.get("Content-Type", b"")
        if b"text/html" not in content_type:
            return
        if response.headers.get("X-Stock") != b"Yes":
            self.logger.warning("out of stock: %s", response.url)
            return
        cookies = response.headers.getlist("Set-Cookie")
        cookie = response.headers["Set-Cookie"].decode("utf-8").split(";")[0]
        length = int(response.headers.get(b"Content-Length"))
        yield {
            "url": response.url,
            "cookies": len(cookies),
            "first": cookies[0].split(b";")[0].decode(),
            "last": cookie,
            "is_whole": length == len(response.body),
            "has_date": "Date" in response.headers,
            "type": response.headers[b"content-type"].decode("ascii").partition(";")[0],
            "sent": response.request.headers.get("User-Agent", b"").decode().startswith("Me/"),
            "names": sorted(k.decode() for k in response.headers.keys() if k.startswith(b"X-")),
        }

    custom_settings = {"USER_AGENT": "Me/1.0"}
