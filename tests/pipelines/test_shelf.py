"""Where files are kept: in a folder or a store, never outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest

from trawl.errors import SettingsError
from trawl.pipelines.file_store import Known, Shelf, checked, open_shelf

KNOWN = Known(url="http://a.example/x", path="full/x.pdf", checksum="c", fetched_at=1.0, etag='"v"')


@pytest.fixture(params=["folder", "store"])
def shelf(request: Any, tmp_path: Path) -> Iterator[Shelf]:
    uri = str(tmp_path / "shelf") if request.param == "folder" else "memory://shelf/files"
    yield open_shelf(uri, {}, "FILES_STORE")
    fsspec.filesystem("memory").store.clear()


def test_what_is_known_of_a_url_comes_back_while_its_file_is_there(shelf: Shelf) -> None:
    assert shelf.known(KNOWN.url) is None
    shelf.know(KNOWN)
    assert shelf.known(KNOWN.url) is None
    shelf.put(KNOWN.path, b"content")
    assert shelf.known(KNOWN.url) == KNOWN
    assert shelf.known("http://a.example/y") is None


def test_nothing_is_known_of_a_file_that_is_empty(shelf: Shelf) -> None:
    shelf.know(KNOWN)
    shelf.put(KNOWN.path, b"")  # as a power cut may leave it
    assert shelf.known(KNOWN.url) is None


def test_what_can_not_be_read_is_not_known(tmp_path: Path) -> None:
    shelf = open_shelf(str(tmp_path), {}, "FILES_STORE")
    shelf.know(KNOWN)
    [note] = (tmp_path / ".urls").iterdir()
    for content in (b"{", b"{}", note.read_bytes().replace(b"full/x.pdf", b"../../x")):
        note.write_bytes(content)
        assert shelf.known(KNOWN.url) is None


@pytest.mark.parametrize("path", ["", "/etc/passwd", "a/../../b", "C:/x", "..\\x", "a\0b"])
def test_nothing_is_kept_outside(shelf: Shelf, path: str) -> None:
    with pytest.raises(ValueError, match="is no path below the store of files"):
        shelf.put(path, b"x")


def test_a_path_is_cleaned() -> None:
    assert checked("./a//b\\c") == "a/b/c"


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = open_shelf(f"file://{tmp_path}", {}, "FILES_STORE")

    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="no"):
        shelf.put("a", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_nobody_knows_is_told() -> None:
    with pytest.raises(SettingsError, match="FILES_STORE: nowhere://x"):
        open_shelf("nowhere://x", {}, "FILES_STORE")
