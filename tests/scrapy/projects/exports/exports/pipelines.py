from itemadapter import ItemAdapter
from scrapy.exporters import CsvItemExporter, XmlItemExporter


class PerCategoryCsvPipeline:
    """Distribute items across multiple CSV files by their category"""

    def open_spider(self, spider):
        self.exporters = {}

    def close_spider(self, spider):
        for exporter, file in self.exporters.values():
            exporter.finish_exporting()
            file.close()

    def process_item(self, item, spider):
        category = ItemAdapter(item).get("category", "none")
        if category not in self.exporters:
            file = open(f"category-{category}.csv", "wb")
            exporter = CsvItemExporter(file, fields_to_export=["name", "tags", "price"])
            exporter.start_exporting()
            self.exporters[category] = (exporter, file)
        self.exporters[category][0].export_item(item)
        return item


class XmlExportPipeline:
    def open_spider(self, spider):
        self.file = open("pipeline.xml", "wb")
        self.exporter = XmlItemExporter(self.file, root_element="products", item_element="product", indent=1)
        self.exporter.start_exporting()

    def close_spider(self, spider):
        self.exporter.finish_exporting()
        self.file.close()

    def process_item(self, item, spider):
        self.exporter.export_item(item)
        return item
