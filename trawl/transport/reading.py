"""A response of httpcore's, read whole and within its limits; without importing it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Coroutine, MutableMapping
from typing import Any, Protocol

import trio

from trawl.errors import BodyTooLarge, DownloadError, ResponseBroken
from trawl.http import BodySink, Headers, Outcome, Request, Response
from trawl.transport.limits import Limits
from trawl.transport.settings import TransportSettings
from trawl.transport.spilling import Spill, sink_for

__all__ = ["Answer", "Reading", "Refusable"]

_FORBIDDEN = re.compile(rb"[\r\n\0]")


class Answer(Protocol):
    """What is used of ``httpcore.Response``."""

    status: int
    headers: list[tuple[bytes, bytes]]
    stream: Any
    extensions: MutableMapping[str, Any]

    def aiter_stream(self) -> AsyncIterator[bytes]:
        """The pieces of the body."""
        ...


class Refusable(Protocol):
    """What is used of the stream that we gave httpcore."""

    is_spoilt: bool

    def refuse(self) -> None:
        """Read nothing more."""
        ...


def _check(answer: Answer) -> None:
    """Refuse what HTTP/2 can carry and httpcore lets pass (RFC 9113, 8.2.1; RFC 9110, 15).

    Raises:
        ResponseBroken: The sentence says what it is.
    """
    if not 200 <= answer.status <= 999:
        raise ResponseBroken(f"the answer is broken: its status is {answer.status:03}")
    for name, value in answer.headers:
        if _FORBIDDEN.search(name) or _FORBIDDEN.search(value):
            raise ResponseBroken(f"the answer is broken: the field {name[:50]!r} holds a line end")


class Reading:
    """One response from its headers to its end.

    Args:
        request: What was asked.
        answer: The response, its body unread.
        outcome: Tells how long it took.
        settings: Limits.
        broken: The errors that mean that the body did not come to its end.

    Raises:
        ResponseBroken: Its status or its fields are none.
    """

    def __init__(
        self,
        request: Request,
        answer: Answer,
        outcome: Outcome,
        settings: TransportSettings,
        broken: tuple[type[Exception], ...],
    ) -> None:
        self._request = request
        self._answer = answer
        self._broken = broken
        self._outcome = outcome
        _check(answer)
        self._headers = Headers.from_wire(answer.headers)
        self._limits = Limits.of(settings).for_request(request)
        self._has_body = request.method != "HEAD" and answer.status not in {204, 304}
        length = self._headers.get("Content-Length", "") if self._has_body else ""
        self._length = int(length) if length.isdecimal() else None
        self._body = self._limits.body(self._headers.getlist("Content-Encoding"), self._length)

    def response(self) -> Coroutine[Any, Any, Response]:
        """Read the body and make the response, when awaited.

        Raises:
            DownloadError: It is larger than it may be, or broken.
            Exception: One of ``broken``.
        """
        sink = sink_for(self._request, self._answer.status) if self._has_body else None
        return self._whole(None) if sink is None else self._spilled(sink)

    async def _spilled(self, sink: BodySink) -> Response:
        async with Spill(sink) as spill:
            return await self._whole(spill)

    async def _whole(self, spill: Spill | None) -> Response:
        answer, request = self._answer, self._request
        stream = answer.extensions["network_stream"]
        loss = await self._read(stream, spill) or self._excess(stream)
        body, flags = self._limits.whole(self._body, loss, request)
        make = Response if spill is None else await spill.end(body)
        return make(
            request.url,
            answer.status,
            self._headers,
            body,
            request,
            flags,
            self._outcome.latency,
            ip_address=stream.get_extra_info("server_addr"),
            protocol=answer.extensions.get("http_version", b"HTTP/1.1").decode("ascii"),
        )

    async def _read(self, stream: Refusable, spill: Spill | None) -> DownloadError | None:
        """Read the body to its end; return what is wrong with its end.

        Whatever happens between two pieces, a cancellation included, httpcore's generators are to come to their end,
        which they do when their stream refuses to be read; only then it is told.
        """
        refused: DownloadError | None = None
        cancelled: trio.Cancelled | None = None
        try:
            async for chunk in self._answer.aiter_stream():
                if refused is None and cancelled is None:
                    try:
                        await (self._body.feed(chunk) if spill is None else spill.feed(self._body, chunk))
                    except DownloadError as error:
                        refused = error
                        stream.refuse()
                    except trio.Cancelled as error:  # noqa: ASYNC103 - raised when the generators have ended
                        cancelled = error
                        stream.refuse()
        except self._broken as error:
            if refused is None and cancelled is None:
                if self._limits.is_strict:
                    raise
                return ResponseBroken(str(error))
        if cancelled is not None:
            raise cancelled
        if refused is not None and not (self._limits.truncates and isinstance(refused, BodyTooLarge)):
            raise refused
        return refused

    def _excess(self, stream: Refusable) -> DownloadError | None:
        """Note that more came than the response's framing says; the connection is then dropped (RFC 9112, 6.3).

        httpcore shows what its parser has left to nobody, and would read it as the next response.
        """
        connection: Any = getattr(getattr(self._answer.stream, "_stream", None), "_connection", None)
        state = getattr(connection, "_h11_state", None)
        if state is None:  # HTTP/2 frames its bodies
            return None
        left, _ = state.trailing_data
        if not left:
            return None
        stream.is_spoilt = True
        if self._length is not None and left.strip(b"\r\n"):
            return ResponseBroken(f"more came than its Content-Length of {self._length} bytes")
        return None
