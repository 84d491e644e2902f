import abc
import logging

import scrapy

logger = logging.getLogger(__name__)


class PagedMixin:
    next_css = "li.next a"
    max_page = 2

    def next_page(self, response, **kwargs):
        page = response.meta.get("page", 1)
        links = response.css(self.next_css)
        if links and page < self.max_page:
            return response.follow(links[0], meta={"page": page + 1}, **kwargs)


class BaseShopSpider(PagedMixin, scrapy.Spider):
    custom_settings = {"COOKIES_ENABLED": False, "DOWNLOAD_TIMEOUT": 30, "LOG_LEVEL": "INFO", "CONCURRENT_REQUESTS": 2}

    @abc.abstractmethod
    def parse_product(self, response):
        raise NotImplementedError

    def parse(self, response, **kwargs):
        yield from response.follow_all(response.css("h3 a"), self.parse_product)
        following = self.next_page(response)
        if following:
            yield following


class ExampleShopSpider(BaseShopSpider):
    name = "example_shop"
    start_urls = ["http://books.example/catalogue/page-3.html"]
    custom_settings = {**BaseShopSpider.custom_settings, "USER_AGENT": "shopbot (+http://bots.example)"}

    def parse_product(self, response):
        logger.info("product %s", response.url)
        yield {"id": response.url.split("-")[-1].split(".")[0], "title": response.css("h1::text").get().strip()}
