"""The file that names the running callbacks outlives its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from trawl.errors import JobError
from trawl.frontier import Record
from trawl.frontier.running_callbacks import MAX_SLOTS, LeftFile, RunningCallbacks, key_of, state_folder
from trawl.http import Request

URL = "http://a.example/1"


def record(url: str = URL, *, fingerprint: bytes | None = None, order: int = 1) -> Record:
    made = Record(Request(url=url), (), "http://a.example", fingerprint=fingerprint)
    made.order = order
    return made


def left(folder: Path) -> list[list[str]]:
    """Return the URLs in each file that a dead process has left, and remove the files."""
    found = LeftFile.all_in(folder)
    for each in found:
        each.remove()
    return [sorted(callback.url for callback in each.callbacks) for each in found]


def copy_as_dead(folder: Path) -> None:
    """Leave a copy of the files in a folder, as a killed process does: not locked."""
    for path in list(folder.iterdir()):
        (folder / f"{path.name}0").write_bytes(path.read_bytes())


def test_a_dead_process_leaves_the_callbacks_that_ran(tmp_path: Path) -> None:
    running = RunningCallbacks(tmp_path)
    keys = [bytes([n]) * 16 for n in range(3)]
    slots = [running.begin(key, f"{URL}{n}") for n, key in enumerate(keys)]
    running.end(slots[1])
    copy_as_dead(tmp_path)
    (found,) = LeftFile.all_in(tmp_path)
    assert {(each.key, each.url) for each in found.callbacks} == {(keys[0], f"{URL}0"), (keys[2], f"{URL}2")}
    found.remove()
    running.close()
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_a_running_process_is_left_alone(tmp_path: Path) -> None:
    running = RunningCallbacks(tmp_path)
    running.begin(b"k" * 16, URL)
    assert left(tmp_path) == []
    running.close()
    running.close()


@pytest.mark.parametrize("end", ["os._exit(0)", "ctypes.string_at(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
@pytest.mark.long
def test_the_kernel_keeps_what_a_killed_process_wrote(tmp_path: Path, end: str) -> None:
    program = (
        "import ctypes, os, signal, sys; from pathlib import Path;"
        "from trawl.frontier.running_callbacks import RunningCallbacks;"
        f"running = RunningCallbacks(Path({str(tmp_path)!r})); running.begin(b'k' * 16, {URL!r}); {end}"
    )
    status = subprocess.run([sys.executable, "-c", program], timeout=300, check=False).returncode
    assert status in (0, -signal.SIGSEGV, -signal.SIGKILL)
    assert left(tmp_path) == [[URL]]
    assert left(tmp_path) == []


def test_a_file_that_two_processes_find_is_counted_once(tmp_path: Path) -> None:
    running = RunningCallbacks(tmp_path)
    running.begin(b"k" * 16, URL)
    copy_as_dead(tmp_path)
    first = LeftFile.all_in(tmp_path)
    assert len(first) == 1
    assert LeftFile.all_in(tmp_path) == []  # the first one holds it
    first[0].close()
    assert left(tmp_path) == [[URL]]
    running.close()


def test_more_callbacks_than_slots_run_without_a_slot(tmp_path: Path) -> None:
    running = RunningCallbacks(tmp_path)
    slot = [running.begin(b"a" * 16, URL) for _ in range(MAX_SLOTS)][-1]
    assert running.begin(b"b" * 16, URL) == -1
    running.end(-1)
    running.end(slot)
    assert running.begin(b"c" * 16, URL) == slot
    running.close()


def test_a_long_url_is_cut(tmp_path: Path) -> None:
    running = RunningCallbacks(tmp_path)
    url = "http://a.example/" + "é" * 1000
    running.begin(b"a" * 16, url)
    running.begin(b"b" * 16, URL)
    copy_as_dead(tmp_path)
    ((first, second),) = left(tmp_path)
    assert first == URL
    assert url.startswith(second.rstrip("\ufffd"))
    assert len(second) > 200
    running.close()


@pytest.mark.parametrize("content", [b"", b"\xff" * 5000, os.urandom(1000)])
def test_a_file_with_other_bytes_names_no_page(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "callbacks.0").write_bytes(content)
    assert left(tmp_path) == [[]]
    assert list(tmp_path.iterdir()) == []


def test_links_are_not_followed_and_not_removed(tmp_path: Path) -> None:
    (target := tmp_path / "other").write_bytes(b"x")
    (tmp_path / "callbacks.link").symlink_to(target)
    (tmp_path / "callbacks.hard").hardlink_to(target)
    (tmp_path / "callbacks.folder").mkdir()
    os.mkfifo(tmp_path / "callbacks.pipe")
    assert left(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 5


def test_the_file_belongs_to_its_user_alone(tmp_path: Path) -> None:
    running = RunningCallbacks(tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_blocks > 0  # a page without a block ends the process if the disk is full
    running.close()


def test_a_record_has_one_key_in_all_runs() -> None:
    mark = b"m" * 16
    assert key_of(record(fingerprint=mark, order=1)) == key_of(record(fingerprint=mark, order=2)) == mark
    assert key_of(record(order=-1)) != key_of(record(order=1))
    assert len(key_of(record(order=1 << 62))) == len(key_of(record(fingerprint=b"of another length"))) == 16


def test_a_job_in_a_server_has_a_folder_of_its_own_for_each_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    one, other = state_folder("redis://store/one"), state_folder("redis://store/other")
    assert one != other
    assert one == state_folder("redis://store/one")
    assert one.stat().st_mode & 0o777 == 0o700
    one.chmod(0o777)
    with pytest.raises(JobError, match="can be written by other users"):
        state_folder("redis://store/one")


def test_without_a_home_the_folder_is_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    folder = state_folder("redis://store/one")
    assert folder.parent == tmp_path / "temporary" / f"trawl-{os.geteuid()}"
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    folder.parent.chmod(0o777)
    with pytest.raises(JobError, match="can be written by other users"):
        state_folder("redis://store/one")
