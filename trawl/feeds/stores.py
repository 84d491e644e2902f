"""Stores of whole objects (S3 and what speaks like it, and all else that fsspec knows): written when a feed is whole.

An object can't be continued. So such a feed is a file of this machine while the crawl runs, and is put into the store
when the feed, or a batch of it, has ended; one that can't be put there stays, and the error names it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import attrs

from trawl.errors import FeedError, SettingsError
from trawl.feeds.options import FeedOptions

__all__ = ["Delivery", "open_store"]

_EXTRAS = {"s3": "s3", "s3a": "s3"}


@attrs.frozen
class Delivery:
    """What becomes of the file of a feed for a store.

    Attributes:
        options: Those of the feed, with the file that is written.
        files: The store: a file system of fsspec's.
        target: The path there.
    """

    options: FeedOptions
    files: Any
    target: str

    def deliver(self) -> None:
        """Put the file into the store, and remove it here. Blocks.

        Raises:
            FeedError: It can't be put there; the file stays.
        """
        local = self._local
        try:
            try:
                self.files.put_file(str(local), self.target)
            except FileNotFoundError:  # a store with folders; in one without, making some may not be allowed
                self.files.makedirs(self.target.rpartition("/")[0], exist_ok=True)
                self.files.put_file(str(local), self.target)
        except Exception as error:  # of the store's own library, whichever that is
            uri = self.options.uri
            raise FeedError(f"feed {uri}: it can't be stored, and is kept as {local}: {error}", uri) from error
        self.forget()

    def forget(self) -> None:
        """Remove the file. Blocks."""
        self._local.unlink(missing_ok=True)

    @property
    def _local(self) -> Path:
        if self.options.local is None:
            raise ValueError("there is no file to be delivered")
        return self.options.local


def open_store(options: FeedOptions) -> Delivery:
    """The store of a feed, which can be reached, and a file to write in its place. Blocks.

    Raises:
        FeedError: The store can't be used, or has such an object, and the feed does not overwrite.
        SettingsError: What speaks its language is not installed.
    """
    uri = options.uri
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

        files, target = url_to_fs(uri, **options.storage)
    except ImportError as error:
        extra = _EXTRAS.get(uri.partition("://")[0].lower(), "fsspec")
        why = f"feed {uri}: needs the extra {extra}: trawl-crawler[{extra}] ({error})"
        raise SettingsError(why, "FEEDS") from error
    except (ValueError, TypeError) as error:
        raise FeedError(f"feed {uri}: {error}", uri) from error
    try:
        is_there = not options.overwrite and files.exists(target)
    except Exception as error:  # of the store's own library, whichever that is
        raise FeedError(f"feed {uri}: the store can't be used: {error}", uri) from error
    if is_there:
        raise FeedError(f"feed {uri}: it is there already, and a store's objects can't be continued; overwrite it", uri)
    try:
        handle, name = tempfile.mkstemp(prefix="trawl-", suffix=f".{options.format}", dir=options.folder)
    except OSError as error:
        raise FeedError(f"feed {uri}: FEED_TEMPDIR: {error}", uri) from error
    os.close(handle)
    return Delivery(attrs.evolve(options, local=Path(name), overwrite=True), files, target)
