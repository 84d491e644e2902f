"""What the files of a job's own server may have in them before a server reads them."""

from __future__ import annotations

import os
import re
import socket
import struct
from pathlib import Path

import pytest

from tests.other_user import another_user_has
from trawl.cli.local_server import FOLDER
from trawl.cli.server_files import COMMANDS, check_contents, check_files
from trawl.errors import JobError
from trawl.frontier.redis import layout

READS = frozenset(
    b"EXISTS HGET HGETALL HMGET INFO LRANGE SMEMBERS TIME XLEN XRANGE ZCARD ZLEXCOUNT ZRANGE ZRANGEBYSCORE ZREVRANGE"
    b" ZSCORE".split()
)
"""Commands of the scripts that write nothing."""

MANIFEST = "file appendonly.aof.1.base.rdb seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n"


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def string(text: bytes) -> bytes:
    assert len(text) < 64
    return bytes([len(text)]) + text


def snapshot(*values: bytes, magic: bytes = b"REDIS0010") -> bytes:
    return magic + b"\xfa" + string(b"redis-ver") + string(b"7.0.15") + b"".join(values) + b"\xff" + b"\0" * 8


GENUINE = command(b"SELECT", b"0") + command(b"MULTI") + command(b"HSET", b"k", b"f", b"v" * 5000) + command(b"EXEC")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The server's folder of a genuine job."""
    tmp_path.chmod(0o700)
    folder = tmp_path / FOLDER
    (folder / "appendonlydir").mkdir(parents=True)
    (folder / "log").touch()
    put(folder, "appendonly.aof.manifest", MANIFEST.encode())
    put(folder, "appendonly.aof.1.base.rdb", snapshot())
    put(folder, "appendonly.aof.1.incr.aof", GENUINE)
    for path in (folder, folder / "appendonlydir"):
        path.chmod(0o700)
    return folder


def put(folder: Path, name: str, content: bytes) -> None:
    path = folder / "appendonlydir" / name
    path.write_bytes(content)
    path.chmod(0o600)


def refused(folder: Path) -> str:
    with pytest.raises(JobError) as raised:
        check_contents(folder)
    return str(raised.value)


def test_the_commands_that_pass_are_those_of_the_scripts_that_write() -> None:
    named = {name for _, text in layout.scripts().values() for name in re.findall(r"redis\.p?call\('([A-Z]+)'", text)}
    assert {name.encode() for name in named} - READS == COMMANDS
    for name, (_, text) in layout.scripts().items():
        computed = re.findall(r"redis\.p?call\((?!'[A-Z]+')", text)
        assert len(computed) == (name == "able")  # which tries a list of them
    tried = re.findall(r"\{'([A-Z]+)'", layout.scripts()["able"][1])
    assert {name.encode() for name in tried} <= COMMANDS | READS


def test_a_genuine_job_passes(folder: Path) -> None:
    check_files(folder)
    check_contents(folder)


@pytest.mark.parametrize(
    "words",
    [
        (b"MODULE", b"LOAD", b"/tmp/x.so"),
        (b"module", b"loadex", b"/tmp/x.so"),
        (b"CONFIG", b"SET", b"dir", b"/home"),
        (b"EVAL", b"return 1", b"0"),
        (b"EVALSHA", b"0" * 40, b"0"),
        (b"EVAL_RO", b"return 1", b"0"),
        (b"SCRIPT", b"LOAD", b"return 1"),
        (b"SCRIPT", b"FLUSH"),
        (b"FUNCTION", b"LOAD", b"#!lua name=x"),
        (b"FCALL", b"f", b"0"),
        (b"REPLICAOF", b"192.0.2.1", b"6379"),
        (b"SLAVEOF", b"192.0.2.1", b"6379"),
        (b"DEBUG", b"RELOAD"),
        (b"ACL", b"SAVE"),
        (b"MIGRATE", b"192.0.2.1", b"6379", b"k", b"0", b"9"),
        (b"RESTORE", b"k", b"0", b"x"),
        (b"RESTORE-ASKING", b"k", b"0", b"x"),
        (b"SHUTDOWN", b"SAVE"),
        (b"BGSAVE",),
        (b"CLUSTER", b"MEET", b"192.0.2.1", b"6379"),
        (b"FLUSHALL",),
        (b"SET", b"k", b"v"),
        (b"PFDEBUG", b"x"),
        (b"XGROUP", b"CREATE", b"k", b"g", b"0"),
        (b"JSON.SET", b"k", b"$", b"{}"),
        (b"",),
        (b"MODULE\x00", b"LOAD"),
        (b"\x1b[2J",),
    ],
)
def test_a_command_that_trawl_never_writes_is_refused(folder: Path, words: tuple[bytes, ...]) -> None:
    put(folder, "appendonly.aof.1.incr.aof", GENUINE * 300 + command(*words) + GENUINE)
    said = refused(folder)
    assert "appendonlydir/appendonly.aof.1.incr.aof has the command" in said
    assert "never writes" in said
    assert said.isprintable()


@pytest.mark.parametrize("name", ["appendonly.aof.7.base.aof", "appendonly.aof", "AppendOnly.AOF.9.incr.aof"])
def test_every_file_that_a_server_may_read_is_checked(folder: Path, name: str) -> None:
    put(folder, name, command(b"MODULE", b"LOAD", b"/tmp/x.so"))
    assert "MODULE" in refused(folder)


def test_so_is_the_only_file_of_an_older_server(folder: Path) -> None:
    (folder / "appendonly.aof").write_bytes(command(b"MODULE", b"LOAD", b"/tmp/x.so"))
    assert "server/appendonly.aof has the command MODULE" in refused(folder)


def test_the_script_that_redis_6_stores_passes_if_it_is_ours(folder: Path) -> None:
    _, text = layout.scripts()["apply"]
    put(folder, "appendonly.aof.1.incr.aof", command(b"SCRIPT", b"LOAD", text.encode()))
    check_contents(folder)
    put(folder, "appendonly.aof.1.incr.aof", command(b"SCRIPT", b"LOAD", text.encode() + b" "))
    assert "SCRIPT" in refused(folder)


@pytest.mark.parametrize("cut", [1, 2, 5, 20, 5000, 5020, 5040])
def test_a_command_that_a_killed_server_did_not_finish_is_no_harm(folder: Path, cut: int) -> None:
    put(folder, "appendonly.aof.1.incr.aof", (GENUINE * 3)[:-cut])
    check_contents(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"MODULE LOAD /tmp/x.so\r\n" + GENUINE,
        b"*2\n$6\nMODULE\r\n$4\nLOAD\r\n" + GENUINE,
        b"*+1\r\n$4\r\nEXEC\r\n",
        b"*1 \r\n$4\r\nEXEC\r\n",
        b"*01\r\n$4\r\nEXEC\r\n" + GENUINE,
        b"*0\r\n" + GENUINE,
        b"*-1\r\n" + GENUINE,
        b"*1\r\n$-1\r\nEXEC\r\n" + GENUINE,
        b"*1\r\n$0x4\r\nEXEC\r\n" + GENUINE,
        b"*1\r\n$4\x00\r\nEXEC\r\n" + GENUINE,
        b"*1\r\n$4\r\nEXEC  " + command(b"MODULE", b"LOAD", b"x"),
        b"*1\r\n$99999999999\r\nEXEC" + GENUINE,
        b"#TS:1\r\n" + GENUINE,
        GENUINE + b"\0" * 100,
        b"redis0010" + GENUINE,
    ],
)
def test_bytes_that_are_no_commands_are_refused(folder: Path, content: bytes) -> None:
    put(folder, "appendonly.aof.1.incr.aof", content)
    assert "is damaged" in refused(folder)


@pytest.mark.parametrize(
    "line",
    [
        "file ../../../x.aof seq 1 type b",
        "file x.aof seq 1 type i",
        'file "appendonly.aof.1.incr.aof" seq 1 type i',
        "file temp-appendonly.aof.1.incr.aof seq 1 type i",
        "file appendonly.aof.1.incr.aof seq 1 type i\r",
        "seq 1 type i file appendonly.aof.1.incr.aof file x.so",
        "",
        "# a comment",
    ],
)
def test_a_list_of_files_that_names_others_is_refused(folder: Path, line: str) -> None:
    put(folder, "appendonly.aof.manifest", f"{MANIFEST}{line}\n".encode())
    assert "a line that no server writes" in refused(folder)


ZSET = b"\x05" + string(b"k") + b"\x01" + string(b"member") + struct.pack("<d", 1.5)
STREAM = b"\x13" + string(b"k") + b"\x01" + string(b"\0" * 16) + string(b"packed") + b"\x01" * 8
KINDS = [
    b"\xfe\x00\xfb\x40\x40\x00",
    b"\x01" + string(b"k") + b"\x02" + string(b"a") + b"\xc0\x05",  # a list with a number
    b"\x02" + string(b"k") + b"\x01" + b"\xc3\x03\x05abc",  # a set of something compressed
    b"\x04" + string(b"k") + b"\x01" + string(b"f") + b"\x80\x00\x00\x00\x03abc",
    b"\x12" + string(b"k") + b"\x01\x02" + string(b"packed"),
    *[bytes([kind]) + string(b"k") + string(b"packed") for kind in (10, 11, 12, 13, 16, 17, 20)],
    b"\x0e" + string(b"k") + b"\x01" + string(b"packed"),
    ZSET,
    STREAM + b"\x00",
    b"\x0f" + string(b"k") + b"\x00" + b"\x01" * 3 + b"\x00",
]


@pytest.mark.parametrize("magic", [b"REDIS0009", b"REDIS0012", b"VALKEY080"])
def test_a_snapshot_of_the_values_that_trawl_stores_passes(folder: Path, magic: bytes) -> None:
    put(folder, "appendonly.aof.1.base.rdb", snapshot(*KINDS, magic=magic) + GENUINE)
    check_contents(folder)


@pytest.mark.parametrize(
    "value",
    [
        b"\xf5" + string(b"#!lua name=x"),  # a function
        b"\xf6" + string(b"x"),
        b"\xf7\x81" + b"\0" * 8,  # data of a module
        b"\x06" + string(b"k") + string(b"x"),
        b"\x07\x81" + b"\0" * 8,
        b"\xfa" + string(b"lua") + string(b"return 1"),
        b"\xfc" + b"\0" * 8 + ZSET,
        b"\x00" + string(b"k") + string(b"v"),
        b"\x16" + string(b"k") + b"\x00",
        STREAM + b"\x01",
        b"\xfb\xc0\x01\x00",
        b"\xfe\x90",
    ],
)
def test_other_values_of_a_snapshot_are_refused(folder: Path, value: bytes) -> None:
    put(folder, "appendonly.aof.1.base.rdb", snapshot(*KINDS, value, *KINDS))
    assert "snapshot" in refused(folder)


def test_commands_after_a_snapshot_are_checked(folder: Path) -> None:
    put(folder, "appendonly.aof.1.base.rdb", snapshot(*KINDS) + command(b"MODULE", b"LOAD", b"/tmp/x.so"))
    assert "MODULE" in refused(folder)
    put(folder, "appendonly.aof.1.base.rdb", snapshot(*KINDS)[:-9])
    assert "its snapshot ends early" in refused(folder)
    put(folder, "appendonly.aof.1.base.rdb", b"REDIS0004" + b"\xff")
    assert "unknown form" in refused(folder)


PLACES = [
    FOLDER,
    f"{FOLDER}/appendonlydir",
    f"{FOLDER}/log",
    f"{FOLDER}/notes",
    f"{FOLDER}/appendonlydir/appendonly.aof.manifest",
    f"{FOLDER}/appendonlydir/appendonly.aof.1.incr.aof",
    f"{FOLDER}/appendonlydir/temp-rewriteaof-bg-1.aof",
]


@pytest.mark.parametrize("place", [*PLACES, f"{FOLDER}/socket"])
def test_a_link_is_refused_wherever_it_leads(folder: Path, tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    other = tmp_path / "other"
    if path.exists():
        path.rename(other)
    else:
        other.write_bytes(b"mine")
    path.symlink_to(other)
    with pytest.raises(JobError, match=f"{place} is a symbolic link"):
        check_files(folder)


@pytest.mark.parametrize("place", PLACES[2:])
def test_a_second_name_of_another_file_is_refused(folder: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "other").write_bytes(b"mine")
    (tmp_path / place).unlink(missing_ok=True)
    os.link(tmp_path / "other", tmp_path / place)
    with pytest.raises(JobError, match="hard link"):
        check_files(folder)


@pytest.mark.parametrize("place", [".", *PLACES[:2], *PLACES[4:6]])
def test_a_file_that_others_may_write_is_refused(folder: Path, tmp_path: Path, place: str) -> None:
    for bits in (0o020, 0o002):
        mode = (tmp_path / place).stat().st_mode
        (tmp_path / place).chmod(mode | bits)
        with pytest.raises(JobError, match=r"can be written by other users: .*`chmod -R go-w"):
            check_files(folder)
        (tmp_path / place).chmod(mode)
    check_files(folder)


@pytest.mark.parametrize("place", [".", *PLACES[:2], *PLACES[4:6], f"{FOLDER}/socket"])
def test_a_file_of_another_user_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(folder)  # the path of a socket is short
        listener.bind("socket")
    (folder / "socket").chmod(0o700)
    check_files(folder)
    another_user_has(tmp_path / place, monkeypatch)
    with pytest.raises(JobError, match=r"belongs to another user \(uid 4242\)"):
        check_files(folder)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_neither_a_file_nor_what_belongs_there_is_refused(folder: Path, tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    if path.exists():
        path.rename(tmp_path / "other")
    os.mkfifo(path)
    with pytest.raises(JobError, match="of another kind"):
        check_files(folder)
