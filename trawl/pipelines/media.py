"""Common part of the pipelines of files and images: an item's URLs are fetched through the crawl's throttle and stored.

Each is a direct fetch: it waits for its scopes like a page, obeys robots.txt, is retried and is limited by
``DOWNLOAD_MAXSIZE``. A large body goes to a temporary file of its store while it comes; a small one stays in memory
until it is written. A URL is fetched once in a crawl, whichever items name it. One that is in its store is not fetched
again before it expires, and then requested with ``If-None-Match`` and ``If-Modified-Since`` (RFC 9110, 13.1).
"""

from __future__ import annotations

import hashlib
import inspect
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import attrs
import msgspec
import trio

from trawl.errors import NotConfigured, TrawlError
from trawl.http import FileResponse, Request, Response, body_bytes, fingerprint
from trawl.items import item_fields
from trawl.pipelines.file_store import (
    FileRecord,
    FileStore,
    PartialFile,
    md5_of,
    open_file_store,
    open_partial_file,
    sha1_of,
)

if TYPE_CHECKING:
    from trawl.engine.crawl import Crawl

__all__ = ["FileError", "MediaInfo", "MediaPipeline", "Result", "name_of"]

MAX_KNOWN = 10_000
"""URLs of one crawl whose results are remembered; others are looked up on the store again."""

MAX_AT_ONCE = 100
"""Files of one item that are under way: an item may name a hundred thousand."""

DAY = 86_400.0

logger: logging.Logger = logging.getLogger("trawl.pipelines")

Result = tuple[bool, Any]
"""Of one URL: True with ``url``, ``path``, ``checksum`` and ``status`` of its file, or False with the error."""


class FileError(TrawlError):
    """A file could not be had, or is not wanted; the text says why."""


@attrs.frozen
class MediaInfo:
    """The crawl, as the methods of a pipeline get it.

    Attributes:
        crawl: The running crawl.
        spider: Its spider.
    """

    crawl: Crawl
    spider: Any


class MediaPipeline(ABC):
    """Fetches what an item names, and keeps it; override :meth:`get_media_requests`, :meth:`file_path` and others.

    All methods may be plain or async but :meth:`file_path`, which is plain.
    """

    kind: ClassVar[str] = "FILES"
    """Prefix of the names of its settings."""

    def __init__(self, crawl: Crawl) -> None:
        """A pipeline of a crawl.

        Raises:
            NotConfigured: Its setting names no store.
            SettingsError: The store can't be.
        """
        settings = crawl.settings
        store: str = settings[f"{self.kind}_STORE"]
        if not store:
            raise NotConfigured(f"{self.kind}_STORE names no store")
        self.info: MediaInfo = MediaInfo(crawl, crawl.spider)
        self.store: FileStore = open_file_store(store, settings["MEDIA_STORE_OPTIONS"], f"{self.kind}_STORE")
        self.urls_field: str = settings[f"{self.kind}_URLS_FIELD"]
        self.result_field: str = settings[f"{self.kind}_RESULT_FIELD"]
        self.expires: float = settings[f"{self.kind}_EXPIRES"] * DAY
        self.allows_redirects: bool = settings["MEDIA_ALLOW_REDIRECTS"]
        self._results: OrderedDict[bytes, Result] = OrderedDict()
        self._under_way: dict[bytes, trio.Event] = {}

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """The pipeline of a crawl."""
        return cls(crawler)

    # To be overridden.

    def get_media_requests(self, item: Any, info: MediaInfo) -> Any:
        """Return the requests for an item's files: by default one for each URL in its field of URLs.

        A value that is not a URL is logged and counted like a failed download; so is a field that is not a list.
        """
        urls = item_fields(item).get(self.urls_field) or ()
        if isinstance(urls, str | bytes) or not isinstance(urls, Iterable):
            wrong = TypeError(f"the field {self.urls_field} of an item must be a list of URLs, not {urls!r:.200}")
            self._missed(f"spider {self.info.spider.name!r}", wrong)
            return []
        requests = []
        for url in urls:
            try:
                requests.append(Request(url))
            except (TypeError, ValueError) as error:
                self._missed(repr(url), error)
        return requests

    @abstractmethod
    def file_path(
        self, request: Request, response: Response | None = None, info: MediaInfo | None = None, *, item: Any = None
    ) -> str:
        """Return a file's path, below the store; named by its content, the same file is stored once."""

    async def keep(self, request: Request, response: Response, item: Any) -> str:
        """Write the response to the store. Returns its path. A checkpoint.

        Raises:
            FileError: It is not wanted.
        """
        path = self.file_path(request, response=response, info=self.info, item=item)
        if isinstance(response, FileResponse) and isinstance(response.sink, PartialFile):
            await response.sink.keep(path)
        else:
            await self.info.crawl.blocking.run(self.store.put, path, response.body)
        return path

    def item_completed(self, results: Sequence[Result], item: Any, info: MediaInfo) -> Any:
        """Return the item with its files: by default those that were downloaded, in its field of results."""
        files = [found for is_there, found in results if is_there]
        try:
            if isinstance(item, dict):
                item[self.result_field] = files
            else:
                setattr(item, self.result_field, files)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FileError(f"an item of type {type(item).__name__} takes no {self.result_field}: {error}") from error
        return item

    # The pipeline.

    async def process_item(self, item: Any, spider: Any = None) -> Any:
        """Return the item, once its files are stored or have failed. A checkpoint if it has any."""
        wanted = self.get_media_requests(item, self.info)
        if inspect.isawaitable(wanted):
            wanted = await wanted
        requests = [wanted] if isinstance(wanted, Request) else list(wanted or ())
        results: list[Result] = [(False, None)] * len(requests)
        places = iter(range(len(requests)))

        async def fill() -> None:
            for place in places:
                results[place] = await self._result(requests[place], item)

        async with trio.open_nursery() as nursery:
            for _ in requests[:MAX_AT_ONCE]:
                nursery.start_soon(fill)
        completed = self.item_completed(results, item, self.info)
        return await completed if inspect.isawaitable(completed) else completed

    async def _result(self, request: Request, item: Any) -> Result:
        """Return the result of a URL; one that is already under way for another item is shared."""
        key = fingerprint(request)
        while (under_way := self._under_way.get(key)) is not None:
            await under_way.wait()
        if key in self._results:
            return self._results[key]
        self._under_way[key] = trio.Event()
        try:
            result = self._results[key] = await self._had(request, item)
        finally:
            self._under_way.pop(key).set()
        if len(self._results) > MAX_KNOWN:
            self._results.popitem(last=False)
        return result

    async def _had(self, request: Request, item: Any) -> Result:
        stats = self.info.crawl.stats
        try:
            found = await self._kept(request, item)
        except Exception as error:  # of the wire, the disk, or the user's methods: the item goes on without the file
            self._missed(request.url, error)
            return False, error
        stats.inc("file_count")
        stats.inc(f"file_status_count/{found['status']}")
        return True, found

    def _missed(self, what: str, error: Exception) -> None:
        self.info.crawl.stats.inc("file_error_count")
        logger.warning("%s: %s: no file: %s", type(self).__name__, what, str(error) or repr(error))

    async def _kept(self, request: Request, item: Any) -> dict[str, str]:
        """Return the file of a URL, fetched if necessary."""
        crawl = self.info.crawl
        url = request.url
        known = await crawl.blocking.run(self.store.find, url) if request.method == "GET" else None
        now = crawl.now_utc().timestamp()
        if known is not None and now - known.fetched_at < self.expires:
            return _told(known, "uptodate")
        async with open_partial_file(self.store, crawl.blocking) as part:
            response = await crawl.fetch(self._asked(request, known, part))
            if known is not None and response.status == 304:
                await crawl.blocking.run(self.store.remember, msgspec.structs.replace(known, fetched_at=now))
                return _told(known, "uptodate")
            if response.status != 200:
                raise FileError(f"status {response.status}")
            if not body_bytes(response):
                raise FileError("it is empty")
            path = await self.keep(request, response, item)
            known = FileRecord(
                url=url,
                path=path,
                checksum=md5_of(response),
                fetched_at=now,
                etag=response.headers.get("ETag", ""),
                last_modified=response.headers.get("Last-Modified", ""),
            )
        await crawl.blocking.run(self.store.remember, known)
        return _told(known, "cached" if "cached" in response.flags else "downloaded")

    def _asked(self, request: Request, known: FileRecord | None, part: PartialFile) -> Request:
        asked = request.replace(dont_filter=True)
        asked.sink = part
        if not self.allows_redirects:
            asked.meta.setdefault("dont_redirect", True)
        if known is not None and known.etag:
            asked.headers["If-None-Match"] = known.etag
        if known is not None and known.last_modified:
            asked.headers["If-Modified-Since"] = known.last_modified
        return asked


def name_of(request: Request, response: Response | None) -> str:
    """Return the SHA-1 of the body, in hexadecimal; without a response, of the URL, as in Scrapy."""
    if response is None:
        return hashlib.sha1(request.url.encode(), usedforsecurity=False).hexdigest()
    return sha1_of(response)


def _told(known: FileRecord, status: str) -> dict[str, str]:
    return {"url": known.url, "path": known.path, "checksum": known.checksum, "status": status}
