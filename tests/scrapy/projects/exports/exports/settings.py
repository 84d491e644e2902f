BOT_NAME = "exports"

SPIDER_MODULES = ["exports.spiders"]
NEWSPIDER_MODULE = "exports.spiders"

ITEM_PIPELINES = {
    "exports.pipelines.PerCategoryCsvPipeline": 300,
    "exports.pipelines.XmlExportPipeline": 310,
}

FEED_EXPORTERS = {
    "semicolon": "exports.exporters.SemicolonCsvItemExporter",
    "report": "exports.exporters.ReportExporter",
    "pprint": "scrapy.exporters.PprintItemExporter",
}

FEEDS = {
    "all.csv": {"format": "csv", "overwrite": True},
    "some.csv": {
        "format": "csv",
        "overwrite": True,
        "fields": ["name", "tags", "seen"],
        "item_export_kwargs": {"delimiter": "\t", "include_headers_line": False, "join_multivalued": "; "},
    },
    "renamed.csv": {"format": "csv", "overwrite": True, "fields": {"name": "Name", "price": "Price"}},
    "all.xml": {"format": "xml", "overwrite": True, "indent": 2},
    "one.xml": {"format": "xml", "item_export_kwargs": {"root_element": "shop", "item_element": "product"}},
    "all.json": {"format": "json", "overwrite": True, "indent": 4},
    "plain.json": {"format": "json", "encoding": "utf-8"},
    "all.jl": {"format": "jsonlines"},
    "all.pickle": {"format": "pickle", "overwrite": True},
    "all.semicolon": {"format": "semicolon"},
    "all.report": {"format": "report"},
    "all.pprint": {"format": "pprint"},
    "made.csv": {"format": "csv", "item_classes": ["exports.items.Seen"]},
    "empty.json": {"format": "json", "item_classes": ["exports.items.Never"]},
    "unmade.json": {"format": "json", "item_classes": ["exports.items.Never"], "store_empty": False},
}
