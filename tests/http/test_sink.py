"""A response whose body is in a file is a response like any other, and says how large it is without reading."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import BinaryIO

import attrs
import pytest

from trawl.http import BodySink, FileResponse, Request, Response, body_bytes

URL = "http://a.example/"


@attrs.define
class Filled:
    """A sink that has a body."""

    content: bytes
    opened: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def begin(self) -> None: ...

    async def write(self, pieces: Sequence[bytes]) -> None: ...

    async def discard(self) -> None: ...

    def open(self) -> BinaryIO:
        self.opened += 1
        return io.BytesIO(self.content)


def test_its_body_is_read_back_each_time_it_is_asked_for() -> None:
    sink = Filled(b"<title>T</title>")
    response = FileResponse(URL, 200, {"Content-Type": "text/html"}, sink=sink)
    assert response.body == b"<title>T</title>"
    assert response.css("title::text").get() == "T"
    with response.open() as file:
        assert file.read(7) == b"<title>"


def test_its_size_is_known_without_reading() -> None:
    sink = Filled(b"12345")
    response = FileResponse(URL, sink=sink)
    assert response.size_bytes == body_bytes(response) == 5
    assert sink.opened == 0
    assert body_bytes(Response(URL, body=b"123")) == 3


def test_a_changed_one_has_its_body_in_the_same_file() -> None:
    sink = Filled(b"12345")
    response = FileResponse(URL, 200, request=Request(URL), flags=["a"], latency=1.5, sink=sink)
    changed = response.replace(status=201)
    assert (changed.status, changed.flags, changed.latency, changed.request) == (201, ["a"], 1.5, response.request)
    assert changed.sink is sink
    assert response.copy().sink is sink
    assert sink.opened == 0
    assert response.replace(cls=Response).body == b"12345"


def test_one_that_is_given_another_body_has_it_in_memory() -> None:
    sink = Filled(b"12345")
    changed = FileResponse(URL, sink=sink).replace(body=b"123")
    assert (changed.body, changed.size_bytes, changed.sink) == (b"123", 3, None)
    assert changed.replace(status=404).body == b"123"
    response = FileResponse(URL, sink=sink)
    response.body = b"1"
    assert (response.body, response.sink, sink.opened) == (b"1", None, 0)
    with pytest.raises(ValueError, match="has its body in memory"):
        response.open()


def test_a_requests_sink_goes_with_it_when_it_is_changed() -> None:
    class Own(Request):
        """Of a user."""

    sink: BodySink = Filled(b"")
    for kind in (Request, Own):
        request = kind(URL)
        assert request.sink is None
        request.sink = sink
        assert request.replace(url="http://b.example/").sink is sink
