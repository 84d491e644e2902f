import re

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


def from_script(value):
    found = re.search(r"go\('(.*?)'\)", value)
    return found.group(1) if found else (None if value.startswith("javascript:") else value)


def numbered(request, response):
    request.meta["from"] = response.url.rpartition("/")[2]
    return request if "book-5" not in request.url else None


class RulesSpider(CrawlSpider):
    name = "rules"
    allowed_domains = ["books.example"]
    start_urls = ["http://books.example/sort.html", "http://books.example/"]
    rules = (
        Rule(LinkExtractor(allow=r"/catalogue/page-[12]\.html$", deny=(r"page-1\.html\?", "private")), follow=True, process_links="only_two"),
        Rule(
            LinkExtractor(
                allow=[r"book-\d+", re.compile(r"never")],
                deny=(r"book-1[0-9]",),
                deny_domains=["ads.example"],
                restrict_xpaths=["//article", "//body"],
                process_value=from_script,
                strip=True,
                unique=True,
            ),
            callback="parse_book",
            process_request=numbered,
            cb_kwargs={"kind": "book"},
            follow=False,
        ),
        Rule(LinkExtractor(allow=r"\.pdf$", deny_extensions=[], tags=("a",), attrs=("href",), restrict_css="a.manual"), callback="parse_file"),
    )

    def only_two(self, links):
        return sorted(links, key=lambda link: link.url)[:2]

    def parse_book(self, response, kind):
        yield {
            "kind": kind,
            "url": response.url,
            "from": response.meta["from"],
            "text": response.meta.get("link_text"),
            "rule": response.meta.get("rule"),
            "depth": response.meta["depth"],
        }

    def parse_file(self, response):
        yield {"file": response.url}
