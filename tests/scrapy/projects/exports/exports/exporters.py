from scrapy.exporters import BaseItemExporter, CsvItemExporter


class SemicolonCsvItemExporter(CsvItemExporter):
    def __init__(self, *args, **kwargs):
        kwargs["delimiter"] = ";"
        kwargs["encoding"] = "utf-8"
        super().__init__(*args, **kwargs)

    def serialize_field(self, field, name, value):
        if name == "stock":
            return "yes" if value else "no"
        return super().serialize_field(field, name, value)


class ReportExporter(BaseItemExporter):
    def __init__(self, file, **kwargs):
        self._configure(kwargs, dont_fail=True)
        self.file = file
        self.count = 0

    def export_item(self, item):
        self.count += 1

    def finish_exporting(self):
        self.file.write(f"{self.count} items\n".encode("utf-8"))
