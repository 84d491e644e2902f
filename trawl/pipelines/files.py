"""The pipeline of files. It downloads the ``file_urls`` of an item and sets ``files``.

Only the package's ``__init__`` imports this module, when it is needed. The module's name is the same as in Scrapy.
"""

from __future__ import annotations

import mimetypes
import re
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from trawl.http import Request, Response
from trawl.pipelines.media import MediaInfo, MediaPipeline, aliased, name_of

__all__ = ["FilesPipeline"]

_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,10}\Z")


class FilesPipeline(MediaPipeline):
    """Downloads the files whose URLs are in the field ``FILES_URLS_FIELD`` of items, to ``FILES_STORE``."""

    kind = "FILES"
    files_urls_field: str = aliased("urls_field")
    files_result_field: str = aliased("result_field")

    def file_path(
        self, request: Request, response: Response | None = None, info: MediaInfo | None = None, *, item: Any = None
    ) -> str:
        """Return ``full/``, the SHA-1 of the content, and the extension of the URL or of the content type.

        Without a response, or if ``MEDIA_LIKE_SCRAPY`` is true, the path has the SHA-1 of the URL. If
        ``MEDIA_LIKE_SCRAPY`` is true, an extension that the system does not know is omitted.
        """
        if self.is_like_scrapy:
            return f"full/{name_of(request, None)}{_known_ending(request.url)}"
        return f"full/{name_of(request, response)}{_ending(request, response)}"


def _known_ending(url: str) -> str:
    for ending in (PurePosixPath(urlsplit(url).path).suffix, PurePosixPath(url).suffix):
        if ending in mimetypes.types_map:
            return ending
    return mimetypes.guess_extension(mimetypes.guess_type(url)[0] or "") or ""


def _ending(request: Request, response: Response | None) -> str:
    ending = PurePosixPath(urlsplit(request.url).path).suffix
    if _EXTENSION.match(ending):
        return ending.lower()
    kind = "" if response is None else response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return mimetypes.guess_extension(kind) or ""
