"""The connection to a server through coredis. Only this module imports coredis and maps its errors.

By default, coredis repeats commands after a lost connection. This module disables that, because the job itself sends a
step again, under the same number, and the server reports whether the step was applied before.
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
    "check_installed",
    "connect",
    "refusal_words",
]

_AWAY = re.compile(r"\b(?:LOADING|BUSY|OOM|MISCONF|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|NOREPLICAS)\b")
"""Words in the error messages of a server that may accept the command later.

They are at the start of the message, or inside the message if a script failed.
"""

_HINTS = {
    r"NOPERM|permission|can't run this command|can't access": "grant its user the rights in the docs' `Many machines`",
    r"wrong kind of value": "another program has written one of the job's keys: delete that key, or rename the job",
}
"""The fix for a refusal whose message matches the pattern."""

CONNECT_SECONDS = 5.0
ROUND_SECONDS = 5.0
"""Timeouts in seconds: for a connection, and for a response."""


class StoreConnectionError(Exception):
    """Raised if the server does not respond, or can't run commands now. The server may have run the commands."""


Call: TypeAlias = "tuple[str, Sequence[str], Sequence[bytes | str | int]]"
"""Name of a script, its keys and its arguments."""


@attrs.frozen
class Address:
    """The address of a job in a server.

    Attributes:
        job: Name of the job.
        shown: The address without user and password, for messages.
        options: Keyword arguments of the client.
        is_own: Whether the ``trawl`` command has started the server for this job. Its configuration is then known.
        leads: Whether the process leads the processes that it has started, and sends no requests itself.
    """

    job: str
    shown: str
    options: Mapping[str, Any] = attrs.field(repr=False)
    is_own: bool = False
    leads: bool = False

    @classmethod
    def parse(cls, url: str) -> Address:
        """Parse the address of a job in a server.

        Forms: ``redis://[user:password@]host[:port]/JOB``, ``rediss://`` or ``redis+unix://[...]/path/to/socket?job=JOB``.

        For a socket, ``&own=1`` means that the server was started for this job, and ``&shown=DIR`` is the job's
        directory, for messages. ``leads=1`` is for the command that has started the job's processes.

        Raises:
            UsageError: If ``url`` is not such an address. The message omits the password.
        """
        what_to_do = "give redis://HOST[:PORT]/NAME, rediss://HOST[:PORT]/NAME or redis+unix:///SOCKET?job=NAME"
        scheme, _, rest = url.partition("://")
        safe = f"{scheme}://{rest.rpartition('@')[2]}"  # a password may contain an unencoded slash
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise UsageError(f"job {safe}: {error}: {what_to_do}") from None
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        is_socket = parts.scheme == "redis+unix"
        job = query.pop("job", "") if is_socket else unquote(parts.path.lstrip("/"))
        database = query.pop("db", "0")
        certificates = query.pop("ca", "")
        leads = query.pop("leads", "") == "1"
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
            wrong = f"its {next(iter(query))!r} is unknown" if query and is_encoded else "a part is missing or wrong"
            raise UsageError(f"job {safe}: {wrong}: {what_to_do}, each part percent-encoded")
        options: dict[str, Any] = {"db": int(database)}
        if parts.password is not None:
            options["password"] = unquote(parts.password)
        if parts.username:
            options["username"] = unquote(parts.username)
        options |= {"unix_socket_path": unquote(parts.path)} if is_socket else {"host": host, "port": port}
        if parts.scheme == "rediss":
            try:
                options["ssl_context"] = ssl.create_default_context(cafile=certificates or None)
            except OSError as error:
                raise UsageError(f"job {shown}: its certificates {certificates!r} can't be read: {error}") from error
        return cls(job, shown, options, is_own, leads)


Connect: TypeAlias = "Callable[[Address], AbstractAsyncContextManager[StoreServer]]"
"""Returns a context manager that holds a connection to the server of a job."""


def _printable(name: str) -> str:
    return "".join([char if char.isprintable() else quote(char) for char in name])  # a line break could fake a log line


class StoreServer:
    """A connection to a server through coredis, created by :func:`connect`."""

    def __init__(self, client: Any, address: Address) -> None:
        self._client = client
        self._address = address

    async def run(self, calls: Sequence[Call], replicas: int = 0) -> list[Any]:
        """Run scripts in order in one round trip, and return their responses. A checkpoint.

        ``replicas`` is the number of replicas that must confirm the changes. After a StoreConnectionError, any part of
        the scripts may have run. If the server refuses a script, this raises JobError.
        """
        import coredis.exceptions as errors  # noqa: PLC0415

        try:
            return await self._run(calls, replicas)
        except errors.NoScriptError:  # the server lost the scripts, because it was restarted or replaced
            await self._load()
        try:
            return await self._run(calls, replicas)
        except errors.NoScriptError as error:  # the server was replaced between the two calls
            raise StoreConnectionError("it has lost the scripts that were just loaded") from error

    async def _run(self, calls: Sequence[Call], replicas: int) -> list[Any]:
        with _mapped(self._address):
            with trio.fail_after(ROUND_SECONDS):
                # Use the connection directly, because the client's own commands take twice as long, and its pipelines
                # take even longer.
                async with self._client.connection_pool.acquire() as connection:
                    ask = partial(connection.create_request, disconnect_on_cancellation=True)
                    asked = [ask(b"EVALSHA", scripts()[name][0], len(keys), *keys, *args) for name, keys, args in calls]
                    # Let the server wait for half of our timeout, in milliseconds, so that its response arrives in
                    # time.
                    confirmed = ask(b"WAIT", replicas, int(ROUND_SECONDS * 500)) if replicas else None
                answers = [await each for each in asked]
                if confirmed is not None and int(await confirmed) < replicas:
                    raise StoreConnectionError("no replica has confirmed the last step")
                return answers

    async def read_stream(self, key: str, after: str, seconds: float) -> list[tuple[str, Mapping[bytes, bytes]]]:
        """Return the ids and values of the entries of a stream after the entry ``after``. A checkpoint.

        Wait at most ``seconds`` for the first; 0 returns immediately.
        """
        with _mapped(self._address):
            with trio.fail_after(ROUND_SECONDS + seconds):
                milliseconds = int(seconds * 1e3) or None  # 0 would wait forever
                found = await self._client.xread(streams={key: after}, count=1000, block=milliseconds)
        entries = [] if not found else next(iter(found.values()))
        return [(text_of(entry.identifier), entry.field_values) for entry in entries]

    async def facts(self) -> Mapping[str, str]:
        """Return the information that the server reports about itself, and its configuration. A checkpoint."""
        import coredis.exceptions as errors  # noqa: PLC0415

        with _mapped(self._address):
            with trio.fail_after(ROUND_SECONDS):
                facts = {str(key): str(value) for key, value in (await self._client.info()).items()}
                try:
                    found = await self._client.config_get(["*"])
                except (errors.ResponseError, errors.AuthorizationError):  # managed servers hide their configuration
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
    """Convert errors of coredis and of the system to trawl's errors."""
    import coredis.exceptions as errors  # noqa: PLC0415

    try:
        yield
    except Exception as raised:  # does not catch trio.Cancelled, which is not an Exception
        error = raised
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if isinstance(error, StoreConnectionError | TrawlError) and error is not raised:
            # Raise the error itself, not the exception group of the client's nursery, so that callers can catch it.
            raise error from error.__cause__
        if isinstance(error, StoreConnectionError | errors.NoScriptError):
            raise
        words = str(error) or type(error).__name__
        if isinstance(error, trio.TooSlowError | TimeoutError):
            raise StoreConnectionError(f"no response within {ROUND_SECONDS:g} s") from error
        is_refusal = isinstance(error, errors.AuthenticationError)
        lost = errors.ConnectionError | OSError | trio.BrokenResourceError | trio.ClosedResourceError
        tls = _tls_error(error)
        shown = address.shown
        if isinstance(tls, ssl.SSLCertVerificationError):
            what_to_do = "name its authority with ?ca=FILE, and use the host name in the certificate"
            words = f"job {shown}: the server's certificate is refused ({tls.verify_message}): {what_to_do}"
            raise JobError(words, shown) from error
        if isinstance(error, lost) and not is_refusal:
            raise StoreConnectionError(words if tls is None else f"{words} (TLS: {tls.reason or tls})") from error
        if isinstance(error, errors.RedisError):
            # Check the class too, because coredis removes the error code from the messages of these errors.
            # UnblockedError means that the server became a replica during a blocking call.
            later = errors.ReadOnlyError | errors.UnblockedError | errors.ClusterDownError | errors.TryAgainError
            if isinstance(error, later) or _AWAY.search(words):
                raise StoreConnectionError(words) from error
            raise JobError(f"job {shown}: the server refuses: {refusal_words(words)}", shown) from error
        raise


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    """Return the TLS error that caused ``error``; None if there is none."""
    found: BaseException | None = error
    for _ in range(10):
        if found is None or isinstance(found, ssl.SSLError):
            return found
        found = found.exceptions[0] if isinstance(found, BaseExceptionGroup) else found.__cause__ or found.__context__
    return None


def refusal_words(words: str) -> str:
    """Return the message of a server that refused a command, followed by the fix if it is known.

    Raises StoreConnectionError if the server may accept the command later.
    """
    if _AWAY.search(words):
        raise StoreConnectionError(words)
    return ": ".join([words, *[hint for pattern, hint in _HINTS.items() if re.search(pattern, words)]])


def check_installed(extra: str = "redis") -> None:
    """Check that the client's library is installed. The message names the extra."""
    try:
        import coredis  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        what = "a job in Redis needs" if extra == "redis" else "several processes need"
        raise UsageError(f"{what} coredis: pip install 'trawl-crawler[{extra}]'") from error


@asynccontextmanager
async def connect(address: Address) -> AsyncGenerator[StoreServer, None]:
    """Connect to a server for a block. Enter and leave the block in one task, because the client has a nursery."""
    check_installed()
    import coredis  # noqa: PLC0415 - an extra
    from coredis.retry import NoRetryPolicy  # noqa: PLC0415

    client = coredis.Redis(
        **address.options,
        retry_policy=NoRetryPolicy(),
        connect_timeout=CONNECT_SECONDS,
        decode_responses=False,
        verify_version=False,
    )
    theirs = logging.getLogger("coredis")
    if theirs.level == logging.NOTSET:  # trawl itself logs once that a server is unreachable, without a traceback
        theirs.setLevel(logging.CRITICAL)
    with _mapped(address):
        async with client:
            yield StoreServer(client, address)
