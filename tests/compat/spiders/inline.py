import scrapy


class InlineSpider(scrapy.Spider):
    name = "inline"
    start_urls = ["http://www.shop.example/item.php?id=1"]

    async def parse(self, response):
        additional_url = response.xpath('//td[@id="additional_data"]/@href').get()
        additional_request = scrapy.Request(response.urljoin(additional_url))
        additional_response = await self.crawler.engine.download_async(additional_request)
        yield {
            "name": response.css("#item_name::text").get(),
            "description": additional_response.css("#additional_data::text").get(),
        }
