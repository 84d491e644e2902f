from itemadapter import ItemAdapter
from scrapy.exporters import CsvItemExporter, JsonLinesItemExporter


class PerCategoryPipeline:
    """One file for each kind of item."""

    def open_spider(self, spider):
        self.kinds = {}

    def close_spider(self, spider):
        for exporter, file in self.kinds.values():
            exporter.finish_exporting()
            file.close()

    def _exporter_for(self, item):
        kind = ItemAdapter(item)["kind"]
        if kind not in self.kinds:
            file = open(f"{kind}.jl", "wb")
            exporter = JsonLinesItemExporter(file, ensure_ascii=False, encoding="utf-8")
            exporter.start_exporting()
            self.kinds[kind] = exporter, file
        return self.kinds[kind][0]

    def process_item(self, item, spider):
        self._exporter_for(item).export_item(item)
        return item


class CsvPipeline:
    def open_spider(self, spider):
        self.file = open("all.csv", "wb")
        self.exporter = CsvItemExporter(
            self.file, fields_to_export=spider.settings.getlist("CSV_FIELDS"), join_multivalued="|"
        )
        self.exporter.start_exporting()

    def close_spider(self, spider):
        self.exporter.finish_exporting()
        self.file.close()

    def process_item(self, item, spider):
        self.exporter.export_item(item)
        return item
