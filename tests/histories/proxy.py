"""A wire between a worker and its store that can be cut, stalled and slowed."""

from __future__ import annotations

import trio

__all__ = ["Wire"]


class Wire:
    """A TCP proxy of one worker.

    Attributes:
        port: Where it listens.
        address: On which address.
        target: The store's port. What is connected stays.
        delay: Seconds that each piece is late, in both directions.
        is_cut: Nobody gets through: what comes is refused.
    """

    def __init__(self, target: int, address: str = "127.0.0.1") -> None:
        self.port = 0
        self.address = address
        self.target = target
        self.delay = 0.0
        self.is_cut = False
        self._flows = trio.Event()
        self._flows.set()
        self._answers = trio.Event()
        self._answers.set()
        self._ends: set[trio.CancelScope] = set()

    def cut(self) -> None:
        """End what is connected, and refuse what comes, until :meth:`mend`."""
        self.is_cut = True
        self.drop()

    def drop(self) -> None:
        """End what is connected."""
        for scope in self._ends:
            scope.cancel()

    def stall(self) -> None:
        """Keep what is connected, and let nothing through, until :meth:`mend`."""
        self._flows = trio.Event()

    def mute(self) -> None:
        """Let no answer of the store through, until :meth:`mend`."""
        self._answers = trio.Event()

    def mend(self) -> None:
        """Let everything through, at once."""
        self.is_cut, self.delay = False, 0.0
        self._flows.set()
        self._answers.set()

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        """Pass on what comes. Does not return."""
        (listener,) = await trio.open_tcp_listeners(0, host=self.address)
        self.port = listener.socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._connected, [listener])

    async def _connected(self, near: trio.SocketStream) -> None:
        if self.is_cut:
            return
        try:
            far = await trio.open_tcp_stream("127.0.0.1", self.target)
        except OSError:
            return  # the store is away
        async with far, trio.open_nursery() as nursery:
            self._ends.add(nursery.cancel_scope)
            nursery.start_soon(self._pass, near, far, nursery.cancel_scope, False)
            nursery.start_soon(self._pass, far, near, nursery.cancel_scope, True)
        self._ends.discard(nursery.cancel_scope)

    async def _pass(
        self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope, is_answer: bool
    ) -> None:
        try:
            while data := await source.receive_some():
                if self.delay:
                    await trio.sleep(self.delay)
                await self._flows.wait()
                if is_answer:
                    await self._answers.wait()
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # one end is gone
        finally:
            scope.cancel()
