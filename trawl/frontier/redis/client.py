"""The connection to a server through coredis, which only this module imports; errors mapped once.

coredis repeats commands by itself after a lost connection unless it is told not to. Here it never does: a step says
itself whether it was applied, and is repeated by whoever has its number.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs, quote, unquote, urlsplit

import attrs
import trio

from trawl.errors import JobError, TrawlError, UsageError
from trawl.frontier.redis.layout import scripts, text_of

__all__ = [
    "Address",
    "Call",
    "Connect",
    "Durability",
    "StoreConnectionError",
    "StoreServer",
    "check_server",
    "connect",
    "tell_durability",
    "told",
]

logger: logging.Logger = logging.getLogger("trawl.frontier")

_AWAY = re.compile(r"\b(?:LOADING|BUSY|OOM|MISCONF|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS)\b")
"""Words in answers of a server that will do it later: at the beginning, or further in where a script failed by it."""

_HINTS = {
    r"NOPERM|permission|can't run this command|can't access": "give its user what the docs list in `Many machines`",
    r"wrong kind of value": "something else has written one of the job's keys: delete that, or rename the job",
}
"""What to do where a server refuses in these words."""

CONNECT_SECONDS = 5.0
ROUND_SECONDS = 5.0
"""How long a server may take for a connection, and for an answer."""


class StoreConnectionError(Exception):
    """The server does not answer, or can't now: nobody knows what became of what was asked."""


Call: TypeAlias = "tuple[str, Sequence[str], Sequence[bytes | str | int]]"
"""The name of a script, its keys, its arguments."""


@attrs.frozen
class Address:
    """The address of a job in a server.

    Attributes:
        job: The job's name.
        shown: The address without user and password, for messages.
        options: Arguments of the client.
    """

    job: str
    shown: str
    options: Mapping[str, Any] = attrs.field(repr=False)

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read ``redis://[user:password@]host[:port]/JOB``, ``rediss://`` or ``redis+unix://[...]/path/to/socket?job=JOB``.

        After a socket's job, ``&shown=DIR`` is what messages call it: the directory of a job with a server of its own.

        Raises:
            UsageError: It is not such an address; the message does not repeat a password.
        """
        what_to_do = "give redis://HOST[:PORT]/NAME, rediss://HOST[:PORT]/NAME or redis+unix:///SOCKET?job=NAME"
        scheme, _, rest = url.partition("://")
        safe = f"{scheme}://{rest.rpartition('@')[2]}"  # a password may have a slash that is not encoded
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise UsageError(f"job {safe}: {error}: {what_to_do}") from None
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        is_socket = parts.scheme == "redis+unix"
        job = query.pop("job", "") if is_socket else unquote(parts.path.lstrip("/"))
        database = query.pop("db", "0")
        certificates = query.pop("ca", "")
        directory = query.pop("shown", "") if is_socket else ""
        try:
            port = parts.port or 6379
        except ValueError:
            port = 0
        host = parts.hostname or ""
        place = parts.path if is_socket else f"{f'[{host}]' if ':' in host else host}:{port}"
        named = _printable(job)
        shown = _printable(directory) or f"{parts.scheme}://{place}{f'?job={named}' if is_socket else f'/{named}'}"
        if not job or not port or (not is_socket and not host) or not database.isdecimal() or query:
            is_encoded = "@" not in f"{parts.path}{parts.query}{parts.fragment}"
            wrong = f"its {next(iter(query))!r} is not known" if query and is_encoded else "a part is missing or wrong"
            raise UsageError(f"job {safe}: {wrong}: {what_to_do}, each part percent-encoded")
        options: dict[str, Any] = {"db": int(database)}
        if parts.password is not None:
            options["password"] = unquote(parts.password)
        if parts.username:
            options["username"] = unquote(parts.username)
        if is_socket:
            options["unix_socket_path"] = unquote(parts.path)
        else:
            options.update(host=host, port=port)
        if parts.scheme == "rediss":
            try:
                options["ssl_context"] = ssl.create_default_context(cafile=certificates or None)
            except OSError as error:
                raise UsageError(f"job {shown}: its certificates {certificates!r} can't be read: {error}") from error
        return cls(job, shown, options)


Connect: TypeAlias = "Callable[[Address], AbstractAsyncContextManager[StoreServer]]"
"""Makes a connection to the server of a job."""


def _printable(name: str) -> str:
    return "".join([char if char.isprintable() else quote(char) for char in name])  # a line end may fake a log line


class StoreServer:
    """A connection to a server, through coredis; :func:`connect` makes it."""

    def __init__(self, client: Any, address: Address) -> None:
        self._client = client
        self._address = address

    async def run(self, calls: Sequence[Call], replicas: int = 0) -> list[Any]:
        """Run scripts in one round trip, in their order; their answers. A checkpoint.

        Args:
            calls: The scripts.
            replicas: Replicas that must have it before it counts.

        Raises:
            StoreConnectionError: Any part of it may have been done.
            JobError: The server refuses.
        """
        import coredis.exceptions as errors  # noqa: PLC0415

        try:
            return await self._run(calls, replicas)
        except errors.NoScriptError:  # the server was restarted, or is another one
            await self._load()
        try:
            return await self._run(calls, replicas)
        except errors.NoScriptError as error:  # it became another one meanwhile
            raise StoreConnectionError("it has lost the scripts that it was just given") from error

    async def _run(self, calls: Sequence[Call], replicas: int) -> list[Any]:
        with _mapped(self._address):
            with trio.fail_after(ROUND_SECONDS):
                # On the connection itself: a command of the client, and a pipeline more so, costs as much again.
                async with self._client.connection_pool.acquire() as connection:
                    ask = partial(connection.create_request, disconnect_on_cancellation=True)
                    asked = [ask(b"EVALSHA", scripts()[name][0], len(keys), *keys, *args) for name, keys, args in calls]
                    # Half of the time, in milliseconds: its answer is here before the round is given up.
                    confirmed = ask(b"WAIT", replicas, int(ROUND_SECONDS * 500)) if replicas else None
                answers = [await each for each in asked]
                if confirmed is not None and int(await confirmed) < replicas:
                    raise StoreConnectionError("no replica has confirmed the last step")
                return answers

    async def read_stream(self, key: str, after: str, seconds: float) -> list[tuple[str, Mapping[bytes, bytes]]]:
        """Return what came into a stream after an entry; wait up to so many seconds if nothing did. A checkpoint.

        With 0 seconds it does not wait.

        Returns:
            Of each entry its id, and its values by name.

        Raises:
            StoreConnectionError: The server does not answer.
        """
        with _mapped(self._address):
            with trio.fail_after(ROUND_SECONDS + seconds):
                milliseconds = int(seconds * 1e3) or None  # 0 would wait for ever
                found = await self._client.xread(streams={key: after}, count=1000, block=milliseconds)
        entries = [] if not found else next(iter(found.values()))
        return [(text_of(entry.identifier), entry.field_values) for entry in entries]

    async def facts(self) -> Mapping[str, str]:
        """Return what the server says of itself and of its configuration. A checkpoint.

        Raises:
            StoreConnectionError: It does not answer.
        """
        import coredis.exceptions as errors  # noqa: PLC0415

        with _mapped(self._address):
            with trio.fail_after(ROUND_SECONDS):
                facts = {str(key): str(value) for key, value in (await self._client.info()).items()}
                try:
                    found = await self._client.config_get(["*"])
                except (errors.ResponseError, errors.AuthorizationError):  # managed servers do not tell
                    found = {}
        for key, value in found.items():
            facts[f"config.{text_of(key)}"] = text_of(value)
        return facts

    async def _load(self) -> None:
        with _mapped(self._address):
            with trio.fail_after(ROUND_SECONDS):
                for _, text in scripts().values():
                    await self._client.script_load(text)


@contextmanager
def _mapped(address: Address) -> Generator[None, None, None]:
    """Map errors of coredis and of the system."""
    import coredis.exceptions as errors  # noqa: PLC0415

    try:
        yield
    except BaseException as raised:
        error = raised
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if isinstance(error, StoreConnectionError | TrawlError) and error is not raised:
            # Without the group of the client's nursery, so that it is known for what it is.
            raise error from error.__cause__
        if isinstance(error, StoreConnectionError | errors.NoScriptError):
            raise
        words = str(error) or type(error).__name__
        if isinstance(error, trio.TooSlowError | TimeoutError):
            raise StoreConnectionError(f"no answer within {ROUND_SECONDS:g} s") from error
        is_refusal = isinstance(error, errors.AuthenticationError)
        lost = errors.ConnectionError | OSError | trio.BrokenResourceError | trio.ClosedResourceError
        tls = _tls_error(error)
        shown = address.shown
        if isinstance(tls, ssl.SSLCertVerificationError):
            what_to_do = "name its authority with ?ca=FILE, and the server as its certificate does"
            words = f"job {shown}: the server's certificate is refused ({tls.verify_message}): {what_to_do}"
            raise JobError(words, shown) from error
        if isinstance(error, lost) and not is_refusal:
            raise StoreConnectionError(words if tls is None else f"{words} (TLS: {tls.reason or tls})") from error
        if isinstance(error, errors.RedisError):
            # The client takes its word away from these. Unblocked is who waits at a server that becomes a replica.
            later = errors.ReadOnlyError | errors.UnblockedError | errors.ClusterDownError | errors.TryAgainError
            if isinstance(error, later) or _AWAY.search(words):
                raise StoreConnectionError(words) from error
            raise JobError(f"job {shown}: the server refuses: {told(words)}", shown) from error
        raise


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    """Return the error of TLS that an error came from."""
    found: BaseException | None = error
    for _ in range(10):
        if found is None or isinstance(found, ssl.SSLError):
            return found
        found = found.exceptions[0] if isinstance(found, BaseExceptionGroup) else found.__cause__ or found.__context__
    return None


def told(words: str) -> str:
    """Return what a server says when it refuses, with what to do.

    Raises:
        StoreConnectionError: It refuses now, and may not later.
    """
    if _AWAY.search(words):
        raise StoreConnectionError(words)
    return ": ".join([words, *[hint for pattern, hint in _HINTS.items() if re.search(pattern, words)]])


@asynccontextmanager
async def connect(address: Address) -> AsyncGenerator[StoreServer, None]:
    """Hold a connection to a server. Enter and leave it in one task: the client has a nursery.

    Raises:
        UsageError: coredis is not installed.
    """
    try:
        import coredis  # noqa: PLC0415
        from coredis.retry import NoRetryPolicy  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("a job in Redis needs coredis: pip install 'trawl-crawler[redis]'") from error
    client = coredis.Redis(
        **address.options,
        retry_policy=NoRetryPolicy(),
        connect_timeout=CONNECT_SECONDS,
        decode_responses=False,
        verify_version=False,
    )
    theirs = logging.getLogger("coredis")
    if theirs.level == logging.NOTSET:  # ours says once that a server is away
        theirs.setLevel(logging.WARNING)
    with _mapped(address):
        async with client:
            yield StoreServer(client, address)


Durability: TypeAlias = Literal["always", "replicated", "fast"]

_POLICIES: Mapping[str, str] = {
    "always": "each step is on the server's disk before it counts",
    "replicated": "each step is in a replica's memory before it counts",
    "fast": "after a power cut of the server, or its failover, the last steps are done again, and items may come twice",
}


def check_server(facts: Mapping[str, str], address: Address, durability: Durability) -> int:
    """Compare a server's configuration with what a job needs.

    Returns the number of replicas that must have each step.

    Raises:
        UsageError: The server is too old, may evict keys or lose steps; the message says what to set.
        JobError: It is a replica, or has none: that may be otherwise soon, so whoever starts processes may try again.
    """
    wrong = _too_old(facts) or _unsafe(facts) or _unable(facts, durability)
    if wrong:
        raise UsageError(f"job {address.shown}: {wrong}")
    lacks = _lacks(facts, durability)
    if lacks:
        raise JobError(f"job {address.shown}: {lacks}", address.shown)
    if not any(key.startswith("config.") for key in facts):
        words = "job %s: the server does not tell its configuration: it must have `maxmemory-policy noeviction`%s"
        also = "" if durability != "always" else ", `appendonly yes` and `appendfsync always`"
        logger.warning(words, address.shown, also)
    return 1 if durability == "replicated" else 0


def tell_durability(address: Address, durability: Durability) -> None:
    """Say in the log what is to be expected of a server that has what is needed."""
    if durability != "fast" or "unix_socket_path" not in address.options:  # that one ends with the machine
        logger.info("job %s: durability %s: %s", address.shown, durability, _POLICIES[durability])


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
        return "the server is part of a cluster, which is not supported yet: give a single server"
    policy = facts.get("config.maxmemory-policy", "noeviction")
    if policy != "noeviction":
        return f"the server may throw keys away (maxmemory-policy {policy}): set maxmemory-policy noeviction"
    if facts.get("connected_slaves", "0") != "0" and facts.get("config.min-replicas-to-write", "1") == "0":
        return "the server has replicas, and goes on writing when it has lost them: set min-replicas-to-write 1"
    return ""


_OTHERWISE = "or give --job-durability fast"


def _unable(facts: Mapping[str, str], durability: Durability) -> str:
    if durability == "always":
        if facts.get("config.appendonly", "yes") != "yes":
            return f"the server keeps no append-only file: set appendonly yes and appendfsync always, {_OTHERWISE}"
        fsync = facts.get("config.appendfsync", "always")
        if fsync != "always":
            return f"the server's appendfsync is {fsync}: set appendfsync always, {_OTHERWISE}"
    return ""


def _lacks(facts: Mapping[str, str], durability: Durability) -> str:
    if facts.get("role", "master") != "master":
        return "the server is a replica: give its primary"
    if durability == "replicated" and facts.get("connected_slaves", "0") == "0":
        return f"the server has no replica: give it one, {_OTHERWISE}"
    return ""
