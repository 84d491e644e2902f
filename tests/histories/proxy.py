"""A proxy between a worker and its store that can cut, stall and slow the connection."""

from __future__ import annotations

import trio

__all__ = ["Wire"]


class Wire:
    """A TCP proxy of one worker.

    Attributes:
        port: The port on which it listens.
        address: The address on which it listens.
        target: The store's port. A change does not affect open connections.
        delay: Seconds of delay for each chunk, in both directions.
        is_cut: Whether new connections are refused.
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
        """End all connections, and refuse new connections until :meth:`mend`."""
        self.is_cut = True
        self.drop()

    def drop(self) -> None:
        """End all connections."""
        for scope in self._ends:
            scope.cancel()

    def stall(self) -> None:
        """Keep the connections, but pass no data until :meth:`mend`."""
        self._flows = trio.Event()

    def mute(self) -> None:
        """Pass no replies of the store until :meth:`mend`."""
        self._answers = trio.Event()

    def mend(self) -> None:
        """Pass all data again, without delay."""
        self.is_cut, self.delay = False, 0.0
        self._flows.set()
        self._answers.set()

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        """Accept connections and pass their data. Does not return."""
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
            return  # the store is unreachable
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
            pass  # one end has closed
        finally:
            scope.cancel()
