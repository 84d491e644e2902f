"""DevTools over a carrier without a browser: commands, events, late replies, and every way to end."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import lxml.html
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from trawl.browser.devtools import GONE, CommandFailed, Connection, Pipe, check_sandbox, find_chromium
from trawl.compat.messages import ScrapyHeaders
from trawl.errors import BrowserEnded, UsageError


class Wire:
    """Both ends of a carrier: the test is the browser."""

    def __init__(self) -> None:
        self._out, self.sent = trio.open_memory_channel[bytes](100)
        self.replies, self._in = trio.open_memory_channel[bytes](100)

    async def send(self, message: bytes) -> None:
        await self._out.send(message)

    async def receive(self) -> bytes:
        return await self._in.receive()

    async def command(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self.sent.receive())
        return found

    async def say(self, **message: Any) -> None:
        await self.replies.send(json.dumps(message).encode())


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Connection, Wire]]:
    wire = Wire()
    connection = Connection(wire.send, wire.receive)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        yield connection, wire
        nursery.cancel_scope.cancel()


async def test_a_command_gets_its_own_reply(autojump_clock: MockClock) -> None:
    found: dict[str, Any] = {}

    async def call(name: str) -> None:
        found[name] = await connection.call("s", name, {"a": b"x"})

    async with connected() as (connection, wire), trio.open_nursery() as nursery:
        nursery.start_soon(call, "A.a")
        first = await wire.command()
        nursery.start_soon(call, "B.b")
        second = await wire.command()
        assert first == {"id": first["id"], "method": "A.a", "params": {"a": "eA=="}, "sessionId": "s"}
        await wire.say(id=second["id"], result={"n": 2})
        await wire.say(id=first["id"], result={"n": 1})
    assert found == {"A.a": {"n": 1}, "B.b": {"n": 2}}


async def test_a_command_takes_strings_of_a_moved_crawls_headers_and_of_lxml(autojump_clock: MockClock) -> None:
    fields = ScrapyHeaders({"Server": "x", "Set-Cookie": ["a=1", "b=2"]})
    pairs = [{"name": name, "value": value} for name in fields for value in fields.getlist(name)]
    (link,) = lxml.html.fromstring('<a href="/next">x</a>').xpath("//a/@href")
    async with connected() as (connection, wire):
        connection.post("s", "A.a", {"responseHeaders": pairs, "url": link, fields["Server"]: 1})
        sent = (await wire.command())["params"]
    assert [(each["name"], each["value"]) for each in sent["responseHeaders"]] == [
        ("Server", "x"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
    ]
    assert (sent["url"], sent["x"]) == ("/next", 1)


async def test_a_command_refuses_a_value_that_json_does_not_have(autojump_clock: MockClock) -> None:
    async with connected() as (connection, _):
        with pytest.raises(TypeError, match=r"^a value of type object has no written form in JSON$"):
            await connection.call("s", "A.a", {"x": [object()]})
        assert len(connection._pending) == 0


async def test_a_refused_command_raises_with_the_message(autojump_clock: MockClock) -> None:
    async with connected() as (connection, wire), trio.open_nursery() as nursery:

        async def refuse() -> None:
            command = await wire.command()
            await wire.say(id=command["id"], error={"code": -32000, "message": "No target"})

        nursery.start_soon(refuse)
        with pytest.raises(CommandFailed, match=r"A\.a: No target"):
            await connection.call("", "A.a")


@pytest.mark.parametrize("has_undo", [True, False])
async def test_the_late_reply_of_a_cancelled_command_is_undone(autojump_clock: MockClock, has_undo: bool) -> None:
    undone: list[Any] = []
    async with connected() as (connection, wire):
        with trio.move_on_after(1):
            await connection.call("", "Target.createTarget", undo=undone.append if has_undo else None)
        command = await wire.command()
        assert len(connection._pending) == has_undo
        for _ in range(2):  # a second reply is dropped
            await wire.say(id=command["id"], result={"targetId": "t"})
        await trio.testing.wait_all_tasks_blocked()
        assert undone == ([{"targetId": "t"}] if has_undo else [])
        assert len(connection._pending) == 0


async def test_a_reply_in_the_same_step_as_the_cancel_is_undone_too(autojump_clock: MockClock) -> None:
    undone: list[Any] = []
    async with connected() as (connection, wire), trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def make() -> None:
            with scope:
                await connection.call("", "Target.createTarget", undo=undone.append)

        nursery.start_soon(make)
        command = await wire.command()
        await wire.say(id=command["id"], result={"targetId": "t"})
        scope.cancel()
    assert undone == [{"targetId": "t"}] or not scope.cancelled_caught


async def test_events_go_to_the_handler_of_their_session(autojump_clock: MockClock) -> None:
    heard: list[Any] = []
    async with connected() as (connection, wire):
        connection.handle("s", lambda name, params: heard.append((name, params)))
        await wire.say(method="Page.a", sessionId="s", params={"x": 1})
        await wire.say(method="Page.b", sessionId="other", params={})
        await trio.testing.wait_all_tasks_blocked()
        connection.forget("s")
        await wire.say(method="Page.c", sessionId="s", params={})
        await trio.testing.wait_all_tasks_blocked()
    assert heard == [("Page.a", {"x": 1})]


@pytest.mark.parametrize("last", [b"", b"not JSON", b"[]", b'{"id": "x"}'])
async def test_the_end_of_the_carrier_ends_every_wait(autojump_clock: MockClock, last: bytes) -> None:
    heard: list[str] = []
    async with connected() as (connection, wire), trio.open_nursery() as nursery:
        connection.handle("s", lambda name, params: heard.append(name))

        async def end() -> None:
            await wire.command()
            if last:
                await wire.replies.send(last)
            else:
                wire.replies.close()

        nursery.start_soon(end)
        with pytest.raises(BrowserEnded):
            await connection.call("", "A.a")
        with pytest.raises(BrowserEnded):
            await connection.call("", "B.b")
        assert connection.post("", "C.c") > 0
    assert heard == [GONE]


async def test_half_of_a_surrogate_pair_in_a_string_of_the_page_is_kept(autojump_clock: MockClock) -> None:
    async with connected() as (connection, wire), trio.open_nursery() as nursery:

        async def reply() -> None:
            command = await wire.command()
            await wire.replies.send(b'{"id": %d, "result": {"value": "\\ud800"}}' % command["id"])

        nursery.start_soon(reply)
        assert await connection.call("", "Runtime.evaluate") == {"value": "\ud800"}


@given(st.lists(st.binary(max_size=20).filter(lambda data: b"\0" not in data), max_size=8), st.data())
def test_a_pipe_finds_the_messages_however_they_are_cut(messages: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(message + b"\0" for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    parts = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True) if start < end]

    async def read() -> list[bytes]:
        left, right = trio.testing.memory_stream_one_way_pair()
        pipe = Pipe(left, right)
        found = []
        for part in parts:
            await left.send_all(part)
        await left.aclose()
        with suppress(trio.EndOfChannel):
            while True:
                found.append(await pipe.receive())
        return found

    assert trio.run(read) == messages


def test_a_path_that_is_no_program_is_named() -> None:
    with pytest.raises(UsageError, match="BROWSER_PATH: 'no-such-program'"):
        find_chromium("no-such-program")


def test_without_any_chromium_the_message_says_how_to_install_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match="apt install chromium-headless-shell"):
        find_chromium()
    own = tmp_path / ".cache/ms-playwright/chromium-1/chrome-linux/headless_shell"
    own.parent.mkdir(parents=True)
    own.write_text("")
    own.chmod(0o755)
    assert find_chromium() == str(own)


def test_root_gets_no_browser_without_a_sandbox_by_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(UsageError, match="set BROWSER_SANDBOX to False if all pages are your own"):
        check_sandbox(has_sandbox=True)
    check_sandbox(has_sandbox=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    check_sandbox(has_sandbox=True)
