BOT_NAME = "exporting"
SPIDER_MODULES = ["exporting.spiders"]
NEWSPIDER_MODULE = "exporting.spiders"
ROBOTSTXT_OBEY = True
ITEM_PIPELINES = {"exporting.pipelines.PerCategoryPipeline": 300, "exporting.pipelines.CsvPipeline": 400}
CSV_FIELDS = ["id", "title", "tags"]
