"""The settings of pipelines."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

__all__ = ["PipelinesSettings"]


class PipelinesSettings(msgspec.Struct, frozen=True, kw_only=True, rename="upper"):
    """Through what items pass before they are written."""

    item_pipelines: Annotated[
        dict[Any, float | None],
        Meta(
            title="",
            description="Classes, or their import paths, that each item passes, with a number that says in which order "
            "(low first); null takes one out.",
        ),
    ] = msgspec.field(default_factory=dict)
    files_store: Annotated[
        str,
        Meta(title="", description="Where FilesPipeline keeps files: a folder, or the URL of a store (s3://...)."),
    ] = ""
    files_expires: Annotated[
        float,
        Meta(ge=0, title="days", description="How long a file is not asked for again; then it is if it has changed."),
    ] = 90.0
    files_urls_field: Annotated[
        str, Meta(min_length=1, title="", description="The field of items with the URLs of their files.")
    ] = "file_urls"
    files_result_field: Annotated[
        str, Meta(min_length=1, title="", description="The field of items for what became of them.")
    ] = "files"
    images_store: Annotated[
        str,
        Meta(
            title="",
            description="Where ImagesPipeline keeps images: a folder, or the URL of a store. It needs the "
            "`images` extra.",
        ),
    ] = ""
    images_expires: Annotated[
        float,
        Meta(ge=0, title="days", description="How long an image is not asked for again; then it is if it has changed."),
    ] = 90.0
    images_urls_field: Annotated[
        str, Meta(min_length=1, title="", description="The field of items with the URLs of their images.")
    ] = "image_urls"
    images_result_field: Annotated[
        str, Meta(min_length=1, title="", description="The field of items for what became of them.")
    ] = "images"
    images_thumbs: Annotated[
        dict[Annotated[str, Meta(min_length=1)], tuple[Annotated[int, Meta(ge=1)], Annotated[int, Meta(ge=1)]]],
        Meta(title="", description="Thumbnails: a name to the largest width and height, in pixels."),
    ] = msgspec.field(default_factory=dict)
    images_min_width: Annotated[
        int, Meta(ge=0, title="pixels", description="Images that are not as wide are not kept.")
    ] = 0
    images_min_height: Annotated[
        int, Meta(ge=0, title="pixels", description="Images that are not as high are not kept.")
    ] = 0
    images_max_pixels: Annotated[
        int,
        Meta(
            ge=0,
            title="pixels",
            description="Images with more pixels are not decoded and not kept: a file of a few kilobytes may have "
            "billions, each of which takes about 12 bytes. 0: as many as Pillow lets through.",
        ),
    ] = 50_000_000
    images_formats: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(
            min_length=1,
            title="",
            description="Formats that are decoded, as Pillow names them; images of others are not kept. EPS would run "
            "Ghostscript on what a stranger wrote.",
        ),
    ] = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "BMP", "TIFF")
    media_allow_redirects: Annotated[
        bool, Meta(title="", description="Whether redirects of files and images are followed; else they have none.")
    ] = False
    media_store_options: Annotated[
        dict[str, Any],
        Meta(
            title="", description="What the file system of FILES_STORE and IMAGES_STORE is made with, if fsspec does."
        ),
    ] = msgspec.field(default_factory=dict)
