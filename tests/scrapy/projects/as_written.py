import scrapy
from scrapy.http import HtmlResponse
from scrapy.linkextractors import LinkExtractor

PAGE = b"""<html><body>
<a href="/1"><img src="1.png"></a> <a href="/1">Next</a> <a href="/2">Next</a> <a href="/2">Other</a>
<div><a href="/3">Other</a><a href="/3">Next</a></div><div><a href="/3">Next</a></div>
<a href="/4?b=2&a=1">Other</a><a href="/4?a=1&b=2">Next</a>
<a href="http://shop.example:8080/p">Port</a> <a href="http://www.shop.example/w">Www</a> <a href="file:///x">File</a>
<img srcset="a.png 1x, b.png 2x">
</body></html>"""

EXTRACTORS = [
    LinkExtractor(restrict_text="Next"),
    LinkExtractor(restrict_text="Next", canonicalize=True),
    LinkExtractor(restrict_text=["Next", "O"], unique=False),
    LinkExtractor(restrict_text="Next", restrict_css="div"),
    LinkExtractor(allow_domains="shop.example"),
    LinkExtractor(allow_domains=["shop.example:8080", ".shop.example"]),
    LinkExtractor(deny_domains=["Shop.example"]),
    LinkExtractor(tags="img", attrs="srcset", deny_extensions=[]),
]


class AsWrittenSpider(scrapy.Spider):
    name = "as_written"
    start_urls = ["http://forum.example/echo"]

    def parse(self, response):
        page = HtmlResponse("http://books.example/", body=PAGE, encoding="utf-8")
        for number, extractor in enumerate(EXTRACTORS):
            yield {"extractor": number, "links": [(link.url, link.text) for link in extractor.extract_links(page)]}
        text = "one\ntwo\r\nthree\r"
        yield scrapy.FormRequest(response.url, formdata={"a": text, "b": [text, b"x\ny"]}, callback=self.sent)
        yield scrapy.FormRequest(response.url, formdata={"a": text}, method="GET", callback=self.sent)
        yield scrapy.FormRequest(response.url, formdata={"a": text}, encoding="latin-1", callback=self.sent)
        form = b"<form action='/echo' method='post'><textarea name='t'>x\ny\r\nz</textarea><input name='i' value='1&#10;2'></form>"
        filled = HtmlResponse(response.url, body=form, encoding="utf-8")
        yield scrapy.FormRequest.from_response(filled, formdata={"more": "1\n2"}, callback=self.sent)

    def sent(self, response):
        yield {"body": response.request.body.decode(), "url": response.url}
