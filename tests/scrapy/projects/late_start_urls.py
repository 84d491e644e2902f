from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


def first(links):
    return links[:2]


class LateSpider(CrawlSpider):
    """Sets its domain, its start and its rules by its arguments, before the base class is made."""

    name = "late"
    custom_settings = {"ROBOTSTXT_OBEY": False}

    def __init__(self, domain="books.example", pattern=r"/catalogue/book-(\d+)\.html", *args, **kwargs):
        self.allowed_domains = [domain]
        self.start_urls = [f"http://{domain}/"]
        self.rules = (
            Rule(LinkExtractor(allow=(r"page-\d+",), restrict_css=(".nav", ".pager .next")), follow=True),
            Rule(
                LinkExtractor(allow=pattern, deny=r"book-1\d", restrict_xpaths="//article//h3", canonicalize=True),
                callback="parse_item",
                process_links=lambda links: [link for link in links if "ref" in link.url],
                process_request="mark",
            ),
            Rule(
                LinkExtractor(allow=r"/images/\d+\.png", tags=("img",), attrs=("src",), deny_extensions=()),
                callback=self.parse_image,
                process_links=first,
            ),
        )
        super().__init__(*args, **kwargs)

    def mark(self, request, response):
        request.meta["listing"] = response.url
        request.headers["X-Listing"] = response.url.rsplit("/", 1)[-1]
        return request.replace(priority=1)

    def parse_start_url(self, response):
        yield {"start": response.url, "title": response.css("title::text").get()}

    def parse_item(self, response):
        yield {
            "url": response.url,
            "listing": response.meta["listing"],
            "text": response.meta["link_text"],
            "cookie": [each.decode() for each in response.headers.getlist("Set-Cookie")],
            "stock": response.headers["X-Stock"].decode(),
            "price": response.css(".price_color::text").re_first(r"[\d.,]+", default="n/a"),
        }
        for link in LinkExtractor(restrict_css="#img", tags="img", attrs="src", deny_extensions=[]).extract_links(response):
            yield response.follow(link, self.parse_image)

    def parse_image(self, response):
        yield {"image": response.url, "size": len(response.body), "type": response.headers.get("Content-Type").decode()}
