"""The endings of paths that are no pages."""

from __future__ import annotations

__all__ = ["IGNORED_EXTENSIONS"]

IGNORED_EXTENSIONS: tuple[str, ...] = (
    *("7z", "7zip", "bz2", "rar", "tar", "tar.gz", "xz", "zip"),  # archives
    *("mng", "pct", "bmp", "gif", "jpg", "jpeg", "png", "pst", "psp", "tif", "tiff", "ai", "drw", "dxf", "eps"),
    *("ps", "svg", "cdr", "ico", "webp", "avif"),  # images
    *("mp3", "wma", "ogg", "wav", "ra", "aac", "mid", "au", "aiff"),  # sound
    *("3gp", "asf", "asx", "avi", "mov", "mp4", "mpg", "qt", "rm", "swf", "wmv", "m4a", "m4v", "flv", "webm"),
    *("xls", "xlsm", "xlsx", "xltm", "xltx", "potm", "potx", "ppt", "pptm", "pptx", "pps", "doc", "docb", "docm"),
    *("docx", "dotm", "dotx", "odt", "ods", "odg", "odp"),  # office
    *("css", "pdf", "exe", "bin", "rss", "dmg", "iso", "apk", "jar", "sh", "rb", "js", "hta", "bat", "cpl", "msi"),
    *("msp", "py"),
)
"""What a :class:`~trawl.links.LinkExtractor` leaves out unless it is told otherwise: Scrapy's list, and AVIF."""
