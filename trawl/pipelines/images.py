"""The pipeline of images. It downloads the ``image_urls`` of an item and sets ``images``, with thumbnails.

Pillow (the ``images`` extra) decodes, checks and converts images in a thread. All images are stored as JPEG, as in
Scrapy. JPEG files are kept unchanged, and transparent images get a white background.

An image file of a few kilobytes may decode to gigabytes. So the declared size of an image is checked before the image
is decoded, only known formats are read, and only a few images are decoded at the same time.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import trio

from trawl.errors import SettingsError
from trawl.http import Request, Response
from trawl.pipelines.file_store import check_path
from trawl.pipelines.files import FileError, MediaInfo, MediaPipeline, aliased, name_of
from trawl.throttling.managers import awaited

__all__ = ["ImagesPipeline"]

MAX_DECODED = 2
"""Maximum number of images that are decoded at the same time. Each may take 12 bytes per pixel."""

_MAY_BE_ABSENT = frozenset({"AVIF", "WEBP", "JPEG2000"})
"""Formats that need a library that some builds of Pillow do not include."""


class ImagesPipeline(MediaPipeline):
    """Downloads the images whose URLs are in the field ``IMAGES_URLS_FIELD`` of items, to ``IMAGES_STORE``."""

    kind = "IMAGES"
    images_urls_field: str = aliased("urls_field")
    images_result_field: str = aliased("result_field")

    def __init__(
        self, store_uri: Any = None, download_func: object = None, settings: object = None, *, crawler: Any = None
    ) -> None:
        """Create the pipeline of a crawl. The arguments are the same as for ``MediaPipeline``.

        Raises:
            NotConfigured: If ``IMAGES_STORE`` names no store.
            SettingsError: If the store, a thumbnail's name or a format can't be used, or Pillow is not installed.
        """
        super().__init__(store_uri, crawler=crawler)
        crawl = self.info.crawl
        try:
            from PIL import Image, ImageOps, UnidentifiedImageError  # noqa: PLC0415 - an extra, and slow to import
        except ImportError as error:
            raise SettingsError(
                "IMAGES_STORE needs the extra images: pip install 'trawl-crawler[images]'", "IMAGES_STORE"
            ) from error
        self._image: Any = Image
        self._turned: Any = ImageOps.exif_transpose
        # The class of errors whose message is not shown, because it contains the address of a Python object.
        self._unknown: type[Exception] = UnidentifiedImageError
        self.thumbs: dict[str, tuple[int, int]] = dict(self._setting("IMAGES_THUMBS", "THUMBS"))
        for name in self.thumbs:
            try:
                check_path(f"thumbs/{name}")
            except ValueError:
                raise SettingsError(f"IMAGES_THUMBS: {name!r} is not a name for a folder", "IMAGES_THUMBS") from None
        self.min_width: int = self._setting("IMAGES_MIN_WIDTH", "MIN_WIDTH")
        self.min_height: int = self._setting("IMAGES_MIN_HEIGHT", "MIN_HEIGHT")
        self.max_pixels: int = crawl.settings["IMAGES_MAX_PIXELS"]
        self.formats: list[str] = [name.upper() for name in crawl.settings["IMAGES_FORMATS"]]
        Image.init()
        for name in self.formats:
            if name not in Image.OPEN and name not in _MAY_BE_ABSENT:
                raise SettingsError(f"IMAGES_FORMATS: Pillow can't read {name!r}", "IMAGES_FORMATS")
        self.formats = [name for name in self.formats if name in Image.OPEN]
        self._decoders = trio.CapacityLimiter(MAX_DECODED)

    def file_path(
        self, request: Request, response: Response | None = None, info: MediaInfo | None = None, *, item: Any = None
    ) -> str:
        """Return ``full/`` and the SHA-1 of the content. Without a response, use the SHA-1 of the URL, as in Scrapy."""
        return f"full/{name_of(request, None if self.is_like_scrapy else response)}.jpg"

    def thumb_path(
        self,
        request: Request,
        thumb_id: str,
        response: Response | None = None,
        info: MediaInfo | None = None,
        *,
        item: Any = None,
    ) -> str:
        """Return the path of a thumbnail, below the store."""
        return f"thumbs/{thumb_id}/{name_of(request, None if self.is_like_scrapy else response)}.jpg"

    async def keep(self, request: Request, response: Response, item: Any) -> str:
        """Write the image and its thumbnails to the store. Returns the image's path. A checkpoint.

        Raises:
            FileError: If the body is not an image, or the image is too small or too large.
        """
        told: dict[str, Any] = {"response": response, "info": self.info, "item": item}
        path = self.file_path(request, **told)
        thumbs = {name: self.thumb_path(request, name, **told) for name in self.thumbs}
        async with self._decoders:
            await self.info.crawl.blocking.run(self._put, response, path, thumbs)
        return path

    # Scrapy's steps, used if a class overrides one of them or MEDIA_LIKE_SCRAPY is true.

    async def _put_in_store(self, request: Request, response: Response, item: Any) -> tuple[str, str]:
        names = ("file_downloaded", "image_downloaded", "get_images", "convert_image")
        if not self.is_like_scrapy and not self._overrides(*names):
            return await super()._put_in_store(request, response, item)
        path = self.file_path(request, response=response, info=self.info, item=item)
        return path, await awaited(self.file_downloaded(response, request, self.info, item=item))

    async def file_downloaded(self, response: Response, request: Request, info: MediaInfo, *, item: Any = None) -> str:
        """Store the images of a response. Returns the checksum of the first image. A checkpoint."""
        checksum: str = await awaited(self.image_downloaded(response, request, info, item=item))
        return checksum

    async def image_downloaded(self, response: Response, request: Request, info: MediaInfo, *, item: Any = None) -> str:
        """Store the images of :meth:`get_images` in a thread.

        Returns the MD5 of the first stored image. A checkpoint.
        """

        def put() -> str:
            checksum = ""
            for path, _, content in self.get_images(response, request, info, item=item):
                checksum = checksum or hashlib.md5(content.getvalue(), usedforsecurity=False).hexdigest()
                self.store.put(path, content.getvalue())
            return checksum

        async with self._decoders:
            return await self.info.crawl.blocking.run(put)

    def get_images(
        self, response: Response, request: Request, info: MediaInfo, *, item: Any = None
    ) -> Iterator[tuple[str, Any, io.BytesIO]]:
        """Yield the path, the image and the JPEG data of a response's image, then of each thumbnail. Runs in a thread.

        Raises:
            FileError: If the body is not an image, or the image is too small or too large.
        """
        told: dict[str, Any] = {"response": response, "info": info, "item": item}
        path = self.file_path(request, **told)
        image = self._read(lambda: self._turned(self._opened(response.body)))
        self._check_size(image)
        image, content = self._read(lambda: self.convert_image(image, response_body=io.BytesIO(response.body)))
        yield path, image, content
        for name, size in self.thumbs.items():
            place = self.thumb_path(request, name, **told)
            small, small_content = self.convert_image(image, size, response_body=content)
            yield place, small, small_content

    def convert_image(
        self, image: Any, size: tuple[int, int] | None = None, *, response_body: io.BytesIO
    ) -> tuple[Any, io.BytesIO]:
        """Return an image in RGB, and its JPEG data. If ``size`` is given, the image is shrunk to fit into it.

        The data of an opened JPEG is ``response_body``.
        """
        if image.mode == "P" or (image.mode == "RGBA" and image.format in ("PNG", "WEBP")):
            image = self._on_white(image)
        elif image.mode != "RGB":
            image = image.convert("RGB")
        if size is not None:
            image = image.copy()
            image.thumbnail(size, self._image.Resampling.LANCZOS)
        elif image.format == "JPEG":
            return image, response_body
        return image, io.BytesIO(_written(image))

    # trawl's own steps.

    def _put(self, response: Response, path: str, thumbs: dict[str, str]) -> None:
        image, content = self._made(response.body)  # this runs in a thread, so a large body may be read from its file
        for name, place in thumbs.items():
            small = image.copy()
            small.thumbnail(self.thumbs[name], self._image.Resampling.LANCZOS)
            self.store.put(place, _written(small))
        self.store.put(path, content)

    def _made(self, body: bytes) -> tuple[Any, bytes]:
        """Return the image and the bytes to store."""
        opened = self._opened(body)
        self._check_size(opened)
        if opened.format == "JPEG" and opened.mode == "RGB":
            self._read(opened.load)
            return opened, body
        image = self._read(lambda: self._on_white(opened))
        return image, _written(image)

    def _opened(self, body: bytes) -> Any:
        """Return the image, not yet decoded; raise FileError if it is no image, or too large."""
        opened = self._read(lambda: self._image.open(io.BytesIO(body), formats=self.formats))
        width, height = opened.size
        if 0 < self.max_pixels < width * height:
            most = f"{self.max_pixels} (IMAGES_MAX_PIXELS)"
            raise FileError(f"the image is too large: {width}x{height} are more pixels than {most}")
        return opened

    def _check_size(self, image: Any) -> None:
        width, height = image.size
        if width < self.min_width or height < self.min_height:
            least = f"{self.min_width}x{self.min_height}"
            raise FileError(f"the image is too small: {width}x{height}, not {least}")

    def _read(self, step: Callable[[], Any]) -> Any:
        """Return the result of a step of reading an image; raise FileError if the step failed."""
        try:
            return step()
        except FileError:
            raise
        except Exception as error:  # Pillow's decoders may raise any exception
            unknown = "it is not an image of a known format (IMAGES_FORMATS)"
            why = unknown if isinstance(error, self._unknown) else f"it can't be read: {error}"
            raise FileError(why) from error

    def _on_white(self, image: Any) -> Any:
        if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
            image = image.convert("RGBA")
            ground = self._image.new("RGBA", image.size, (255, 255, 255, 255))
            ground.alpha_composite(image)
            image = ground
        return image.convert("RGB")


def _written(image: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, "JPEG")
    return content.getvalue()
