"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from trawl.file_sync import write_file


def test_a_file_takes_the_place_of_another_with_its_own_permissions(tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_file(path, b"new", 0o600)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["secret.json"]


def test_a_file_that_others_may_read_which_a_killed_process_left_is_not_written_into(tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    left = tmp_path / f".secret.json.{os.getpid()}"
    left.write_bytes(b"half")
    left.chmod(0o666)
    write_file(path, b"new", 0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not left.exists()


def test_a_folder_that_is_not_there_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "none" / "a", b"new")
    assert list(tmp_path.iterdir()) == []
