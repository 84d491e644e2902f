from scrapy.spiders import CSVFeedSpider


class RowsSpider(CSVFeedSpider):
    name = "rows"
    start_urls = ["http://files.example/feed.csv"]
    delimiter = ";"
    quotechar = "'"
    headers = ["id", "name", "description"]

    def parse_row(self, response, row):
        self.logger.info("Hi, this is a row!: %r", row)
        item = {}
        item["id"] = row["id"]
        item["name"] = row["name"]
        return item
