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
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote, unquote, urlsplit

import attrs
import trio

from trawl.errors import JobError, TrawlError, UsageError
from trawl.frontier.redis.layout import scripts, text_of

__all__ = [
    "Address",
    "Call",
    "Connect",
    "StoreConnectionError",
    "StoreServer",
    "connect",
    "refusal_words",
]

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
        is_own: Whether the command has started the server for this job, and so knows its configuration.
    """

    job: str
    shown: str
    options: Mapping[str, Any] = attrs.field(repr=False)
    is_own: bool = False

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read ``redis://[user:password@]host[:port]/JOB``, ``rediss://`` or ``redis+unix://[...]/path/to/socket?job=JOB``.

        After a socket's job, ``&own=1`` marks the server of that job alone, and ``&shown=DIR`` is the directory of the
        job, which messages name.

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
        is_own = is_socket and query.pop("own", "") == "1"
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
        return cls(job, shown, options, is_own)


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
    except Exception as raised:  # Cancelled, alone or in a group, passes
        error = raised
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
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
            raise JobError(f"job {shown}: the server refuses: {refusal_words(words)}", shown) from error
        raise


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    """Return the error of TLS that an error came from."""
    found: BaseException | None = error
    for _ in range(10):
        if found is None or isinstance(found, ssl.SSLError):
            return found
        found = found.exceptions[0] if isinstance(found, BaseExceptionGroup) else found.__cause__ or found.__context__
    return None


def refusal_words(words: str) -> str:
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
