"""Opens a job in a server: checks the server, joins the job, and reads its state.

::

    open_job ─► the connection task ─► connect, and reconnect whenever the connection was lost
                                         ├─► the first time: check the server and the job's format, join it: RedisJob
                                         └─► its round trips (:mod:`trawl.frontier.redis.job`), until the job ends
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
from typing import Any, Literal, TypeAlias

import attrs
import msgspec
import trio

from trawl.errors import JobError, JobUnavailable, TrawlError, UsageError
from trawl.frontier.parts import PARTS, suffixes_digest
from trawl.frontier.redis.client import Address, Connect, StoreConnectionError, StoreServer, refusal_words
from trawl.frontier.redis.client import connect as connect_server
from trawl.frontier.redis.job import RedisJob
from trawl.frontier.redis.layout import FORMAT, SUBSETS, Keys, text_of, texts_of
from trawl.frontier.redis.lease_keeper import LeaseKeeper
from trawl.frontier.redis.line import RedisSharedScopeClient
from trawl.frontier.redis.sessions import JobSession

__all__ = ["check_head", "open_job"]

logger: logging.Logger = logging.getLogger("trawl.frontier")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds between two attempts to reach a server
_TOLD = 5  # maximum number of differing settings in a message

Durability: TypeAlias = Literal["always", "replicated", "fast"]

_POLICIES: Mapping[str, str] = {
    "always": "each step is on the server's disk before it counts",
    "replicated": "each step is in a replica's memory before it counts",
    "fast": "after a power cut or failover of the server, the last steps are repeated, and items may be written twice",
}


@attrs.frozen(kw_only=True)
class _SessionOptions:
    """Options of a session that joins a job, as in :func:`open_job`."""

    durability: Durability
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
    keeps_lease: bool = False,
) -> AsyncGenerator[RedisJob, None]:
    """Open a job in a server for the duration of a block. Enter and leave the block in one task.

    Several processes may open the job and share its parts. One process exports the job's items. If the exporting
    process was killed, the next process that should export items waits until the lease of the killed process ends.

    Args:
        address: The job's address. The job is created if it does not exist.
        durability: The durability for which the server must be configured. The configuration is checked, and the
            durability is logged.
        lease: Length of the lease, in seconds.
        connect: Makes the connection; None to connect with coredis.
        exports: Whether this process writes the items to feeds.
        works: Whether this process sends requests. Only such a process receives parts.
        terms: Settings that all processes of the job must share, as digests by name.
        keeps_lease: Whether a thread renews the lease while the event loop is blocked. False in a simulation, which
            passes ``connect`` and needs no thread.

    Raises:
        JobError: If this process should export the items, but another process does.
        JobUnavailable: If the server can't be reached, or can't provide ``durability`` now.
        UsageError: If coredis is not installed, if the server's configuration is unsuitable, or if other processes work
            on the job with different settings.
    """
    raised: Exception | None = None
    options = _SessionOptions(durability=durability, lease=lease, exports=exports, works=works, terms=terms)
    async with trio.open_nursery() as nursery:
        try:
            job: RedisJob = await nursery.start(partial(_serve, address, options, connect or connect_server))
            job.line = RedisSharedScopeClient(
                address, token_hex(8), life=lease, lease=job.lease, connect=connect or connect_server
            )
            if keeps_lease:
                job.keeper = LeaseKeeper(job.session, address, connect or connect_server, lease)
                nursery.start_soon(job.keeper.run)
            try:
                yield job
            finally:
                try:
                    await job.aclose()  # noqa: ASYNC102 - shielded and limited
                finally:
                    job.serving.cancel()
                    job.end()
        except Exception as error:  # raised below, because the nursery would wrap the error in a group
            raised = error
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def _serve(
    address: Address, options: _SessionOptions, connect: Connect, *, task_status: trio.TaskStatus[RedisJob]
) -> None:
    """Open the job and make its round trips. Reconnect whenever the connection is lost."""
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
                            job = await _open(server, address, options)
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
                words = f"job {address.shown}: its server can't be reached: {away}"
                raise raised or JobUnavailable(words, address.shown)
            if raised is not None:
                job.give_up(raised)
            if away is not None:
                if job.lease.away_since is None:
                    pause = _FIRST_PAUSE
                job.went_away(away)
                await trio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2.0 * pause, _LONGEST_PAUSE)


async def _open(server: StoreServer, address: Address, options: _SessionOptions) -> RedisJob:
    """Check the server, join the job, and read its state."""
    replicas = _check_server(await server.facts(), address, options.durability)
    keys = Keys(address.job)
    head: list[bytes | str | int] = [each for pair in _form().items() for each in pair]
    (refused,) = await server.run([("able", [keys.tried], [])])
    if refused:
        command, words = map(text_of, refused)
        raise JobError(f"job {address.shown}: the server refuses {command}: {refusal_words(words)}", address.shown)
    # Check that the user may read streams, because shared scopes need that.
    await server.read_stream(keys.tried, "0", 0.0)
    try:
        check_head((await server.run([("head", [keys.head], [1, *head])]))[0], address)
        session = await _join(server, address, keys, options)
        (state,) = await server.run([("state", keys.of_state, [])])
        session.pending = int(state[1])
        job = RedisJob(address, session, state, lease=options.lease, replicas=replicas)
    except (ValueError, TypeError, LookupError) as error:
        words = f"job {address.shown}: it is damaged (its content can't be read: {error!r})"
        raise JobError(words, address.shown) from error
    # Only the first process logs the durability. A server on a Unix socket stops together with this machine, so "fast"
    # needs no message.
    durability = options.durability
    if session.is_alone and (durability != "fast" or "unix_socket_path" not in address.options):
        logger.info("job %s: durability %s: %s", address.shown, durability, _POLICIES[durability])
    return job


async def _join(server: StoreServer, address: Address, keys: Keys, options: _SessionOptions) -> JobSession:
    """Start a session, and receive its share of the parts."""
    worker = f"{socket.gethostname()}:{os.getpid()}"
    terms = msgspec.json.encode(dict(options.terms)) if options.works else b""
    role = options.works + (options.works and address.leads)
    arguments: list[bytes | str | int] = [worker, int(options.lease * 1e6), role, terms]
    ((number, elapsed, others, worked, is_led),) = await server.run([("join", keys.of_join, arguments)])
    takes = options.works and not address.leads
    session = JobSession(keys, number, int(elapsed), works=takes, exports=options.exports, shown=address.shown)
    session.others.is_led = bool(is_led) and not address.leads
    session.began_at -= int(worked) / 1e6
    session.is_first = options.works and not others
    if options.works and (words := _differences(options.terms, others, options.lease)):
        await server.run([session.call(None, takes=False, leaves="clean")])
        raise UsageError(f"job {address.shown}: {words}")
    if options.exports:
        await _export(server, session, address, options.lease)
    while True:
        (answer,) = await server.run([session.call(options.lease, takes=True)])
        session.hear(answer)
        if not session.polling.has_more:
            return session


def _differences(terms: Mapping[str, str], others: Sequence[bytes], lease: float) -> str:
    """Return a message about settings in which another process of the job differs; "" if there are none."""
    for name, blob in zip(others[::2], others[1::2], strict=True):
        theirs = msgspec.json.decode(blob, type=dict[str, str]) if blob else {}
        differing = sorted(key for key in {*terms, *theirs} if terms.get(key) != theirs.get(key))
        if differing:
            what = f"{', '.join(differing[:_TOLD])}{' and more' if len(differing) > _TOLD else ''}"
            what_to_do = "start this one with equal values, or end that one"
            words = f"{text_of(name)} works on it, and differs in {what}: {what_to_do}"
            return f"{words}; if that one was killed, wait for {lease:.0f} s"
    return ""


async def _export(server: StoreServer, session: JobSession, address: Address, lease: float) -> None:
    """Make the session the exporter. If there is another exporter, wait for the end of its lease."""
    until = -math.inf
    while True:
        asked_at = trio.current_time()
        (answer,) = await server.run([session.call(lease, takes=False)])
        session.hear(answer)
        if session.is_exporter:
            return
        _, name, left = session.others.exporter
        if until == -math.inf:
            until = trio.current_time() + left / 1e6
            # Log at least a full lease, because a restarted server waits for a full lease before it ends a session.
            words = "job %s: %s is using it; if that process was killed, this one continues within %.0f s: waiting"
            logger.warning(words, address.shown, name, max(lease, left / 1e6))
        # If the lease was renewed, the exporter is alive. Count from the request, so that a late response does not look
        # like a renewal.
        elif asked_at + left / 1e6 > until + lease / 20.0:
            break
        await trio.sleep(min(max(left / 1e6, 0.0) + 0.05, lease / 4.0))
    await server.run([session.call(None, takes=False, leaves="clean")])
    words = f"another process is using it ({name}): wait until it ends, or join it without feeds"
    raise JobError(f"job {address.shown}: {words}", address.shown)


def check_head(flat: Sequence[Any], address: Address) -> None:
    """Raise an error if there is no job, or its format differs from the format of this release."""
    head = texts_of(flat)
    shown = address.shown
    if not head:
        raise UsageError(f"job {shown}: there is no job of this name")
    for name, value in _form().items():
        if head.get(name) != str(value):
            why = f"its {name} is {head.get(name)!r}, and this release uses {value}"
            words = f"job {shown}: another release of trawl wrote it ({why}): continue with that release"
            raise JobError(words, shown)


def _form() -> Mapping[str, int | str]:
    """Return the values in a job's head that identify the format of this release."""
    return {"format": FORMAT, "parts": PARTS, "subsets": SUBSETS, "suffixes": suffixes_digest()}


def _check_server(facts: Mapping[str, str], address: Address, durability: Durability) -> int:
    """Check that a server's configuration suits a job, and return the number of replicas that must confirm each step.

    Raises UsageError if the server is unsuitable, with what to set, and JobUnavailable if it is a replica or lacks one,
    because that may change soon.
    """
    if wrong := _too_old(facts) or _unsafe(facts) or _unable(facts, durability):
        raise UsageError(f"job {address.shown}: {wrong}")
    if lacks := _lacks(facts, durability):
        raise JobUnavailable(f"job {address.shown}: {lacks}", address.shown)
    if not address.is_own and not any(key.startswith("config.") for key in facts):
        words = "job %s: the server does not show its configuration: it must have `maxmemory-policy noeviction`%s"
        also = "" if durability != "always" else ", `appendonly yes` and `appendfsync always`"
        logger.warning(words, address.shown, also)
    return 1 if durability == "replicated" else 0


def _too_old(facts: Mapping[str, str]) -> str:
    for name, key, least in (("Valkey", "valkey_version", (7, 2)), ("Redis", "redis_version", (6, 2))):
        version = facts.get(key)
        if version is not None:
            numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
            wanted = ".".join(map(str, least))
            return f"{name} {version} is too old: use {wanted} or later" if numbers < least else ""
    return ""


def _unsafe(facts: Mapping[str, str]) -> str:
    if facts.get("cluster_enabled") == "1":
        return "the server is part of a cluster, which is not supported yet: use a single server"
    policy = facts.get("config.maxmemory-policy", "noeviction")
    if policy != "noeviction":
        return f"the server may evict keys (maxmemory-policy {policy}): set maxmemory-policy noeviction"
    if facts.get("connected_slaves", "0") != "0" and facts.get("config.min-replicas-to-write", "1") == "0":
        return "the server has replicas, but accepts writes when it has lost them: set min-replicas-to-write 1"
    return ""


_OTHERWISE = "or give --job-durability fast"


def _unable(facts: Mapping[str, str], durability: Durability) -> str:
    if durability == "always" and facts.get("config.appendonly", "yes") != "yes":
        return f"the server keeps no append-only file: set appendonly yes and appendfsync always, {_OTHERWISE}"
    fsync = facts.get("config.appendfsync", "always")
    if durability == "always" and fsync != "always":
        return f"the server's appendfsync is {fsync}: set appendfsync always, {_OTHERWISE}"
    return ""


def _lacks(facts: Mapping[str, str], durability: Durability) -> str:
    if facts.get("role", "master") != "master":
        return "the server is a replica: use its primary"
    if durability == "replicated" and facts.get("connected_slaves", "0") == "0":
        return f"the server has no replica: add one, {_OTHERWISE}"
    return ""
