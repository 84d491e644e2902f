"""Changes a running crawl from outside: orders, their effects, and the two ways on which orders arrive.

An *order* is one value of :data:`Order`. :func:`execute` carries it out, logs it and emits the event
:class:`~trawl.events.Steered`, whether it came from the panel, from the job's socket or from its store. Before that,
:func:`effect_of` says what the order would change.

The crawl of a job in a directory listens on a Unix socket in this directory, which only its user may open (mode 0600;
unix(7)). A request and its reply are one line of JSON each.

A job in a server has a list of orders in its store. An order that reaches one process in another way, such as its
panel, is added to this list. Each process executes every order, and a process that joins later executes those that
still apply: limits, pause, stop, and requests to add, because no process may have executed them yet. Those that a
process has added are duplicates. Of a dropped host, it drops the pages that were found before the order. Questions to
the processes go through the store too: each process stores its replies while the question is asked.

Length: orders, questions and the two ways on which they arrive are documented together.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import msgspec
import trio
from msgspec import Struct

from trawl.errors import IgnoreRequest, TrawlError, UsageError
from trawl.events import EventStream, ItemScraped, Steered
from trawl.frontier.own_files import check_file
from trawl.http import Request, host_scope
from trawl.observe import (
    CrawlStatus,
    ScopeStatus,
    clipped,
    counted,
    decode_status,
    duration_words,
    encode_status,
    printable,
)

if TYPE_CHECKING:
    from trawl.engine.crawl import Crawl
    from trawl.frontier.inspect import SessionReport
    from trawl.frontier.redis.sessions import JobSession

__all__ = [
    "SOCKET",
    "Add",
    "Drop",
    "Look",
    "Observer",
    "Order",
    "Pause",
    "Question",
    "Reply",
    "Resume",
    "SetLimits",
    "Stop",
    "View",
    "ask",
    "effect_of",
    "execute",
    "follow_store",
    "limits_from",
    "listen",
    "order_from",
    "replies_of",
    "sort_scopes",
    "state_in",
    "stored_form",
]

logger: logging.Logger = logging.getLogger("trawl.steering")

SOCKET = "steering.sock"
"""Name of the socket in the job's directory."""

MAX_URLS = 10_000
"""Maximum number of URLs in one order."""

MAX_BYTES = 1 << 20
"""Maximum length of a request to the socket, in bytes."""

PATIENCE = 30.0
"""Seconds in which a request must arrive, and in which its reply must be read."""

NO_DELAY = "nothing delays it"
"""The reply to the question why a page waits that does not wait."""

ANSWER_EVERY = 0.5
"""Seconds between two replies to a question in the store."""

IDLE = 10.0
"""Seconds after the last view through the socket until no more items are collected for it."""

MAX_ITEMS = 10
"""Maximum number of items in a reply; if there are more, the latest items are kept."""

_ITEM_CHARACTERS = 300

_MAX_PATH = 100  # sun_path has 108 bytes on Linux and 104 elsewhere (unix(7))


class Pause(Struct, frozen=True, tag="pause", tag_field="order"):
    """Send no pages until :class:`Resume`. Requests in flight finish."""


class Resume(Struct, frozen=True, tag="resume", tag_field="order"):
    """Send pages again."""


class Stop(Struct, frozen=True, tag="stop", tag_field="order"):
    """End the crawl as a first Ctrl-C does. The next run of the job continues it."""


class SetLimits(Struct, frozen=True, tag="set", tag_field="order"):
    """Set ``limits`` of a scope, with the keys of ``THROTTLING_SCOPES``."""

    scope: str
    limits: dict[str, Any]


class Add(Struct, frozen=True, tag="add", tag_field="order"):
    """Add requests for ``urls`` to the crawl, as ``start()`` does."""

    urls: list[str]


class Drop(Struct, frozen=True, tag="drop", tag_field="order"):
    """Drop the pending pages of a host. They count as ``dropped_by_hand``. Pages found later are sent."""

    host: str  # with its port if that is not the scheme's default port
    before: int = 0  # in the list of orders that a process found when it joined, the arrival order at that time


Order: TypeAlias = Pause | Resume | Stop | SetLimits | Add | Drop
"""Any order."""

_decode_order = msgspec.json.Decoder(Order).decode


def order_from(text: bytes | str) -> Order:
    """Return an order from its JSON. Raises UsageError, which names the wrong part, if it is not an order."""
    try:
        order: Order = _decode_order(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not an order: {error}") from error
    return order


def limits_from(assigned: Sequence[str]) -> dict[str, Any]:
    """Return limits from ``KEY=VALUE``. A value is JSON, or a string if it is not valid JSON. May raise UsageError."""
    limits: dict[str, Any] = {}
    for each in assigned:
        key, equals, text = each.partition("=")
        if not equals or not key:
            raise UsageError(f"{each!r} is not KEY=VALUE: write, for example, delay=2")
        try:
            limits[key] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            limits[key] = text
    return limits


def effect_of(crawl: Crawl, order: Order) -> str:
    """Return the effect that an order would have now, in one sentence. Changes nothing.

    Raises SettingsError if a limit is unknown or out of range, and UsageError if a URL or a host is not valid.
    """
    queued = f"{counted(crawl.queued, 'pending request')}"
    match order:
        case Pause():
            return f"{queued} will wait until the crawl is resumed; {crawl.in_flight} in flight finish"
        case Resume():
            return f"{queued} will be sent again"
        case Stop():
            return f"the crawl will send nothing new; {crawl.in_flight} in flight finish, {queued} stay"
        case SetLimits(scope, limits):
            before, after, count = crawl.throttling.preview(scope, **limits)
            end = f"its {counted(count, 'pending request')} would end in {duration_words(after.lasts(count))}"
            words = end if count else "no request of it is pending"
            return f"{scope}: {before.words} before, {after.words} after; {words}"
        case Add():
            return f"{counted(len(_requests(order)), 'request')} will be added to {queued}"
        case Drop(host):
            pages = counted(crawl.pending_of(_host(host)), "pending page")
            return f"{pages} of {host} will be dropped, and its pages that wait for a time of their own"


async def execute(crawl: Crawl, order: Order, source: str) -> str:
    """Execute an order, log it, emit the event, and return its effect in this process, in one sentence. A checkpoint.

    Its ``source`` is ``panel``, ``socket`` or ``store``. In a job that several processes share, an order from elsewhere
    than the store goes into the store's list, so that all processes execute it. It raises the errors of
    :func:`effect_of`, after which nothing is changed, and IgnoreRequest if requests are added to a crawl that is
    ending.
    """
    await trio.lowlevel.checkpoint()
    effect = effect_of(crawl, order)
    if source != "store" and (session := crawl.session_of_job) is not None:
        await session.order_all(*stored_form(order))
        return effect
    match order:
        case Pause() | Resume():
            crawl.pause(is_paused=isinstance(order, Pause))
        case Stop():
            crawl.shutdown("stopped")
        case SetLimits(scope, limits):
            crawl.throttling.set(scope, **limits)
        case Add():
            await crawl.add(_requests(order))
        case Drop(host, before):
            await crawl.drop(_host(host), before=before)
    name: str = order.__struct_config__.tag  # type: ignore[assignment]
    # The whole text is the argument, because entries with equal formats are counted instead of logged.
    logger.warning("%s", f"{name}, by the {source}: {printable(effect)}")
    crawl.tell(Steered(order=name, effect=effect, source=source))
    return effect


def _requests(order: Add) -> list[Request]:
    if len(order.urls) > MAX_URLS:
        raise UsageError(f"{len(order.urls)} URLs in one order: at most {MAX_URLS:,} are allowed, so send several")
    found = []
    for url in order.urls:
        try:
            found.append(Request(url))
        except (TypeError, ValueError) as error:
            raise UsageError(f"{url!r} can't be added: {error}") from error
    return found


def _host(text: str) -> str:
    """Return a host as the id of its scope."""
    try:
        host = host_scope(Request(text if "://" in text else f"http://{text}/").url)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{text!r} is not a host: {error}") from error
    if not host or ("/" in text and "://" not in text):
        raise UsageError(f"{text!r} is not a host: write, for example, shop.example or shop.example:8080")
    return host


# -- questions


class View(Struct, frozen=True):
    """A part of the table of scopes: those whose id contains ``text``, sorted by a field of their ScopeStatus."""

    sort: str = "sends"
    is_descending: bool = True
    text: str = ""
    offset: int = 0  # number of scopes before the first one
    count: int = 100  # maximum number of scopes


class Question(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A question to a process. One of the fields is set."""

    order: Order | None = None  # to execute; not in the store, which has a list for orders
    preview: Order | None = None  # whose effect is wanted
    why: str | None = None  # a URL, host or scope whose wait is to be explained
    view: View | None = None  # the scopes that are wanted together with the status and the last items
    status: bool = False  # the status alone


class Reply(Struct, omit_defaults=True):
    """The reply to a question."""

    words: str = ""  # the effect of the order, or the reason for the wait
    host: Sequence[str] = ()  # what the host of the question has asked for, one line each
    status: bytes = b""  # encoded by trawl.observe.encode_status
    rows: bytes = b""  # the scopes of a view (MessagePack)
    total: int = 0  # number of scopes that contain the view's text
    items: Sequence[str] = ()  # the last items, the latest one last
    error: str = ""  # the reason why the question was refused

    def crawl_status(self) -> CrawlStatus | None:
        """Return the status; None if another version of trawl wrote it."""
        return decode_status(self.status)

    def scopes(self) -> list[ScopeStatus]:
        """Return the scopes of a view; empty if another version of trawl wrote them."""
        with suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(self.rows, type=list[ScopeStatus])
        return []


_encode = msgspec.json.Encoder().encode
_decode_question = msgspec.json.Decoder(Question).decode
_decode_reply = msgspec.json.Decoder(Reply).decode


class Observer:
    """What others see of a crawl. It counts the calls of :meth:`items` in ``views``."""

    def __init__(self, crawl: Crawl) -> None:
        self.views: int = 0
        self._crawl = crawl
        self._items: deque[str] = deque(maxlen=MAX_ITEMS)
        self._stream: EventStream[ItemScraped] | None = None

    def items(self) -> list[str]:
        """Return the last items since the first call, or the first call after :meth:`close`."""
        self.views += 1
        if self._stream is None:
            self._stream = self._crawl.events(ItemScraped, most=MAX_ITEMS).__enter__()
        for event in self._stream.unread():
            self._items.append(clipped(f"{type(event.item).__name__}: {_shown(event.item)}", _ITEM_CHARACTERS))
        return list(self._items)

    def close(self) -> None:
        """Receive no more items."""
        if self._stream is not None:
            self._stream.__exit__(None, None, None)
            self._stream = None

    def why(self, subject: str) -> tuple[str, list[str]]:
        """Return in one line why a URL, a scope or a host waits, and what its host has asked for."""
        try:
            reason, host = self._crawl.why(subject), self._crawl.words_of_host(subject)
        except ValueError as error:
            return f"{subject} is not valid: {error}", []
        return NO_DELAY if reason is None else reason.text(trio.current_time()), host

    async def answer(self, line: bytes) -> Reply:
        """Return the reply to a question in JSON. A checkpoint. Errors are part of the reply."""
        await trio.lowlevel.checkpoint()
        try:
            question = _decode_question(line)
            if question.order is not None:
                return Reply(words=await execute(self._crawl, question.order, "socket"))
            if question.preview is not None:
                return Reply(words=effect_of(self._crawl, question.preview))
            if question.why is not None:
                words, host = self.why(question.why)
                return Reply(words=words, host=host)
            status = encode_status(self._crawl.status())
            if question.view is None:
                return Reply(status=status)
            rows, total = self._crawl.status_keeper.page(question.view)
            return Reply(status=status, rows=msgspec.msgpack.encode(rows), total=total, items=self.items())
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Reply(error=f"the request can't be read, perhaps because it is of another version of trawl: {error}")
        except TrawlError as error:
            return Reply(error=str(error))
        except Exception as error:
            logger.exception("an order failed")
            return Reply(error=f"the order failed: {error!r}")


def _shown(item: object) -> str:
    try:
        return repr(item)
    except Exception as error:  # an item's class may have any __repr__
        return f"its repr() failed: {type(error).__name__}"


# -- the socket in the directory of a job


async def listen(directory: Path, crawl: Crawl) -> None:
    """Answer requests on the socket of a job until cancelled. A watcher.

    If the socket can't be opened, this is logged and the crawl continues.
    """
    try:
        check_file(directory, directory / SOCKET, kind=stat.S_IFSOCK)
        with _bound(directory) as listening:
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
            await trio.serve_listeners(partial(_serve, Observer(crawl)), [listener])
    except (OSError, TrawlError) as error:
        logger.warning("job %s: its socket can't be opened, so `trawl job` can't steer it: %s", directory, error)


@contextmanager
def _bound(directory: Path) -> Iterator[socket.socket]:
    """Return the listening socket in a directory, and remove its file at the end.

    A socket of an earlier process is replaced, because the job's lock belongs to this process.
    """
    path = directory / SOCKET
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mask = os.umask(0o177)
        try:
            with _short(directory) as short:
                listening.bind(short)
        finally:
            os.umask(mask)
        listening.listen()
        yield listening
    finally:
        listening.close()
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """Return a path of the socket that is short enough for the system."""
    path = str(directory / SOCKET)
    if len(os.fsencode(path)) <= _MAX_PATH or sys.platform != "linux":
        yield path
        return
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{SOCKET}"
    finally:
        os.close(opened)


async def _serve(observer: Observer, stream: trio.abc.Stream) -> None:
    """Answer the requests of one connection. Its errors end only this connection."""
    buffer = bytearray()
    with suppress(trio.BrokenResourceError, trio.TooSlowError):
        async with stream:
            while line := await _next_line(stream, buffer):
                reply = await observer.answer(line)
                with trio.fail_after(PATIENCE):
                    await stream.send_all(_encode(reply) + b"\n")
    views = observer.views
    await trio.sleep(IDLE)
    if views == observer.views:
        observer.close()


async def _next_line(stream: trio.abc.ReceiveStream, buffer: bytearray) -> bytes:
    """Return the next line with its end; empty at the end of the stream, and instead of a line that is too long."""
    with trio.fail_after(PATIENCE):
        while (end := buffer.find(b"\n") + 1) == 0:
            some = await stream.receive_some(65_536)
            buffer += some
            if not some or len(buffer) > MAX_BYTES:
                return b""
    line = bytes(buffer[:end])
    del buffer[:end]
    return line


def ask(directory: Path, **question: Any) -> Reply:
    """Send the fields of one :class:`Question` to the job in a directory, and return the reply. Blocks for up to 30 s.

    Raises UsageError if no process works on the job, or it refuses the request.
    """
    if not directory.is_dir():
        raise UsageError(f"job {directory}: there is no job in this directory")
    check_file(directory, directory / SOCKET, kind=stat.S_IFSOCK)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, _short(directory) as short:
            connection.settimeout(PATIENCE)
            connection.connect(short)
            connection.sendall(_encode(Question(**question)) + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise UsageError(f"job {directory}: no process works on it now, so start its crawl first") from error
    except (BrokenPipeError, ConnectionResetError):
        line = b""
    except TimeoutError as error:
        late = f"no reply within {PATIENCE:g} s: if this was an order, its process may still execute it"
        raise UsageError(f"job {directory}: {late}") from error
    except OSError as error:
        raise UsageError(f"job {directory}: its process does not reply: {error}") from error
    if not line:
        raise UsageError(f"job {directory}: its process ended before it replied")
    try:
        reply = _decode_reply(line)
    except msgspec.DecodeError as error:
        raise UsageError(f"job {directory}: the reply of its process is of another version of trawl") from error
    if reply.error:
        raise UsageError(f"job {directory}: {reply.error}")
    return reply


# -- the list of orders in the store of a job


def stored_form(order: Order) -> tuple[str, str]:
    """Return the key of an order in the store's list, and its line.

    An order replaces an earlier one with the same key: the last of pause, resume and stop counts, and the last values
    of the same limits of a scope.
    """
    number = uuid4().hex
    match order:
        case Pause() | Resume() | Stop():
            key = "state"
        case SetLimits(scope, limits):
            key = f"set {scope} {','.join(sorted(limits))}"
        case Drop(host):
            key = f"drop {host}"
        case _:
            key = number
    key = printable(key)
    return key, f"{number}\t{key}\t{_encode(order).decode()}"


def _listed(text: str) -> Iterator[tuple[str, Order, int]]:
    """Yield the number, the value and the time of each readable order in the store's list.

    The time is in microseconds since the start of the job; 0 if it is unknown.
    """
    for line in text.split("\n") if text else ():
        number, _, words, *elapsed = [*line.split("\t"), "", ""][:4]
        try:
            yield number, order_from(words), int(elapsed[0] or 0)
        except (UsageError, ValueError) as error:
            logger.warning("an order in the job's store is skipped: %s", error)


def state_in(orders: str) -> str:
    """Return the state that a store's list of orders asks for: ``paused``, ``stopped`` or ""."""
    for _, order, _ in _listed(orders):
        if isinstance(order, Pause | Stop):
            return "paused" if isinstance(order, Pause) else "stopped"
    return ""


async def follow_store(session: JobSession, crawl: Crawl) -> None:
    """Execute the orders in the job's store, and reply to its questions, until cancelled. A watcher.

    Requests are added beside the other orders, because a full crawl takes no requests before it has room.
    """
    earlier = {number: order for number, order, _ in _listed(session.inbox.orders)}
    # A Resume was for the processes of that time. An Add may not have been executed, and is harmless if it was.
    done = {number for number, order in earlier.items() if isinstance(order, Resume)}
    text, adding = "", trio.Lock()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_answer_store, session, crawl)
        while True:
            text = await session.inbox.other_orders(text)
            found = list(_listed(text))
            for number, order, elapsed in found:
                if number in done:
                    continue
                if isinstance(order, Add):
                    nursery.start_soon(_execute_contained, crawl, order, adding)
                elif isinstance(order, Drop) and number in earlier:
                    # The processes of that time have dropped their pages. This is for pages that none of them had.
                    await _execute_contained(crawl, Drop(order.host, max(1, session.order_at(elapsed))))
                else:
                    await _execute_contained(crawl, order)
            done = {number for number, _, _ in found}


async def _execute_contained(crawl: Crawl, order: Order, turns: trio.Lock | None = None) -> None:
    """Execute an order of the job's store, and log its errors."""
    try:
        async with nullcontext() if turns is None else turns:
            await execute(crawl, order, "store")
    except IgnoreRequest as error:
        logger.warning("an order in the job's store is left to other processes and runs: %s", error)
    except TrawlError as error:
        logger.error("an order in the job's store was not executed: %s", error)
    except Exception:
        logger.exception("an order in the job's store failed")


async def _answer_store(session: JobSession, crawl: Crawl) -> None:
    """Reply to the questions in the job's store until cancelled."""
    observer = Observer(crawl)
    while True:
        replies = {}
        for line in (await session.inbox.questions()).split("\n"):
            _, id, question = [*line.split("\t", 2), "", ""][:3]
            replies[id] = _encode(await observer.answer(question.encode()))
        session.reply(msgspec.msgpack.encode(replies))
        await trio.sleep(ANSWER_EVERY)
        if not session.inbox.asks:
            observer.close()
            session.reply(msgspec.msgpack.encode({}))  # the store keeps no old replies


class Look(Struct, frozen=True, kw_only=True):
    """A part of the table of scopes, with everything that the page of a panel shows beside it."""

    status: CrawlStatus
    rows: Sequence[ScopeStatus] = ()
    total: int = 0  # number of scopes that contain the view's text
    items: Sequence[str] = ()  # the last items, the latest one last
    notes: Sequence[str] = ()  # facts that the operator should know, such as a process of another version


def sort_scopes(rows: Iterable[ScopeStatus], view: View) -> list[ScopeStatus]:
    """Return the visible part of some scopes."""
    found = sorted(rows, key=attrgetter(view.sort), reverse=view.is_descending)
    return found[view.offset : view.offset + view.count]


def replies_of(session: SessionReport, id: str) -> Reply | None:
    """Return the reply of a process to a question with an id; None if there is none that this version can read."""
    with suppress(msgspec.DecodeError, KeyError):
        return _decode_reply(session.replies[id])
    return None
