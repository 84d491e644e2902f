"""Keys inside Scrapy's settings that trawl does not have: what takes the place of each."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["why_no_key"]

_PACKED = "end its path in .gz, or .zst, to have it compressed"

FEED_KEYS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("postprocessing", "gzip_compresslevel", "gzip_filename", "gzip_mtime", "bz2_compresslevel"),
            *("lzma_check", "lzma_filters", "lzma_format", "lzma_preset"),
        ),
        _PACKED,
    ),
    "export_empty_fields": "csv has a column for each of `fields`; elsewhere give the item's class defaults",
    "fields_to_export": "write `fields` in the feed's entry",
    "uri_params": "%(name)s, %(time)s, %(batch)05d and the names of the spider's attributes are filled in",
}
"""Keys of an entry of Scrapy's FEEDS that are not here, to what takes the place of each."""


def why_no_key(path: str, key: object) -> str:
    """What takes the place of a key of Scrapy's inside a setting; "" if it is none.

    Args:
        path: Of the mapping that has the key, as messages say it: ``"FEEDS['a.json']"``.
        key: Which is not known here.
    """
    return FEED_KEYS.get(str(key), "") if path.startswith("FEEDS") else ""
