"""Jobs in real servers: the contract of frontiers, the simulation compared, and kills of either end."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.abandoning import abandon
from tests.contracts.team import opened_as_team
from tests.servers.stores import KINDS, StoreProcess, running_store
from tests.simulated_store import SimulatedStore
from trawl.clock import WallClock
from trawl.errors import JobError, UsageError
from trawl.frontier import Frontier
from trawl.frontier.base import Counts
from trawl.frontier.job_frontier import open_frontier
from trawl.frontier.lane_cache import Bounds
from trawl.frontier.parts import HELD, number_in
from trawl.frontier.redis.client import Address, Call, StoreConnectionError, connect
from trawl.frontier.redis.job import RedisJob
from trawl.frontier.redis.layout import Keys, key_of
from trawl.frontier.redis.report import inspect_job
from trawl.frontier.redis.startup import open_job
from trawl.observe import CrawlStatus, encode_status
from trawl.testing.frontier_contract import FrontierContract, Opener

pytestmark = pytest.mark.servers

PAGES = 150

_ORDERS = (("state", "1\tstate\t{}"), ("set a delay", "2\tset a delay\t{}"), ("3", "3\t3\t{}"))


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with running_store(request.param, tmp_path_factory.mktemp(request.param)) as store:
        yield store


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Frontier]:
    async with open_job(Address.parse(url)) as job:
        frontier = await open_frontier(job, object(), WallClock.started(trio.current_time()))
        yield frontier
        await frontier.aclose()


class TestRedis(FrontierContract):
    is_durable = True
    examples = 5  # with each kind of server

    @pytest.fixture(autouse=True)
    def on_a_server(self, server: StoreProcess) -> None:
        self.server = server
        self.names = count()

    @contextmanager
    def store(self) -> Iterator[Opener]:
        yield partial(opened, self.server.url(f"contract/{id(self)}/{next(self.names)}"))


@asynccontextmanager
async def by_three(url: str) -> AsyncIterator[Frontier]:
    address = Address.parse(url)

    def join(exports: bool) -> AbstractAsyncContextManager[RedisJob]:
        return open_job(address, exports=exports)

    async with opened_as_team(address, join, 3, Bounds()) as team:
        yield team


class TestThreeSessionsInRedis(TestRedis):
    """One job, of which three sessions have a third of the hosts each."""

    examples = 2

    @contextmanager
    def store(self) -> Iterator[Opener]:
        yield partial(by_three, self.server.url(f"contract/{id(self)}/{next(self.names)}"))


# Both kinds run the same scripts, so each seed is tried with one of them.
@pytest.mark.parametrize(("server", "seed"), [(KINDS[seed % 2], seed) for seed in range(6)], indirect=["server"])
def test_the_simulation_answers_as_a_server_does(server: StoreProcess, seed: int) -> None:
    keys = Keys(f"same {seed}")
    rng = random.Random(seed)
    calls = list(_calls(rng, keys))

    async def compare() -> None:
        simulated = SimulatedStore()
        async with connect(Address.parse(server.url("same"))) as connected:
            real: Any = connected
            simulated.facts["run_id"] = (await real.facts())["run_id"]
            for call in calls:
                if call[0] == "share" and rng.random() < 0.12:  # another run of the server has answered before
                    await real._client.hset(keys.head, {"run": "another"})
                    simulated.content[keys.head.encode()][b"run"] = b"another"
                (expected,) = await real.run([call])
                assert _timeless(call, simulated.run(*call)) == _timeless(call, expected), call

    trio.run(compare)


LONG, OVER = 10**12, -1
"""Leases in microseconds."""


def _calls(rng: random.Random, keys: Keys) -> Iterator[Call]:
    """Calls of all scripts, most of them of sessions that are there; some are repeated, late, or another's."""
    yield "head", [keys.head], [0]
    form: list[bytes | str | int] = ["format", 2, "parts", 8, "subsets", 4]
    yield "head", [keys.head], [1, *form]
    steps: dict[int, int] = {}
    takings: dict[int, int] = {}
    for number in range(1, 4):
        yield "join", keys.of_join, [f"w{number}", LONG, int(number < 3), b'{"a":"1"}']
        steps[number] = takings[number] = 0
    lanes = [number_in(part, rest) for part in (0, 3, 7) for rest in (5, 6, HELD)]
    places = [(order, lane, priority, 0.5) for order in range(4) for lane in lanes for priority in (0, 3)]
    for _ in range(300):
        session = rng.choice((*steps, 99))
        yield from _step(rng, keys, session, steps, places)
        yield from _share(rng, keys, session, takings)
        yield "state", keys.of_state, []
        start, end = key_of(rng.choice(places))[:8], b"\xff" * 40
        yield "lanes", [keys.queue, keys.arrivals], [rng.choice(("", session)), rng.randrange(3), start, end, 3]
        yield "survey", [keys.queue], [b"", 2]
        yield "items", [keys.items], [rng.randrange(1, 9), 2, rng.choice((1, 100))]
        yield "failed", [keys.failed], [0, 2]
        yield "order", [keys.head], list(_ORDERS[rng.randrange(3)])
        if rng.random() < 0.03:
            number = max(steps) + 1
            yield (
                "join",
                keys.of_join,
                [f"w{number}", rng.choice((LONG, OVER)), rng.randrange(2), b""],
            )
            steps[number] = takings[number] = 0


def _step(
    rng: random.Random, keys: Keys, session: int, steps: dict[int, int], places: list[tuple[int, int, int, float]]
) -> Iterator[Call]:
    number = steps.get(session, 0) + rng.choice((1, 1, 1, 1, 0, -1, 2))
    if number == steps.get(session, 0) + 1:
        steps[session] = number
    declared = [*keys.of_apply, keys.seen(1), keys.spilled_by(session, 1)]
    first, second = len(declared) - 1, len(declared)
    asked = b"".join(key_of(rng.choice(places))[:8] for _ in range(rng.randrange(3)))
    args: list[Any] = [session, number, rng.randrange(3), rng.choice(("", 1)), asked]
    for _ in range(rng.randrange(6)):
        key, other = key_of(rng.choice(places)), key_of(rng.choice(places))
        args += rng.choice(
            (
                ("A", key + b"\x95record"),
                ("N", first, rng.randrange(-9, 9), key + b"\x95record"),
                ("E", key),
                ("F", key, "12.5", b"\0\0\0\2no"),
                ("M", key, other),
                ("S", first, rng.randrange(-3, 3)),
                ("I", b"item \x00\xff"),
                ("P", second, 1, b"spilled"),
                ("T", second, 1),
                ("U", second, f"{session} 1"),
                ("K", "name", rng.randbytes(3)),
                ("D", "name"),
                ("V", rng.randrange(8), rng.choice((b"", b"\x80"))),
                ("G", rng.randrange(8), b"\x80"),
                ("B",),
                ("Q", key + b"\0\0\0\2no\x95record", other + b"\x95record"),
            )
        )
    yield "apply", declared, args


def _share(rng: random.Random, keys: Keys, session: int, takings: dict[int, int]) -> Iterator[Call]:
    """Half of the calls are what a session says that has heard all; the server is another one now and then."""
    heard = max(0, takings.get(session, 0) + rng.choice((0, 0, 0, -1, 1)))
    takings[session] = heard + rng.randrange(2)
    flags = [rng.randrange(2) for _ in range(3)]
    lease = rng.choice((LONG, LONG, LONG, "", OVER if rng.random() < 0.1 else ""))
    counts = rng.choice(("", f"{rng.randrange(9)} {rng.randrange(9)} 2 0"))
    leaves = rng.choice((*[""] * 30, "clean", "unclean"))
    away, starves = rng.randrange(2), rng.randrange(2)
    args = [
        session,
        heard,
        lease,
        *flags,
        rng.randrange(3),
        b"I am",
        leaves,
        away,
        starves,
        counts,
        rng.randrange(9),
    ]
    yield "share", keys.of_share, [*args, rng.randrange(9)]


def _timeless(call: Call, answer: Any) -> Any:
    """An answer without what the clock says, and without the order of a hash or a set."""
    name = call[0]
    if name == "join":
        return [answer[0], answer[2]]
    if name == "share" and len(answer) > 1:
        return [_untimed(each) for each in (*answer[:12], *answer[13:])]
    if name == "state":
        clock = {b"begun", b"latest", b"since", b"first"}
        head = {key: _untimed(value) for key, value in _pairs(answer[0]) if key not in clock}
        live = [each for each, _ in _pairs(answer[5])]
        return [
            head,
            *answer[1:4],
            sorted(_pairs(answer[4])),
            sorted(live),
            sorted(_pairs(answer[6])),
            sorted(answer[7]),
        ]
    if name == "head":
        return sorted((key, _untimed(value)) for key, value in _pairs(answer) if key != b"begun")
    if name == "failed":
        return [each if n % 2 == 0 else float(each) for n, each in enumerate(answer)]
    return answer


def _untimed(answer: Any) -> Any:
    """An answer without the time of an order, which is the last field of its line."""
    return re.sub(rb"(?m)^(\d+\t.*\t)\d+$", rb"\1", answer) if isinstance(answer, bytes) else answer


def _pairs(flat: Any) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


class _Page(BaseHTTPRequestHandler):
    """A tree of pages."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        number = int(self.path.strip("/") or 0)
        links = [child for child in (2 * number + 1, 2 * number + 2) if child < PAGES]
        body = "".join(f'<a href="/{child}">{child}</a>' for child in links).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


SPIDER = """
import trawl

class Tree(trawl.Spider):
    name = "tree"
    custom_settings = {"DOWNLOAD_DELAY": 0.02, "DOWNLOAD_DELAY_PER_SLOT": 0, "RANDOMIZE_DOWNLOAD_DELAY": False,
                       "ROBOTSTXT_OBEY": False, "JOB_LEASE": 3.0}

    def parse(self, response):
        yield {"url": response.url}
        yield from response.follow_all(css="a")
"""


@pytest.fixture
def site() -> Iterator[str]:
    pages = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=pages.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{pages.server_port}/"
    pages.shutdown()
    thread.join()
    pages.server_close()


def crawl(folder: Path, site: str, url: str) -> subprocess.Popen[bytes]:
    """Start a crawl in a process of its own."""
    (folder / "tree.py").write_text(SPIDER + f"    start_urls = [{site!r}]\n", encoding="utf-8")
    command = [sys.executable, "-m", "trawl", "crawl", "tree.py", "--job", url, "-o", "items.jsonl"]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE)


def until_items(folder: Path, wanted: int) -> None:
    """Return when the feed has so many items."""
    feed = folder / "items.jsonl"
    deadline = time.monotonic() + 200.0
    while time.monotonic() < deadline and not (feed.exists() and feed.read_bytes().count(b"\n") >= wanted):
        time.sleep(0.02)


def assert_whole(folder: Path, site: str) -> None:
    """Each page is in the feed once."""
    urls = [json.loads(line)["url"] for line in (folder / "items.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(urls) == len(set(urls)) == PAGES
    assert set(urls) == {f"{site}{number or ''}" for number in range(PAGES)}


@pytest.mark.parametrize("kind", KINDS)
def test_c1_c7_server_and_worker_are_killed_and_each_page_is_in_the_feed_once(
    tmp_path: Path, site: str, kind: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with running_store(kind, data) as store:
        url = store.url("killed")
        worker = crawl(tmp_path, site, url)
        for items in (20, 60):
            until_items(tmp_path, items)
            store.kill()
            time.sleep(0.3)
            store.start()
        until_items(tmp_path, 90)
        worker.kill()
        _, said = worker.communicate()
        assert b"its server is away" in said
        assert b"its server is back" in said
        worker = crawl(tmp_path, site, url)
        until_items(tmp_path, 120)
        worker.kill()
        worker.communicate()
        last = crawl(tmp_path, site, url)
        _, said = last.communicate(timeout=300.0)
        assert last.returncode == 0, said.decode()
        assert_whole(tmp_path, site)
        again = crawl(tmp_path, site, url)
        _, said = again.communicate(timeout=300.0)
        assert b"is finished: nothing is pending" in said


def test_what_sessions_have_counted_is_summed_and_stays_when_they_are_gone(server: StoreProcess) -> None:
    address = Address.parse(server.url("counted"))
    own, others = Counts(3, 1, 2, 0), Counts(5, 2, 0, 1)

    async def run() -> None:
        told, heard = trio.open_memory_channel[Counts](100)
        async with open_job(address) as one:
            one.session.others.count(lambda: own, told.send_nowait)
            async with open_job(address, exports=False) as two:
                two.session.others.count(lambda: others, lambda _: None)
                while await heard.receive() != others:
                    pass
            while await heard.receive() != others._replace(in_flight=0):
                pass
        async with open_job(address) as one:  # who begins when no other works counts anew
            told, heard = trio.open_memory_channel[Counts](100)
            one.session.others.count(lambda: own, told.send_nowait)
            one.session.ask_if_over(is_idle=True)
            assert await heard.receive() == Counts()

    async def limited() -> None:
        with trio.fail_after(120.0):
            await run()

    trio.run(limited)


def test_of_a_killed_process_nothing_is_reported_as_leased(server: StoreProcess) -> None:
    url = server.url("leased")

    async def run() -> None:
        async with open_job(Address.parse(url), lease=1.5) as job:
            job.session.say(encode_status(CrawlStatus(in_flight=9)))
            await trio.sleep(1.0)  # a renewal
            abandon(job)

    trio.run(run)
    assert inspect_job(url).leased == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lost_connection_is_known_for_what_it_is(tmp_path: Path, kind: str) -> None:
    async def read() -> None:
        async with connect(Address.parse(store.url("lost"))) as server:
            store.kill()
            await server.read_stream("news", "0", 1.0)

    with running_store(kind, tmp_path) as store, pytest.raises(StoreConnectionError):
        await read()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--appendfsync", "everysec"], "appendfsync is everysec: set appendfsync always"),
        (["--maxmemory-policy", "allkeys-lru"], "set maxmemory-policy noeviction"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_may_lose_keys_is_refused(tmp_path: Path, kind: str, options: list[str], words: str) -> None:
    async def run(url: str) -> None:
        async with open_job(Address.parse(url)):
            pass

    with running_store(kind, tmp_path, *options) as store, pytest.raises(UsageError, match=words):
        trio.run(run, store.url("refused"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_password_is_needed_where_one_is_set_and_a_socket_will_do(tmp_path: Path, kind: str) -> None:
    async def run(url: str) -> None:
        async with open_job(Address.parse(url)) as job:
            job.keep("name", b"value")
            await job.commit()

    path = tmp_path / "socket"
    with running_store(kind, tmp_path, "--unixsocket", str(path)) as store:
        trio.run(run, f"redis+unix://{path}?job=books")
        trio.run(run, store.url("books"))
        locked = tmp_path / "locked"
        locked.mkdir()
        with running_store(kind, locked, "--requirepass", "sesame") as other:
            trio.run(run, other.url("books").replace("//", "//:sesame@"))
            with pytest.raises(JobError, match="the server refuses") as caught:
                trio.run(run, other.url("books").replace("//", "//:open@"))
            assert "open" not in str(caught.value)
    with pytest.raises(JobError, match="its server can't be reached"):
        trio.run(run, store.url("books"))
