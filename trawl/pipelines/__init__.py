"""Item pipelines: the steps that process each item before it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trawl.pipelines.chain import PIPELINES_CLOSE_GRACE, Pipelines
from trawl.pipelines.settings import PipelinesSettings

if TYPE_CHECKING:
    from trawl.pipelines.files import FilesPipeline
    from trawl.pipelines.images import ImagesPipeline
    from trawl.pipelines.media import FileError, MediaInfo, MediaPipeline

__all__ = [
    "PIPELINES_CLOSE_GRACE",
    "FileError",
    "FilesPipeline",
    "ImagesPipeline",
    "MediaInfo",
    "MediaPipeline",
    "Pipelines",
    "PipelinesSettings",
]

_MEDIA = {
    "FileError": "media",
    "FilesPipeline": "files",
    "ImagesPipeline": "images",
    "MediaInfo": "media",
    "MediaPipeline": "media",
}


def __getattr__(name: str) -> Any:
    if name in _MEDIA:  # imported lazily, because most crawls download no files
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"trawl.pipelines.{_MEDIA[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
