"""Where downloaded files are kept: a folder, or a store that fsspec knows. All methods block.

Beside the files lies what is known of each URL: which file it gave, when, and by which validators the server knows it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

import msgspec

from trawl.durable import make_folder, sync_content, sync_file, sync_folder
from trawl.errors import SettingsError

__all__ = ["FolderShelf", "Known", "Shelf", "StoreShelf", "open_shelf"]


class Known(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a URL.

    Attributes:
        url: The URL.
        path: The file, below the shelf.
        checksum: The MD5 of what was downloaded, in hexadecimal.
        fetched_at: When the server was last asked, in seconds since 1970 (UTC).
        etag: Its ``ETag`` (RFC 9110, 8.8.3), or "".
        last_modified: Its ``Last-Modified`` (RFC 9110, 8.8.2), or "".
    """

    url: str
    path: str
    checksum: str
    fetched_at: float
    etag: str = ""
    last_modified: str = ""


class Shelf(Protocol):
    """Keeps files by their paths, and what is known of URLs."""

    def known(self, url: str) -> Known | None:
        """What is known of a URL whose file is still there, and not empty; None if nothing."""
        ...

    def know(self, known: Known) -> None:
        """Keep what is known of a URL."""
        ...

    def put(self, path: str, content: bytes) -> None:
        """Keep a file, whole or not at all; in a folder it is on the disk then, where a power cut leaves it.

        Raises:
            ValueError: The path leads out of the shelf.
            OSError: It can't be written.
        """
        ...

    def begin(self) -> tuple[BinaryIO, Path]:
        """A new temporary file on this machine, to be adopted when it is whole, or removed.

        Raises:
            OSError: It can't be made.
        """
        ...

    def adopt(self, path: str, temporary: Path) -> Path:
        """Keep a file that :meth:`begin` made, whole or not at all; where it can be read, if not there any more.

        Raises:
            ValueError: The path leads out of the shelf.
            OSError: It can't be kept; the temporary file is still there.
        """
        ...


class FolderShelf:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        """Files in ``folder``, which is made with the first one."""
        self._folder = folder

    def known(self, url: str) -> Known | None:
        """What is known of a URL whose file is still there."""
        try:
            known = _decoded((self._folder / _note(url)).read_bytes(), url)
        except OSError:
            return None
        if known is None:
            return None
        try:
            status = (self._folder / checked(known.path)).stat()
        except OSError:
            return None
        return known if stat.S_ISREG(status.st_mode) and status.st_size else None

    def know(self, known: Known) -> None:
        """Keep what is known of a URL; a power cut may forget it, and the file is fetched again then."""
        self._write(_note(known.url), msgspec.json.encode(known), is_synced=False)

    def put(self, path: str, content: bytes) -> None:
        """Write beside its place, and move it there; it is on the disk then."""
        self._write(path, content, is_synced=True)

    def _write(self, path: str, content: bytes, *, is_synced: bool) -> None:
        place = self._folder / checked(path)
        make_folder(place.parent)
        file, beside = _temporary(place.parent)
        try:
            with file:
                file.write(content)
                file.flush()
                if is_synced:
                    sync_file(file.fileno())
            os.chmod(beside, 0o644)  # a temporary file is its owner's alone
            os.replace(beside, place)
        except BaseException:
            beside.unlink()
            raise
        if is_synced:
            sync_folder(place.parent)

    def begin(self) -> tuple[BinaryIO, Path]:
        """A temporary file in the folder itself: moving it to its place is one step then, and copies nothing."""
        make_folder(self._folder)
        return _temporary(self._folder)

    def adopt(self, path: str, temporary: Path) -> Path:
        """Move the file to its place; it is on the disk then."""
        place = self._folder / checked(path)
        make_folder(place.parent)
        os.chmod(temporary, 0o644)  # a temporary file is its owner's alone
        sync_content(temporary)
        try:
            os.replace(temporary, place)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._copy(temporary, place)
        sync_folder(place.parent)
        return place

    def _copy(self, temporary: Path, place: Path) -> None:
        """Move it to a place on another disk, which is mounted or linked in the folder."""
        file, beside = _temporary(place.parent)
        try:
            with file, temporary.open("rb") as content:
                shutil.copyfileobj(content, file)
                file.flush()
                sync_file(file.fileno())
            os.chmod(beside, 0o644)
            os.replace(beside, place)
        except BaseException:
            beside.unlink()
            raise
        temporary.unlink()


class StoreShelf:
    """A store that fsspec knows."""

    def __init__(self, files: Any, root: str) -> None:
        """Files below ``root`` of a file system of fsspec's."""
        self._files = files
        self._root = root.rstrip("/")

    def known(self, url: str) -> Known | None:
        """What is known of a URL whose file is still there."""
        try:
            known = _decoded(self._files.cat_file(f"{self._root}/{_note(url)}"), url)
        except OSError:
            return None
        if known is None:
            return None
        try:
            return None if self._files.size(f"{self._root}/{checked(known.path)}") == 0 else known
        except OSError:
            return None

    def know(self, known: Known) -> None:
        """Keep what is known of a URL."""
        self.put(_note(known.url), msgspec.json.encode(known))

    def put(self, path: str, content: bytes) -> None:
        """Put an object."""
        self._files.pipe_file(f"{self._root}/{checked(path)}", content)

    def begin(self) -> tuple[BinaryIO, Path]:
        """A temporary file where the system has its own."""
        return _temporary(None)

    def adopt(self, path: str, temporary: Path) -> Path:
        """Put the file as an object, piece by piece; it stays where it was."""
        self._files.put_file(str(temporary), f"{self._root}/{checked(path)}")
        return temporary


def open_shelf(uri: str, options: dict[str, Any], setting: str) -> Shelf:
    """The shelf at a path or URL.

    Args:
        uri: A folder, ``file://...``, or the URL of a store.
        options: What the store's file system is made with.
        setting: The setting that names it, for messages.

    Raises:
        SettingsError: What speaks the store's language is not installed, or there is no such store; or its folder is
            none, or may not be written to.
    """
    scheme, colon, rest = uri.partition("://")
    if not colon:
        return FolderShelf(_folder(Path(uri), setting))
    if scheme.lower() == "file":
        return FolderShelf(_folder(Path(rest), setting))
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

        return StoreShelf(*url_to_fs(uri, **options))
    except ImportError as error:
        extra = "s3" if scheme.lower() == "s3" else "fsspec"
        raise SettingsError(f"{setting}: {uri} needs the extra {extra}: trawl-crawler[{extra}]", setting) from error
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{setting}: {uri}: {error}", setting) from error


def _folder(path: Path, setting: str) -> Path:
    """A folder that is there and may be written to, or can be made."""
    nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise SettingsError(f"{setting}: {str(nearest)!r} is no folder", setting)
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise SettingsError(f"{setting}: {str(nearest)!r} may not be written to", setting)
    return path


def checked(path: str) -> str:
    """A path below a shelf.

    Raises:
        ValueError: It leads out of it, or is none.
    """
    parts = PurePosixPath(path.replace("\\", "/")).parts
    if not parts or parts[0] == "/" or ".." in parts or ":" in parts[0] or "\0" in path:
        raise ValueError(f"{path!r} is no path below the store of files")
    return "/".join(parts)


def _temporary(folder: Path | None) -> tuple[BinaryIO, Path]:
    handle, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
    return open(handle, "wb"), Path(name)


def _note(url: str) -> str:
    return f".urls/{hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()}.json"


def _decoded(content: bytes, url: str) -> Known | None:
    try:
        known = msgspec.json.decode(content, type=Known)
        checked(known.path)
    except (msgspec.DecodeError, ValueError):
        return None
    return known if known.url == url else None
