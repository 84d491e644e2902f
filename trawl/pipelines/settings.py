"""The settings of item pipelines."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

__all__ = ["PipelinesSettings"]


class PipelinesSettings(msgspec.Struct, frozen=True, kw_only=True, rename="upper"):
    """Item pipelines, and the files and images that they download."""

    item_pipelines: Annotated[
        dict[Any, float | None],
        Meta(
            description="Pipelines that process each item: classes or import paths, each with a number for the order "
            "(low numbers first). null removes a pipeline.",
        ),
    ] = msgspec.field(default_factory=dict)
    files_store: Annotated[
        str,
        Meta(description="Folder of FilesPipeline, or the URL of a store (s3://...)."),
    ] = ""
    files_expires: Annotated[
        float,
        Meta(
            ge=0,
            title="days",
            description="Time after which a stored file is requested again. It is downloaded only if it has changed.",
        ),
    ] = 90.0
    files_urls_field: Annotated[str, Meta(min_length=1, description="Field of items with the URLs of their files.")] = (
        "file_urls"
    )
    files_result_field: Annotated[str, Meta(min_length=1, description="Field of items for the results.")] = "files"
    images_store: Annotated[
        str,
        Meta(description="Folder of ImagesPipeline, or the URL of a store. Needs the extra `images`."),
    ] = ""
    images_expires: Annotated[
        float,
        Meta(
            ge=0,
            title="days",
            description="Time after which a stored image is requested again. It is downloaded only if it has changed.",
        ),
    ] = 90.0
    images_urls_field: Annotated[
        str, Meta(min_length=1, description="Field of items with the URLs of their images.")
    ] = "image_urls"
    images_result_field: Annotated[str, Meta(min_length=1, description="Field of items for the results.")] = "images"
    images_thumbs: Annotated[
        dict[Annotated[str, Meta(min_length=1)], tuple[Annotated[int, Meta(ge=1)], Annotated[int, Meta(ge=1)]]],
        Meta(description="Thumbnails: a mapping of names to maximum width and height, in pixels."),
    ] = msgspec.field(default_factory=dict)
    images_min_width: Annotated[
        int,
        Meta(ge=0, title="pixels", description="Minimum width. Narrower images are not stored. 0 disables the limit."),
    ] = 0
    images_min_height: Annotated[
        int,
        Meta(ge=0, title="pixels", description="Minimum height. Lower images are not stored. 0 disables the limit."),
    ] = 0
    images_max_pixels: Annotated[
        int,
        Meta(
            ge=0,
            title="pixels",
            description="Maximum number of pixels. Larger images are neither decoded nor stored. A file of a few "
            "kilobytes may have billions of pixels, and a decoded pixel takes about 12 bytes. 0 means as many as "
            "Pillow allows.",
        ),
    ] = 50_000_000
    images_formats: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(
            min_length=1,
            description="Formats to decode, by Pillow's names. Images in other formats are not stored. EPS would run "
            "Ghostscript on untrusted input.",
        ),
    ] = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "BMP", "TIFF")
    media_allow_redirects: Annotated[
        bool, Meta(description="Follow redirects of files and images. If false, a redirect is a failure.")
    ] = False
    media_like_scrapy: Annotated[
        bool,
        Meta(
            description="Treat files and images like Scrapy: name them by their URL instead of their content, encode "
            "each image as JPEG again, return the checksum of the stored image, use an existing file at the path if "
            "it is new enough, and download nothing from hosts outside allowed_domains. True for moved spiders.",
        ),
    ] = False
    media_store_options: Annotated[
        dict[str, Any],
        Meta(description="Arguments of the file system (fsspec) of FILES_STORE and IMAGES_STORE."),
    ] = msgspec.field(default_factory=dict)
