"""The pipeline of files and the base of image pipelines. They fetch URLs of items through the throttle and store files.

Each download is a direct fetch. Like the request for a page, it waits for its scopes, obeys robots.txt, is retried, and
is limited by ``DOWNLOAD_MAXSIZE``. A large body is written to a temporary file of the store while it arrives. A small
body stays in memory until it is written. A URL is fetched once in a crawl, even if several items name it. A URL in the
store is not fetched again before its file expires. After that, the URL is requested with ``If-None-Match`` and
``If-Modified-Since`` (RFC 9110, section 13.1).
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import mimetypes
import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, MutableMapping, Sequence
from contextlib import aclosing
from operator import attrgetter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias
from urllib.parse import urlsplit

import attrs
import msgspec
import trio

from trawl.errors import NotConfigured, SettingsError, TrawlError
from trawl.http import FileResponse, Request, Response, body_bytes, fingerprint
from trawl.items import field_names, item_fields
from trawl.middleware import MiddlewareCrawl
from trawl.pipelines.file_store import (
    FileRecord,
    FileStore,
    IncompleteFile,
    digest_of,
    open_file_store,
)
from trawl.scheduler import AdmissionRules, SchedulerSettings
from trawl.scrapy_names import Unsupported
from trawl.throttling.managers import awaited
from trawl.tracebacks import contained

__all__ = ["FileError", "FilesPipeline", "MediaInfo", "MediaPipeline", "Result", "aliased", "name_of"]

MAX_KNOWN = 10_000
"""Number of URLs whose results a crawl keeps in memory. Other URLs are looked up in the store again."""

MAX_AT_ONCE = 100  # maximum number of files in flight for one item, because an item may name a hundred thousand files
DAY = 86_400.0

logger: logging.Logger = logging.getLogger("trawl.pipelines")

Result = tuple[bool, Any]
"""Result of one URL: True and its file's ``url``, ``path``, ``checksum`` and ``status``, or False and the error."""


class FileError(TrawlError):
    """A file could not be downloaded, or was rejected. The message gives the reason."""


@attrs.frozen
class MediaInfo:
    """The crawl, as passed to the methods of a pipeline.

    Attributes:
        crawl: The running crawl.
        spider: The crawl's spider.
    """

    crawl: MiddlewareCrawl
    spider: Any


_STORES = "takes a folder or a URL of fsspec, and MEDIA_STORE_OPTIONS has the options of the store"


class MediaPipeline(ABC):
    """Fetches and stores the URLs that an item names.

    Override :meth:`get_media_requests`, :meth:`file_path` and other methods. :meth:`file_path` is plain. All other
    methods may be plain or async.
    """

    kind: ClassVar[str] = "FILES"
    """Prefix of the names of the pipeline's settings."""

    SpiderInfo: TypeAlias = MediaInfo
    """The class of ``info``, under Scrapy's name."""
    if not TYPE_CHECKING:
        STORE_SCHEMES = Unsupported(f"FILES_STORE {_STORES}")

    def __init__(
        self, store_uri: Any = None, download_func: object = None, settings: object = None, *, crawler: Any = None
    ) -> None:
        """Create the pipeline of a crawl, which is the first argument or, as in Scrapy's classes, ``crawler``.

        In the latter case, ``store_uri`` is a store that replaces the store in the setting. The other two arguments are
        ignored. Scrapy's older classes pass them.

        Raises:
            NotConfigured: If the setting names no store.
            SettingsError: If the store can't be used.
        """
        for own in ("_get_store", "STORE_SCHEMES"):
            if hasattr(self, own):
                setting = f"{self.kind}_STORE"
                raise SettingsError(f"{type(self).__name__}.{own} has no effect: {setting} {_STORES}", setting)
        crawl, given = (store_uri, None) if crawler is None else (crawler, store_uri)
        store = str(given or crawl.settings[f"{self.kind}_STORE"])
        if not store:
            raise NotConfigured(f"{self.kind}_STORE names no store")
        self.crawler: MiddlewareCrawl = crawl
        self.info: MediaInfo = MediaInfo(crawl, crawl.spider)
        self.spiderinfo: MediaInfo = self.info
        self.store: FileStore = open_file_store(store, crawl.settings["MEDIA_STORE_OPTIONS"], f"{self.kind}_STORE")
        self.urls_field: str = self._setting(f"{self.kind}_URLS_FIELD", f"DEFAULT_{self.kind}_URLS_FIELD")
        self.result_field: str = self._setting(f"{self.kind}_RESULT_FIELD", f"DEFAULT_{self.kind}_RESULT_FIELD")
        self.expires: float = self._setting(f"{self.kind}_EXPIRES", "EXPIRES")  # in days, as in Scrapy
        self.allows_redirects: bool = self._setting("MEDIA_ALLOW_REDIRECTS")
        self.is_like_scrapy: bool = crawl.settings["MEDIA_LIKE_SCRAPY"]
        allowed = getattr(crawl.spider, "allowed_domains", ()) if self.is_like_scrapy else ()
        self._rules = AdmissionRules(SchedulerSettings(), allowed)
        self._fieldless: set[type] = set()
        self._results: OrderedDict[bytes, Result] = OrderedDict()
        self._under_way: dict[bytes, trio.Event] = {}

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Return the pipeline of a crawl.

        If the constructor has a keyword argument ``crawler``, it gets the store as its first argument.
        """
        parameters = inspect.signature(cls.__init__).parameters
        kinds = {each.kind for name, each in parameters.items() if name == "crawler" or each.kind is each.VAR_KEYWORD}
        if kinds & {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}:
            return cls(crawler.settings[f"{cls.kind}_STORE"], crawler=crawler)
        return cls(crawler)

    def _setting(self, name: str, default: str = "") -> Any:
        """Return the setting ``CLASSNAME_NAME`` if it exists, or ``NAME``. A class attribute replaces a default."""
        settings = self.info.crawl.settings
        own = settings.get(f"{type(self).__name__.upper()}_{name}", None)
        if own:
            return own
        source = getattr(settings, "source", None)  # a plain mapping does not have this method
        is_set = source is None or source(name) != "default"
        attributes = () if is_set else (name, default)
        return next((getattr(self, each) for each in attributes if hasattr(self, each)), settings[name])

    def _overrides(self, *names: str) -> bool:
        """Return whether a user class overrides one of these methods."""
        return any(not getattr(type(self), name).__module__.startswith("trawl.pipelines.") for name in names)

    # Methods to override.

    def get_media_requests(self, item: Any, info: MediaInfo) -> Any:
        """Return the requests for an item's files, by default one for each URL in the item's field of URLs.

        If a value is not a URL, or the field is not a list, this is logged and counted like a failed download.
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
        """Return a file's path below the store. If the path depends on the content, equal files are stored once."""

    async def keep(self, request: Request, response: Response, item: Any) -> str:
        """Write the response to the store. Returns its path. A checkpoint.

        Raises:
            FileError: If the file is not wanted.
        """
        path = self.file_path(request, response=response, info=self.info, item=item)
        if isinstance(response, FileResponse) and isinstance(response.sink, IncompleteFile):
            await response.sink.keep(path)
        else:
            await self.info.crawl.blocking.run(self.store.put, path, response.body)
        return path

    def item_completed(self, results: Sequence[Result], item: Any, info: MediaInfo) -> Any:
        """Return the item with its results. By default, the results are stored in the item's field for results.

        If an item has no such field, it is returned unchanged, and one warning is logged for its class.
        """
        files = [found for is_there, found in results if is_there]
        try:
            if isinstance(item, MutableMapping):
                item[self.result_field] = files
            elif self.result_field in field_names(type(item)):
                setattr(item, self.result_field, files)
            else:
                raise KeyError(self.result_field)
        except KeyError:
            if type(item) not in self._fieldless:
                self._fieldless.add(type(item))
                words = "%s: items of type %s have no field %s: their results are not stored"
                logger.warning(words, type(self).__name__, type(item).__name__, self.result_field)
        except (AttributeError, TypeError, ValueError) as error:
            raise FileError(f"an item of type {type(item).__name__} takes no {self.result_field}: {error}") from error
        return item

    # Scrapy's steps. A class may override each step, also with an async function.

    def open_spider(self, spider: Any = None) -> None:  # noqa: B027 - may be overridden, and called by super()
        """Do nothing. Called when the crawl starts."""

    async def media_to_download(self, request: Request, info: MediaInfo, *, item: Any = None) -> dict[str, str] | None:
        """Return ``url``, ``path``, ``checksum`` and ``status`` of a stored file; None if the file must be fetched."""
        return (await self._stored(request, item))[1]

    async def media_downloaded(
        self, response: Response, request: Request, info: MediaInfo, *, item: Any = None
    ) -> dict[str, str]:
        """Store a response. Returns ``url``, ``path``, ``checksum`` and ``status`` of the file.

        Raises:
            FileError: If the status code is not 200, or the file is empty or not wanted.
        """
        if response.status != 200:
            raise FileError(f"status {response.status}")
        if not body_bytes(response):
            raise FileError("it is empty")
        path, checksum = await self._put_in_store(request, response, item)
        status = "cached" if "cached" in response.flags else "downloaded"
        return {"url": request.url, "path": path, "checksum": checksum, "status": status}

    def media_failed(self, failure: Exception, request: Request, info: MediaInfo) -> Any:  # noqa: B027 - may be overridden
        """Process the error of a failed file. An override may raise another error, which the results then have."""

    async def file_downloaded(self, response: Response, request: Request, info: MediaInfo, *, item: Any = None) -> str:
        """Write the response to the store, at :meth:`file_path`. Returns its checksum. A checkpoint."""
        await self.keep(request, response, item)
        return digest_of(response, "md5")

    def inc_stats(self, status: str) -> None:
        """Count a file under ``file_count`` and by status."""
        stats = self.info.crawl.stats
        stats.inc("file_count")
        stats.inc(f"file_status_count/{status}")

    # The pipeline.

    async def process_item(self, item: Any, spider: Any = None) -> Any:
        """Return the item when each of its files is stored or has failed. A checkpoint if the item has files."""
        wanted = await awaited(self.get_media_requests(item, self.info))
        requests = [wanted] if isinstance(wanted, Request) else list(wanted or ())
        results: list[Result] = [(False, None)] * len(requests)
        places = iter(range(len(requests)))

        async def fill() -> None:
            for place in places:
                results[place] = await self._result(requests[place], item)

        async with trio.open_nursery() as nursery:
            # The tasks share one iterator over the places in ``results``. A task that has filled a place takes the next
            # place.
            for _ in requests[:MAX_AT_ONCE]:
                nursery.start_soon(fill)
        return await awaited(self.item_completed(results, item, self.info))

    async def _result(self, request: Request, item: Any) -> Result:
        """Return the result of a URL. If the URL is already being fetched for another item, wait for that result."""
        key = fingerprint(request)
        while (under_way := self._under_way.get(key)) is not None:
            await under_way.wait()
        if key in self._results:
            return self._results[key]
        self._under_way[key] = trio.Event()
        try:
            result = self._results[key] = await self._had(request, item)
        finally:
            # Wake waiting tasks even if this fetch was cancelled. In this case, they fetch the URL themselves.
            self._under_way.pop(key).set()
        if len(self._results) > MAX_KNOWN:
            self._results.popitem(last=False)
        return result

    async def _had(self, request: Request, item: Any) -> Result:
        try:
            with contained:
                found = await self._kept(request, item)
            if "status" not in found:
                raise FileError("the result of the pipeline's own methods has no status")
            self.inc_stats(found["status"])
        # The network, the disk or user methods may raise any exception. The item is then processed without the file.
        except Exception as failure:
            error = failure
            try:
                with contained:
                    await awaited(self.media_failed(failure, request, self.info))
            except Exception as other:
                error = other
            self._missed(request.url, error)
            return False, error
        return True, found

    def _missed(self, what: str, error: Exception) -> None:
        self.info.crawl.stats.inc("file_error_count")
        logger.warning("%s: %s: no file: %s", type(self).__name__, what, str(error) or repr(error))

    async def _kept(self, request: Request, item: Any) -> dict[str, str]:
        """Return the file of a URL, fetched if necessary."""
        crawl, url = self.info.crawl, request.url
        if self._overrides("media_to_download"):
            found: Any = await awaited(self.media_to_download(request, self.info, item=item))
            if found:
                return dict(found)
        known, told = await self._stored(request, item)
        if told is not None:
            return told
        if self._rules.is_offsite(request):
            raise FileError("its host is not in allowed_domains: add it there, or give the request meta allow_offsite")
        now = crawl.now_utc().timestamp()
        async with aclosing(IncompleteFile(self.store, crawl.blocking)) as part:
            response = await crawl.fetch(self._asked(request, known, part))
            if known is not None and response.status == 304:
                await crawl.blocking.run(self.store.remember, msgspec.structs.replace(known, fetched_at=now))
                return _told(known)
            own: Any = await awaited(self.media_downloaded(response, request, self.info, item=item))
            told = dict(own)
        known = FileRecord(
            url=url,
            path=told["path"],
            checksum=told["checksum"],
            fetched_at=now,
            etag=str(response.headers.get("ETag", "")),  # str(), because msgspec can't encode the class of the value
            last_modified=str(response.headers.get("Last-Modified", "")),
        )
        await crawl.blocking.run(self.store.remember, known)
        return told

    async def _stored(self, request: Request, item: Any) -> tuple[FileRecord | None, dict[str, str] | None]:
        """Return the record of a URL (None if there is none), and the stored file (None if the URL must be fetched).

        If ``MEDIA_LIKE_SCRAPY`` is true, a file at the path of the URL is used if it is new enough, even if it was
        stored for another URL.
        """
        crawl, url = self.info.crawl, request.url
        now, path = crawl.now_utc().timestamp(), ""
        if self.is_like_scrapy:
            path = self.file_path(request, info=self.info, item=item)
            there = await crawl.blocking.run(self.store.stat_file, path, None, now - self.expires * DAY)
            if there:
                return None, {"url": url, "path": path, "checksum": there["checksum"], "status": "uptodate"}
        known = await crawl.blocking.run(self.store.find, url) if request.method == "GET" else None
        if self.is_like_scrapy and known is not None and known.path != path:
            known = None  # the record is from another pipeline, which uses another path
        is_new = known is not None and now - known.fetched_at < self.expires * DAY
        return known, _told(known) if known is not None and is_new else None

    async def _put_in_store(self, request: Request, response: Response, item: Any) -> tuple[str, str]:
        """Write a response to the store, and return its path and its checksum."""
        if not self._overrides("file_downloaded"):
            return await self.keep(request, response, item), digest_of(response, "md5")
        path = self.file_path(request, response=response, info=self.info, item=item)
        return path, await awaited(self.file_downloaded(response, request, self.info, item=item))

    def _asked(self, request: Request, known: FileRecord | None, part: IncompleteFile) -> Request:
        asked = request.replace(dont_filter=True)
        asked.sink = part
        if not self.allows_redirects:
            asked.meta.setdefault("dont_redirect", True)
        if known is not None and known.etag:
            asked.headers["If-None-Match"] = known.etag
        if known is not None and known.last_modified:
            asked.headers["If-Modified-Since"] = known.last_modified
        return asked


def aliased(name: str) -> Any:
    """Return a property that is another name for an attribute."""

    def write(pipeline: object, value: object) -> None:
        setattr(pipeline, name, value)

    return property(attrgetter(name), write)


def name_of(request: Request, response: Response | None) -> str:
    """Return the SHA-1 of the body in hexadecimal. Without a response, return the SHA-1 of the URL, as in Scrapy."""
    if response is None:
        return hashlib.sha1(request.url.encode(), usedforsecurity=False).hexdigest()
    return digest_of(response, "sha1")


def _told(known: FileRecord) -> dict[str, str]:
    return {"url": known.url, "path": known.path, "checksum": known.checksum, "status": "uptodate"}


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
