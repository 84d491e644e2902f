"""Where files are kept: in a folder or a store, never outside of it."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest

from trawl.errors import SettingsError
from trawl.pipelines.file_store import FileRecord, FileStore, check_path, open_file_store

KNOWN = FileRecord(url="http://a.example/x", path="full/x.pdf", checksum="c", fetched_at=1.0, etag='"v"')


@pytest.fixture(params=["folder", "store"])
def store(request: Any, tmp_path: Path) -> Iterator[FileStore]:
    uri = str(tmp_path / "shelf") if request.param == "folder" else "memory://shelf/files"
    yield open_file_store(uri, {}, "FILES_STORE")
    fsspec.filesystem("memory").store.clear()


def test_what_is_known_of_a_url_comes_back_while_its_file_is_there(store: FileStore) -> None:
    assert store.find(KNOWN.url) is None
    store.remember(KNOWN)
    assert store.find(KNOWN.url) is None
    store.put(KNOWN.path, b"content")
    assert store.find(KNOWN.url) == KNOWN
    assert store.find("http://a.example/y") is None


def test_nothing_is_known_of_a_file_that_is_empty(store: FileStore) -> None:
    store.remember(KNOWN)
    store.put(KNOWN.path, b"")  # as a power cut may leave it
    assert store.find(KNOWN.url) is None


def test_a_large_file_is_not_read_into_memory_for_its_checksum(tmp_path: Path) -> None:
    store, content = open_file_store(str(tmp_path), {}, "FILES_STORE"), bytes(1 << 24)
    store.put("x", content)
    tracemalloc.start()
    try:
        told = store.stat_file("x")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told["checksum"] == hashlib.md5(content).hexdigest()
    assert peak_bytes < len(content) // 4


def test_a_file_that_is_too_old_is_not_read_for_its_checksum(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("x", b"x")
    changed_at = store.stat_file("x")["last_modified"]
    assert store.stat_file("x", since=changed_at)["last_modified"] == changed_at
    monkeypatch.delattr(hashlib, "file_digest")
    assert store.stat_file("x", since=changed_at + 1) == {}


def test_no_checksum_is_told_of_a_file_that_is_empty_or_missing(store: FileStore) -> None:
    store.put("x", b"")
    assert store.stat_file("x") == store.stat_file("y") == {}


def test_what_can_not_be_read_is_not_known(tmp_path: Path) -> None:
    store = open_file_store(str(tmp_path), {}, "FILES_STORE")
    store.remember(KNOWN)
    [note] = (tmp_path / ".urls").iterdir()
    for content in (b"{", b"{}", note.read_bytes().replace(b"full/x.pdf", b"../../x")):
        note.write_bytes(content)
        assert store.find(KNOWN.url) is None


@pytest.mark.parametrize("path", ["", "/etc/passwd", "a/../../b", "C:/x", "..\\x", "a\0b"])
def test_nothing_is_kept_outside(store: FileStore, path: str) -> None:
    with pytest.raises(ValueError, match="is not a path below the store"):
        store.put(path, b"x")


def test_a_path_is_cleaned() -> None:
    assert check_path("./a//b\\c") == "a/b/c"


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_file_store(f"file://{tmp_path}", {}, "FILES_STORE")

    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="no"):
        store.put("a", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_nobody_knows_is_told() -> None:
    with pytest.raises(SettingsError, match="FILES_STORE: nowhere://x"):
        open_file_store("nowhere://x", {}, "FILES_STORE")
