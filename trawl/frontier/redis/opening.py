"""Opening a job in a server: the server is checked, the process joins, and what it begins with is read.

::

    open_job ─► a task of its own ─► connect, again whenever the server was away
                                       ├─► the first time: check the server and the job's form, join it: RedisJob
                                       └─► its round trips (:mod:`trawl.frontier.redis.job`), until it is over
"""

from __future__ import annotations

import logging
import math
import os
import random
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from secrets import token_hex
from types import MappingProxyType
from typing import Any

import attrs
import msgspec
import trio

from trawl.errors import JobError, TrawlError, UsageError
from trawl.frontier.parts import PARTS, suffixes_digest
from trawl.frontier.redis.client import (
    Address,
    Connect,
    Durability,
    StoreConnectionError,
    StoreServer,
    check_server,
    tell_durability,
    told,
)
from trawl.frontier.redis.client import connect as connect_server
from trawl.frontier.redis.job import RedisJob, ServerState
from trawl.frontier.redis.layout import FORMAT, SUBSETS, Keys, kept_of, text_of, texts_of
from trawl.frontier.redis.line import StoreLine
from trawl.frontier.redis.sessions import Share

__all__ = ["check_head", "open_job"]

logger: logging.Logger = logging.getLogger("trawl.frontier")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries to reach a server
_TOLD = 5  # differences between two processes


@attrs.frozen(kw_only=True)
class _Part:
    """The part of a process in a job.

    Attributes:
        lease: The length of its lease, in seconds.
        exports: It copies the items to feeds.
        works: It sends requests.
        terms: What it must have in common with others that work on the job, as digests by name.
    """

    lease: float
    exports: bool
    works: bool
    terms: Mapping[str, str]


@asynccontextmanager
async def open_job(
    address: Address,
    durability: Durability = "always",
    *,
    lease: float = 15.0,
    connect: Connect | None = None,
    exports: bool = True,
    works: bool = True,
    terms: Mapping[str, str] = MappingProxyType({}),
) -> AsyncGenerator[RedisJob, None]:
    """Hold a job in a server for one run; enter and leave the block in one task.

    Several processes may hold it, and share its parts. One of them exports its items: if a process that was killed did,
    another that is to do it waits for the end of that one's lease.

    Args:
        address: Where it is; it is made if there is none.
        durability: What the server is to be set up for; checked, and said in the log.
        lease: The length of the lease, in seconds.
        connect: Makes the connection; None: through coredis.
        exports: This process copies the items to feeds.
        works: This process sends requests: it takes parts.
        terms: What it must have in common with others that work on the job, as digests by name.

    Raises:
        JobError: Another process exports the items, and this one is to; the server does not answer, or can't keep what
            ``durability`` asks for.
        UsageError: coredis is not installed; others work on the job on other terms.
    """
    raised: Exception | None = None
    part = _Part(lease=lease, exports=exports, works=works, terms=terms)
    async with trio.open_nursery() as nursery:
        try:
            job: RedisJob = await nursery.start(partial(_serve, address, durability, part, connect or connect_server))
            job.line = StoreLine(address, token_hex(8), life=lease, lease=job.lease, connect=connect or connect_server)
            try:
                yield job
            finally:
                try:
                    await job.aclose()  # noqa: ASYNC102 - shielded and limited
                finally:
                    job.serving.cancel()
                    job.end()
        except Exception as error:  # raised outside of the nursery, which would put it into a group
            raised = error
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def _serve(
    address: Address,
    durability: Durability,
    part: _Part,
    connect: Connect,
    *,
    task_status: trio.TaskStatus[RedisJob],
) -> None:
    """Open the job, and do its round trips, connecting again whenever the server was away."""
    with trio.CancelScope() as scope:
        job: RedisJob | None = None
        pause = _FIRST_PAUSE
        while job is None or not job.is_over:
            raised: TrawlError | None = None
            away: StoreConnectionError | None = None
            try:
                async with connect(address) as server:
                    try:
                        if job is None:
                            job = await _open(server, await server.facts(), address, durability, part)
                            job.serving, scope.shield = scope, True
                            task_status.started(job)
                        away = await job.rounds(server)
                    except (JobError, UsageError) as error:
                        raised = error
                    except StoreConnectionError as error:
                        away = error
            except StoreConnectionError as error:
                away = error
            if job is None:
                raise raised or JobError(f"job {address.shown}: its server can't be reached: {away}", address.shown)
            if raised is not None:
                job.give_up(raised)
            if away is not None:
                if job.lease.away_since is None:
                    pause = _FIRST_PAUSE
                job.went_away(away)
                await trio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2.0 * pause, _LONGEST_PAUSE)


async def _open(
    server: StoreServer, facts: Mapping[str, str], address: Address, durability: Durability, part: _Part
) -> RedisJob:
    """Check the server, join the job, and read what it begins with."""
    replicas = check_server(facts, address, durability)
    keys = Keys(address.job)
    head: list[bytes | str | int] = [each for pair in _form().items() for each in pair]
    (refused,) = await server.run([("able", [keys.tried], [])])
    if refused:
        command, words = map(text_of, refused)
        raise JobError(f"job {address.shown}: the server refuses {command}: {told(words)}", address.shown)
    await server.read_stream(keys.tried, "0", 0.0)  # this user may: the shared scopes will
    try:
        check_head((await server.run([("head", [keys.head], [1, *head])]))[0], address)
        opened = await _join(server, address, keys, part)
    except (ValueError, TypeError, LookupError) as error:
        words = f"job {address.shown}: it is damaged (what is stored in it can't be read: {error!r})"
        raise JobError(words, address.shown) from error
    if opened.share.is_alone:  # those who join others need not be told
        tell_durability(address, durability)
    return RedisJob(address, opened, lease=part.lease, replicas=replicas)


async def _join(server: StoreServer, address: Address, keys: Keys, part: _Part) -> ServerState:
    """Begin a session, and have it take what it is to have."""
    worker = f"{socket.gethostname()}:{os.getpid()}"
    terms = msgspec.json.encode(dict(part.terms)) if part.works else b""
    arguments: list[bytes | str | int] = [worker, int(part.lease * 1e6), int(part.works), terms]
    ((session, elapsed, others, worked),) = await server.run([("join", keys.of_join, arguments)])
    share = Share(keys, session, int(elapsed), works=part.works, exports=part.exports, shown=address.shown)
    share.began_at -= int(worked) / 1e6
    if part.works and (words := _differences(part.terms, others)):
        await server.run([share.call(None, takes=False, leaves="clean")])
        raise UsageError(f"job {address.shown}: {words}")
    if part.exports:
        await _export(server, share, address, part.lease)
    is_first = True
    while is_first or share.has_more:
        is_first = False
        (answer,) = await server.run([share.call(part.lease, takes=True)])
        share.hear(answer)
    (state,) = await server.run([("state", keys.of_state, [])])
    head = texts_of(state[0])
    live = {text_of(live) for live in state[5][::2]}
    return ServerState(
        is_new=session == 1,
        begun=head.get("begun", ""),
        share=share,
        seen=int(head.get("marks", "0")),
        start=int(head.get("exported", "0")),
        end=int(head.get("end", "0")),
        kept=kept_of(state[4]),
        orphans=[text_of(each) for each in state[7] if text_of(each).partition(" ")[0] not in live],
    )


def _differences(terms: Mapping[str, str], others: Sequence[bytes]) -> str:
    """Say what differs between a process and one that works on the job already; "" for nothing."""
    for name, blob in zip(others[::2], others[1::2], strict=True):
        theirs = msgspec.json.decode(blob, type=dict[str, str]) if blob else {}
        differing = sorted(key for key in {*terms, *theirs} if terms.get(key) != theirs.get(key))
        if differing:
            what = f"{', '.join(differing[:_TOLD])}{' and more' if len(differing) > _TOLD else ''}"
            return f"{text_of(name)} works on it, and differs in {what}: start this one with the same, or end that one"
    return ""


async def _export(server: StoreServer, share: Share, address: Address, lease: float) -> None:
    """Have the session export the items. Where another does that may be killed, wait for the end of its lease."""
    until = -math.inf
    while True:
        (answer,) = await server.run([share.call(lease, takes=False)])
        share.hear(answer)
        if share.is_exporter:
            return
        _, name, left = share.exporter
        its_until = trio.current_time() + left / 1e6
        if until == -math.inf:
            until = its_until
            # `left` is no answer: a server that was started anew gives nobody up for a whole lease.
            words = "job %s: %s has it; if that was killed, this process goes on within %.0f s: waiting"
            logger.warning(words, address.shown, name, max(lease, left / 1e6))
        elif its_until > until + lease / 20.0:  # it has prolonged its lease: it lives
            break
        await trio.sleep(min(max(left / 1e6, 0.0) + 0.05, lease / 4.0))
    await server.run([share.call(None, takes=False, leaves="clean")])
    words = f"another process is using it ({name}): wait for its end, or join it without feeds"
    raise JobError(f"job {address.shown}: {words}", address.shown)


def check_head(flat: Sequence[Any], address: Address) -> None:
    """Raise an error if a job is not of the form that this release writes.

    Raises:
        JobError: It is of another form.
        UsageError: There is no job.
    """
    head = texts_of(flat)
    shown = address.shown
    if not head:
        raise UsageError(f"job {shown}: there is no job of this name")
    for name, value in _form().items():
        if head.get(name) != str(value):
            words = f"its {name} is {head.get(name)!r}, and this release knows {value}"
            raise JobError(f"job {shown}: another release of trawl wrote it ({words}): go on with that one", shown)


def _form() -> Mapping[str, int | str]:
    """Return the form of a job that its head has to state."""
    return {"format": FORMAT, "parts": PARTS, "subsets": SUBSETS, "suffixes": suffixes_digest()}
