"""Calls a spider's callbacks, of all four kinds, and routes their outputs: items to the sender, requests in batches.

A callback is a function, a generator, an async function or an async generator. Two things must not leak from it:

* *Its cancel scopes.* With ``with trio.move_on_after(1): yield item``, the user's scope is open while the engine routes
  the item. If the engine awaited there, the user's deadline would cancel the engine's await, and the crawl with it. The
  engine therefore takes an output without waiting if it can. Otherwise it waits in its own shielded scope
  (:class:`Shields`), which it cancels when the crawl is cancelled.
* *Its exception groups.* A nursery that is open across a ``yield`` wraps the errors it raises, together with
  ``GeneratorExit``. :func:`leaf_errors` unwraps them.

Requests are held until the callback has ended, and stored with its acknowledgement. If a callback yields many requests,
they are stored while it runs (:class:`CallbackOutputs`).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from contextlib import aclosing, closing, nullcontext
from pathlib import Path
from types import FrameType, GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import trio

from trawl.engine.items import ItemSender
from trawl.engine.limits import Full
from trawl.errors import ItemLost, JobError
from trawl.events import Events, ItemScraped
from trawl.http import Request, Response
from trawl.items import is_item, item_fields
from trawl.selectors import MixedQuery
from trawl.spiders.spider import iterate
from trawl.tracebacks import UserExit, closes_generator, user_frames
from trawl.user_files import is_user_file

if TYPE_CHECKING:
    from trawl.engine.job_items import CallbackItems

__all__ = [
    "BATCH",
    "MAX_UNFILTERED",
    "CallbackOutputs",
    "InvalidOutput",
    "OutputReceiver",
    "ScriptPages",
    "Shields",
    "advice",
    "consume",
    "frame_of",
    "leaf_errors",
    "without_groups",
]

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("trawl.engine")

BATCH = 100
"""Number of requests of one callback that are held before they are stored. Also the number of items that a callback
yields before other tasks may run. A callback may yield a million outputs, or never end."""

MAX_UNFILTERED = 10_000
"""Number of requests with ``dont_filter`` that one callback of a job holds until it ends. If they were stored earlier
and a kill made the callback run again, nothing would show that they are stored, so they would be stored twice. Beyond
this number they are stored early."""

MAX_PAGES = 50
"""Maximum number of pages that are inspected for scripts."""

MAX_SEARCHED = 2_000_000
"""Maximum number of bytes of a page that are searched for scripts."""


class InvalidOutput(Exception):
    """A callback or ``start()`` yielded an object that is neither a request nor an item. The user sees :meth:`told`."""

    def __init__(self, output: object) -> None:
        super().__init__(
            "a callback, and start(), give requests, items (dict, dataclass, attrs, pydantic, msgspec) or None,"
            f" not {type(output).__name__}: {output!r:.100}{_remedy(output)}"
        )

    def told(self, result: object) -> TypeError:
        """Return the error for the user, with the line of ``result``, the open generator that yielded the object."""
        frame = frame_of(result)
        if frame is None or not is_user_file(frame.f_code.co_filename):
            return TypeError(str(self))
        return TypeError(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}: {self}")


def _raised(error: TypeError) -> None:
    raise error


def frame_of(result: Any) -> FrameType | None:
    """Return the innermost frame at which a generator of any kind is suspended; None if there is none."""
    while (inner := getattr(result, "gi_yieldfrom", None)) is not None and hasattr(inner, "gi_frame"):
        result = inner
    frame: FrameType | None = getattr(result, "gi_frame", None) or getattr(result, "ag_frame", None)
    return frame


def advice(error: BaseException, callback: Callable[..., object] | None) -> str:
    """Return advice on an error that a callback raised, with file and line; "" if the error explains itself.

    It is for errors that name neither the faulty line nor the fix: a missing argument, a forgotten ``await``, a
    generator that is yielded instead of its outputs, an asyncio library.
    """
    frames, said = user_frames(error), ""
    if not frames:
        if callback is None:
            return ""
        return _uncallable(callback) if isinstance(error, TypeError) else _absent(callback, error)
    words = str(error)
    if isinstance(error, SystemExit):
        said = "exit() ends this call alone; to end the crawl: raise trawl.CloseSpider(reason)"
    elif isinstance(error, MixedQuery):
        said = words
    elif "no running event loop" in words or "asyncio" in words:
        said = (
            "a crawl runs on Trio, where asyncio does not work: use trio.sleep() and Trio's other functions instead,"
            " or a library that runs on Trio"
        )
    elif isinstance(error, AttributeError | TypeError):
        if "'coroutine' object" in words:
            said = "an `await` is missing before the call that gave the coroutine"
        elif "'async_generator' object" in words or "async_generator can't be used in 'await'" in words:
            said = "an async generator is read with `async for`"
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: {said}" if said else ""


def _uncallable(callback: Callable[..., object]) -> str:
    """Return the location of a callback that accepts no response; "" if it accepts one."""
    try:
        inspect.signature(callback).bind_partial(None)
    except TypeError:
        name = getattr(callback, "__name__", "it")
        first = "self, " if hasattr(callback, "__self__") else ""
        code = getattr(inspect.unwrap(getattr(callback, "__func__", callback)), "__code__", None)
        place = f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code is not None else ""
        return f"{place}: {name}() is called with the response: def {name}({first}response)"
    except ValueError:  # a function written in C
        return ""
    return ""


def _absent(callback: Callable[..., object], error: BaseException) -> str:
    """Return the location of a spider without ``parse()``; "" for any other error."""
    kind = type(getattr(callback, "__self__", None))
    if not isinstance(error, NotImplementedError) or not is_user_file(file := inspect.getsourcefile(kind) or ""):
        return ""
    return f"{Path(file).name}:{inspect.getsourcelines(kind)[1]}: {error}"


def _remedy(output: object) -> str:
    if inspect.isgenerator(output) or isinstance(output, list | tuple):
        return ": `yield from` it, or in an async callback yield each of it in a `for` loop"
    if inspect.isasyncgen(output):
        return ": yield each of it in an `async for` loop"
    if inspect.iscoroutine(output):
        return ": `await` it"
    return ""


class OutputReceiver(Protocol):
    """Takes a callback's outputs."""

    def take_nowait(self, output: object) -> bool:
        """Take one output if that needs no waiting, or return False. Raises ``InvalidOutput`` for other objects."""

    async def take(self, output: object) -> None:
        """Take one output, and wait for room."""


class RequestStore(Protocol):
    """Stores requests that a callback has yielded before it has ended."""

    async def push(self, requests: list[Request], *, depth: int, source: Response | None = None) -> object:
        """Store requests found at ``depth``, on the page ``source``."""


class CallbackOutputs:
    """The outputs of one callback."""

    __slots__ = (
        "_depth",
        "_events",
        "_kept",
        "_lost",
        "_page",
        "_sender",
        "_store",
        "failure",
        "has_query_error",
        "is_cut",
        "items",
        "latest",
        "requests",
        "source",
        "waited",
    )

    def __init__(
        self,
        sender: ItemSender | CallbackItems,
        store: RequestStore,
        depth: int,
        source: Response | None = None,
        events: Events | None = None,
    ) -> None:
        self._events = Events() if events is None else events
        self._sender = sender
        self._store = store
        self._depth = depth
        self._page = "" if source is None else source.url
        self.source: Response | None = source  # the response that was passed to the callback
        self.requests: list[Request] = []  # not stored yet; they are stored with the callback's acknowledgement
        self._kept = 0  # number of requests at the front with ``dont_filter``, which stay until the end
        self._lost = 0
        self.items: int = 0  # number of items so far
        self.latest: object = None  # the latest item
        self.failure: str | None = None  # reason why the request counts as failed; None if it does not
        self.has_query_error: bool = False  # a selector raised the callback's error
        self.is_cut: bool = False  # it was stopped because it yielded one item more than the crawl may deliver
        self.waited: float = 0.0  # seconds for which the callback waited until requests were stored; 0 without a job

    def take_nowait(self, output: object) -> bool:
        """Take one output if that needs no waiting; returns False if it does. Raises InvalidOutput."""
        if isinstance(output, Request):
            if len(self.requests) - self._kept >= BATCH:
                return False
            self.requests.append(output)
            return True
        if output is None:
            return True
        if type(output) is not dict and not is_item(output):
            raise InvalidOutput(output)
        self.latest = output
        try:
            # Every BATCH items, use the path with a checkpoint, so that other tasks run during an endless callback.
            if (self.items + self._lost) % BATCH == BATCH - 1 or not self._sender.put_nowait(output, self._page):
                return False
        except ItemLost:
            self._lost += 1
            return True  # the loss is logged and counted, and the callback continues
        self.items += 1
        if ItemScraped in self._events.wanted:
            self._events.emit(ItemScraped(output, self.source))
        return True

    async def take(self, output: object) -> None:
        """Take one output, and wait for room. Always a checkpoint. Raises Full after the last item of the crawl."""
        await trio.lowlevel.checkpoint()
        if isinstance(output, Request):
            began_at = trio.current_time()
            await self._store.push(self._full(), depth=self._depth, source=self.source)
            if self._sender.is_lasting:
                self.waited += trio.current_time() - began_at
            self.requests.append(output)
        else:
            try:
                finished = await self._sender.put(output, self._page)
            except ItemLost:
                self._lost += 1
                return
            except Full:
                self.is_cut = True
                raise
            self.items += 1
            if finished is not None and ItemScraped in self._events.wanted:
                self._events.emit(ItemScraped(finished, self.source))

    def _full(self) -> list[Request]:
        """Remove and return the requests that must be stored now.

        With a job, requests with ``dont_filter`` stay. Later calls skip them, because a callback may yield thousands.
        """
        if not self._sender.is_lasting or len(self.requests) >= MAX_UNFILTERED:
            full, self.requests, self._kept = self.requests, [], 0
            return full
        full = self.requests[self._kept :]
        self.requests[self._kept :] = [request for request in full if request.dont_filter]
        self._kept = len(self.requests)
        return [request for request in full if not request.dont_filter]


class ScriptPages:
    """The first HTML pages that have scripts and gave nothing: JavaScript may create the content of a crawl's pages.

    A beginner who selects content that a script adds to the page gets no items, or items without content, and no error.
    Pages are inspected until the first request or item with content, or until they are :data:`MAX_PAGES`.

    Attributes:
        is_open: True while further pages are inspected.
    """

    def __init__(self) -> None:
        self.is_open: bool = True
        self._count = 0
        self._first = ""
        self._looks = 0
        self._has_content = False

    def look(self, response: Response, outputs: CallbackOutputs) -> None:
        """Inspect a page whose callback has ended."""
        self._looks += 1
        self.is_open = self._looks < MAX_PAGES
        if outputs.items and not _is_empty(outputs.latest):
            self._has_content, self.is_open = True, False
        elif outputs.requests or outputs.has_query_error or not response.is_selected:
            return
        elif b"<script" in response.body[:MAX_SEARCHED].lower():
            self._count += 1
            self._first = self._first or response.url

    def tell(self) -> None:
        """Log a warning at the end of the crawl if there is a suspicion."""
        if self._count and not self._has_content:
            logger.warning(
                "%d HTML %s with scripts gave nothing that the selectors look for, %s for one: the content may be made "
                "by JavaScript; `trawl fetch URL` shows what the server sends (guide: Pages made by JavaScript)",
                self._count, "page" if self._count == 1 else "pages", self._first,
            )  # fmt: skip


def _is_empty(item: object) -> bool:
    """Return True if all values of an item are None, empty strings or empty collections."""
    try:
        values = item_fields(item).values() if is_item(item) else ()
    except Exception:
        return False
    return all(value is None or (isinstance(value, str | list | tuple | dict) and not value) for value in values)


class Shields:
    """Shielded cancel scopes that one owner can cancel all at once.

    A cancelled shield swallows the cancellation, so check ``is_cancelled`` after leaving a shield.
    """

    def __init__(self) -> None:
        self._open: set[trio.CancelScope] = set()
        self.is_cancelled: bool = False

    def shielded(self) -> _Shield:
        """Return a context manager that protects its body from every cancellation except :meth:`cancel`."""
        return _Shield(self._open, is_cancelled=self.is_cancelled)

    def cancel(self) -> None:
        """Cancel all open shields and all shields that are opened later."""
        self.is_cancelled = True
        for scope in self._open:
            scope.cancel()


class _Shield:
    """One shielded scope. A class, because a generator's context manager costs more than the scope itself."""

    __slots__ = ("_open", "_scope")

    def __init__(self, open_scopes: set[trio.CancelScope], *, is_cancelled: bool) -> None:
        self._open = open_scopes
        self._scope = trio.CancelScope(shield=True)
        if is_cancelled:
            self._scope.cancel()

    def __enter__(self) -> None:
        self._scope.__enter__()
        self._open.add(self._scope)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._open.discard(self._scope)
        return self._scope.__exit__(kind, error, traceback)


async def consume(
    result: object, receiver: OutputReceiver, shields: Shields, refused: Callable[[TypeError], object] = _raised
) -> None:
    """Pass every output of a callback to ``receiver``. Cancelling closes the callback's generator.

    Each output that is neither a request nor an item is ``refused``. The next one follows, unless that raises, as by
    default. Raises any error of the callback. Its own cancel scopes don't affect the receiver, which waits under
    ``shields``.
    """
    if result is None:
        return
    if type(result) is not GeneratorType:  # the most common kind; the checks take longer than fetching an output
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, AsyncIterable):
            # An iterable that is not a generator has nothing to close.
            async with aclosing(cast("Any", result)) if hasattr(result, "aclose") else nullcontext(result) as outputs:
                async for output in outputs:
                    try:
                        if not receiver.take_nowait(output):
                            await _take(output, receiver, shields)
                    except InvalidOutput as error:
                        refused(error.told(outputs))
            return
        result = iterate(result)
    with closing(cast("Any", result)) if hasattr(result, "close") else nullcontext(result) as outputs:
        for output in outputs:
            try:
                if not receiver.take_nowait(output):
                    await _take(output, receiver, shields)
            except InvalidOutput as error:
                refused(error.told(outputs))


async def _take(output: object, receiver: OutputReceiver, shields: Shields) -> None:
    with shields.shielded():
        await receiver.take(output)
    if shields.is_cancelled:  # the crawl is cancelled: raise it here, because a generator may never await
        await trio.lowlevel.checkpoint()


def leaf_errors(error: BaseException) -> list[BaseException]:
    """Return the errors inside (nested) exception groups, without the ``GeneratorExit`` that closing a generator adds.

    For a :class:`~trawl.tracebacks.UserExit`, return the error that user code raised.
    """
    if not isinstance(error, BaseExceptionGroup):
        return leaf_errors(error.raised) if isinstance(error, UserExit) else [error]
    return [leaf for inner in error.exceptions if not closes_generator(inner) for leaf in leaf_errors(inner)]


async def without_groups(running: Awaitable[T]) -> T:
    """Await ``running``. If it raises a single error, raise that error without the exception groups of nurseries."""
    try:
        return await running
    except BaseExceptionGroup as group:
        found = leaf_errors(group)
        is_one = len(found) == 1 or (found and all(isinstance(error, JobError) for error in found))
        if not is_one:  # each task that meets a JobError raises its own copy
            raise
    # Raise outside the handler, so that the group does not become the context.
    raise found[0]


Callback = Callable[..., object]


def named(spider: object, callback: Callback | str | None, default: str) -> Callback:
    """Return the callback to call: the function, the spider's method of that name, or its ``default`` method."""
    if callback is None or isinstance(callback, str):
        return cast("Callback", getattr(spider, callback or default))
    return callback


def call(callback: Callback, argument: object, cb_kwargs: Mapping[str, object] | None) -> object:
    """Call the callback with a response or an error."""
    return callback(argument, **cb_kwargs) if cb_kwargs else callback(argument)
