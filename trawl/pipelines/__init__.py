"""Item pipelines: the steps that process each item before it is written, in order, and their settings.

Each is an object with ``process_item``, ``open_spider`` or ``close_spider``. Each method may be plain or ``async``,
with Scrapy's arguments: ``process_item(item, spider)``, ``open_spider(spider)``, ``close_spider(spider)``. Each method
may omit the spider. A class with ``from_crawler`` is created by that method.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import msgspec
import trio
from msgspec import Meta

from trawl.errors import DropItem, SettingsError
from trawl.items import InvalidItem
from trawl.middleware.factory import accepts_arguments, entry_name, make_instance
from trawl.throttling.managers import awaited
from trawl.tracebacks import contained

if TYPE_CHECKING:
    from trawl.pipelines.files import FileError, FilesPipeline, MediaInfo, MediaPipeline
    from trawl.pipelines.images import ImagesPipeline

__all__ = [
    "FileError",
    "FilesPipeline",
    "ImagesPipeline",
    "MediaInfo",
    "MediaPipeline",
    "PIPELINES_CLOSE_GRACE",
    "Pipelines",
    "PipelinesSettings",
]

_MEDIA = {"ImagesPipeline": "images"} | dict.fromkeys(
    ("FileError", "FilesPipeline", "MediaInfo", "MediaPipeline"), "files"
)


def __getattr__(name: str) -> Any:
    if name in _MEDIA:  # imported lazily, because most crawls download no files
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"trawl.pipelines.{_MEDIA[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


PIPELINES_CLOSE_GRACE = 30.0
"""Maximum seconds for all ``close_spider`` calls together."""

logger: logging.Logger = logging.getLogger("trawl.pipelines")

SETTING = "ITEM_PIPELINES"

Method = Callable[..., Any]


@attrs.frozen
class _Pipeline:
    """One pipeline with its methods, which are looked up once, and None for each missing method."""

    name: str
    process: Method | None
    open: Method | None
    close: Method | None


class Pipelines:
    """The pipelines that each item passes, in order."""

    def __init__(self, pipelines: Sequence[object] = ()) -> None:
        """Chain these objects; SettingsError if one has none of the three methods, or a method has other arguments."""
        self._pipelines = [_looked_up(pipeline) for pipeline in pipelines]

    @classmethod
    def build(cls, settings: PipelinesSettings, crawl: object = None) -> Pipelines:
        """Return the pipelines of ``ITEM_PIPELINES``, in order. ``crawl`` is the argument of ``from_crawler``.

        Pipelines with equal numbers keep their order in the setting.

        Raises:
            SettingsError: If an import path is not that of a class, or a class needs other arguments.
            PartLoadError: If the code of a class or its module failed.
        """
        wanted = [(order, entry) for entry, order in settings.item_pipelines.items() if order is not None]
        wanted.sort(key=lambda pair: pair[0])
        entries = [_OURS.get(entry, entry) if isinstance(entry, str) else entry for _, entry in wanted]
        made = [make_instance(entry, SETTING, crawl) for entry in entries]
        return cls([pipeline for pipeline in made if pipeline is not None])

    @property
    def is_empty(self) -> bool:
        """Return whether there is no pipeline."""
        return not self._pipelines

    async def process(self, item: Any, spider: object) -> Any:
        """Pass an item through all pipelines and return the result. A checkpoint only if a pipeline executes one.

        An invalid item (:class:`trawl.items.InvalidItem`) is returned unchanged.

        Raises:
            DropItem: If a pipeline dropped the item.
            Exception: If a pipeline raised an exception. A note names the pipeline.
            TypeError: If a pipeline returned None, because otherwise the item would be lost silently.
        """
        if type(item) is InvalidItem:
            return item
        for pipeline in self._pipelines:
            if pipeline.process is None:
                continue
            try:
                with contained:
                    passed = pipeline.process(item, spider)
                    if inspect.isawaitable(passed):
                        passed = await passed
            except DropItem:
                raise
            except Exception as error:
                error.add_note(f"in the item pipeline {pipeline.name}")
                raise
            if passed is None:
                raise TypeError(f"process_item of {pipeline.name} returned None: return the item, or raise DropItem")
            item = passed
        return item

    @asynccontextmanager
    async def opened(self, spider: object) -> AsyncGenerator[None, None]:
        """Open all pipelines. On exit, close the opened pipelines in reverse order.

        Pipelines are closed even if the crawl is cancelled. Closing all of them may take ``PIPELINES_CLOSE_GRACE``
        seconds. If closing a pipeline fails, the error is logged and the other pipelines are closed.

        Raises:
            Exception: If an ``open_spider`` raised an exception. A note names the pipeline.
        """
        opened: list[_Pipeline] = []
        try:
            for pipeline in self._pipelines:
                try:
                    with contained:
                        if pipeline.open is not None:
                            await awaited(pipeline.open(spider))
                except Exception as error:
                    error.add_note(f"in open_spider of the item pipeline {pipeline.name}")
                    raise
                opened.append(pipeline)
            yield
        finally:
            await _close(opened, spider)  # noqa: ASYNC102 - shielded, with a timeout


async def _close(pipelines: list[_Pipeline], spider: object) -> None:
    with trio.move_on_after(PIPELINES_CLOSE_GRACE, shield=True) as grace:
        while pipelines:
            pipeline = pipelines.pop()
            try:
                with contained:
                    if pipeline.close is not None:
                        await awaited(pipeline.close(spider))
            except Exception:
                logger.exception("close_spider of the item pipeline %s failed", pipeline.name)
    if grace.cancelled_caught:
        logger.error("the item pipelines did not close within %g s", PIPELINES_CLOSE_GRACE)


def _looked_up(pipeline: object) -> _Pipeline:
    name = entry_name(pipeline)
    process, opens, closes = (
        _with_spider(getattr(pipeline, method, None), taken, f"{name}.{method}")
        for method, taken in (("process_item", 2), ("open_spider", 1), ("close_spider", 1))
    )
    if process is None and opens is None and closes is None:
        raise SettingsError(f"ITEM_PIPELINES: {name} has no process_item", "ITEM_PIPELINES")
    return _Pipeline(name, process, opens, closes)


def _with_spider(method: Method | None, taken: int, name: str) -> Method | None:
    """Return ``method`` for calls with ``taken`` arguments. The last one, the spider, is omitted if need be."""
    if method is None:
        return None
    if not callable(method):
        raise SettingsError(f"ITEM_PIPELINES: {name} must be a function, not {method!r}", "ITEM_PIPELINES")
    if accepts_arguments(method, taken):
        return method
    try:
        inspect.signature(method).bind(*range(taken - 1))
    except TypeError as error:
        given = "an item (and the spider)" if taken == 2 else "the spider, or nothing"
        raise SettingsError(f"ITEM_PIPELINES: {name} has to take {given}: {error}", "ITEM_PIPELINES") from error
    return lambda *arguments: method(*arguments[:-1])


_OURS = {
    "scrapy.pipelines.files.FilesPipeline": "trawl.pipelines.FilesPipeline",
    "scrapy.pipelines.images.ImagesPipeline": "trawl.pipelines.ImagesPipeline",
}
"""Replacements of Scrapy's pipelines."""

_IMAGE_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "BMP", "TIFF")


class PipelinesSettings(msgspec.Struct, frozen=True, kw_only=True, rename="upper"):
    """Item pipelines, and the files and images that they download.

    Attributes:
        item_pipelines: Pipelines that process each item: classes or import paths, each with a number for the order (low
            numbers first). null removes a pipeline.
        files_store: Folder of FilesPipeline, or the URL of a store (s3://...).
        files_expires: Time after which a stored file is requested again. It is downloaded only if it has changed.
        files_urls_field: Field of items with the URLs of their files.
        files_result_field: Field of items for the results.
        images_store: Folder of ImagesPipeline, or the URL of a store. Needs the extra ``images``.
        images_expires: Time after which a stored image is requested again. It is downloaded only if it has changed.
        images_urls_field: Field of items with the URLs of their images.
        images_result_field: Field of items for the results.
        images_thumbs: Thumbnails: a mapping of names to maximum width and height, in pixels.
        images_min_width: Minimum width. Narrower images are not stored. 0 disables the limit.
        images_min_height: Minimum height. Lower images are not stored. 0 disables the limit.
        images_max_pixels: Maximum number of pixels. Larger images are neither decoded nor stored. A file of a few
            kilobytes may have billions of pixels, and a decoded pixel takes about 12 bytes. 0 means as many as Pillow
            allows.
        images_formats: Formats to decode, by Pillow's names. Images in other formats are not stored. EPS would run
            Ghostscript on untrusted input.
        media_allow_redirects: Follow redirects of files and images. If false, a redirect is a failure.
        media_like_scrapy: Treat files and images like Scrapy: name them by their URL instead of their content, encode
            each image as JPEG again, return the checksum of the stored image, use an existing file at the path if it is
            new enough, and download nothing from hosts outside allowed_domains. True for moved spiders.
        media_store_options: Arguments of the file system (fsspec) of FILES_STORE and IMAGES_STORE.
    """

    item_pipelines: dict[Any, float | None] = msgspec.field(default_factory=dict)
    files_store: str = ""
    files_expires: Annotated[float, Meta(ge=0, title="days")] = 90.0
    files_urls_field: Annotated[str, Meta(min_length=1)] = "file_urls"
    files_result_field: Annotated[str, Meta(min_length=1)] = "files"
    images_store: str = ""
    images_expires: Annotated[float, Meta(ge=0, title="days")] = 90.0
    images_urls_field: Annotated[str, Meta(min_length=1)] = "image_urls"
    images_result_field: Annotated[str, Meta(min_length=1)] = "images"
    images_thumbs: dict[
        Annotated[str, Meta(min_length=1)], tuple[Annotated[int, Meta(ge=1)], Annotated[int, Meta(ge=1)]]
    ] = msgspec.field(default_factory=dict)
    images_min_width: Annotated[int, Meta(ge=0, title="pixels")] = 0
    images_min_height: Annotated[int, Meta(ge=0, title="pixels")] = 0
    images_max_pixels: Annotated[int, Meta(ge=0, title="pixels")] = 50_000_000
    images_formats: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)] = _IMAGE_FORMATS
    media_allow_redirects: bool = False
    media_like_scrapy: bool = False
    media_store_options: dict[str, Any] = msgspec.field(default_factory=dict)
