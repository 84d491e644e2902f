"""The command ``trawl shell``: a crawl to be spoken with.

The terminal stays with the main thread, where IPython and Ctrl-C want it; the crawl runs in a thread of its own, as
long as the session does. Lines without ``await`` are run in the main thread. Lines with it are run by the crawl's Trio,
so that ``await trio.sleep(1)`` and ``await spider.fetch(...)`` do what they do in a callback.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import trio
from rich.console import Console

from trawl.cli.asking import Session, converse
from trawl.cli.exits import OK
from trawl.cli.logs import Logs
from trawl.cli.run import guarded
from trawl.cli.view import CrawlWith
from trawl.cli.visiting import Prepared, Visit, answer, prepared, visitor
from trawl.errors import TrawlError
from trawl.http import Request, Response

__all__ = ["Crawling", "shell_command"]


def shell_command(url: str | None, visit: Visit, crawl_with: CrawlWith, console: Console, *, code: str | None) -> int:
    """Open a shell on a running crawl; the exit status.

    Args:
        url: What is fetched before it opens; None: nothing.
        visit: Whose settings count.
        crawl_with: Runs the crawl.
        console: Standard error.
        code: Run this and print its value in place of asking for lines.
    """

    def act(logs: Logs) -> int:
        with Crawling(prepared(visit, logs), crawl_with) as crawling:
            session = Session(crawling.spider, crawling.wait_for, crawling.fetched)
            if url is not None:
                session.fetch(url)
            converse(session, code)
        return OK

    return guarded(console, visit.logged, act)


class Crawling:
    """A crawl in a thread of its own, which does nothing until it is asked to: a context manager.

    Args:
        ready: The spider and its settings.
        crawl_with: Runs the crawl.

    Attributes:
        spider: The spider, running.
    """

    def __init__(self, ready: Prepared, crawl_with: CrawlWith) -> None:
        self._ready = ready
        self._crawl_with = crawl_with
        self._thread = threading.Thread(target=self._run, name="trawl shell", daemon=True)
        self._begun = threading.Event()
        self._over = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._error: BaseException | None = None
        self.spider: Any = None

    def __enter__(self) -> Crawling:
        self._thread.start()
        self._begun.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *exc: object) -> None:
        if self._token is not None:
            with suppress(trio.RunFinishedError):  # the crawl has ended by itself
                self._token.run_sync_soon(self._over.set)
        self._thread.join()

    def wait_for(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What the coroutine gives that ``make`` makes, run in the crawl; Ctrl-C cancels it."""
        scope = trio.CancelScope()

        async def cancellable() -> Any:
            with scope:
                return await make()

        assert self._token is not None
        try:
            return trio.from_thread.run(cancellable, trio_token=self._token)
        except KeyboardInterrupt:
            self._token.run_sync_soon(scope.cancel)
            raise

    def fetched(self, request: Request) -> Coroutine[Any, Any, Response]:
        """The response to a request, through the crawl."""
        return answer(self.spider.crawl, request)

    def _run(self) -> None:
        errors: list[TrawlError] = []
        spider = visitor(self._ready.spider, self._work, errors)
        begin = partial(self._crawl_with, spider, self._ready.settings, spider_args=self._ready.arguments)
        try:
            trio.run(begin)
        except BaseException as error:  # noqa: ASYNC103 - raised by whoever waits for the thread
            self._error = error
        finally:
            self._begun.set()

    async def _work(self, spider: Any) -> None:
        self.spider = spider
        self._token = trio.lowlevel.current_trio_token()
        self._begun.set()
        await self._over.wait()
