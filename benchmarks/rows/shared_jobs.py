"""Jobs in a server: the cost of a page, a link and a seen mark, and the speed of several processes on one machine."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import BinaryIO

import trio

from benchmarks.bench import Bench
from benchmarks.crawling import loaded
from benchmarks.figures import Figure, median_of, ratio_of
from benchmarks.peers import run_script
from benchmarks.rows.memory import Holder
from benchmarks.rows.throttled import address
from benchmarks.site import PAGES, SMALL_SITES
from benchmarks.wires import NullTransport
from tests.servers.stores import StoreProcess, running_store
from trawl._run import crawl_with
from trawl.engine import Crawl
from trawl.frontier.redis.layout import Keys, mark_of

__all__ = ["processes", "store"]

HOSTS, PAGES_A_HOST = 240, 10
PARSING = 0.02
"""Seconds of processor time that a page's callback takes."""

PENDING = 50_000
HOSTS_OF_LINKS = 100
MARKS = 2_000_000
AT_ONCE = 1_000
MODELLED = (8, 64)
"""Numbers of processes for which the model predicts the speed."""
CONFIRMED = (4, 8)
"""Numbers of processes for which the prediction is confirmed."""

BUSY = f"""
import time
import trawl

class Busy(trawl.Spider):
    name = "busy"
    custom_settings = {{
        "ALLOW_PRIVATE_ADDRESSES": True, "ROBOTSTXT_OBEY": False, "CONCURRENT_REQUESTS": 64,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 4, "DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0,
    }}

    def __init__(self, hosts, pages, waits=""):
        super().__init__()
        self.hosts = hosts.split()
        self.pages = int(pages)
        self.waits = waits

    async def start(self):
        for host in self.hosts:
            yield trawl.Request(f"http://{{host}}/small/0", cb_kwargs={{"host": host, "number": 0}})

    def parse(self, response, host, number):
        if self.waits:
            time.sleep({PARSING})  # the process does nothing else meanwhile, and needs no core for it
        until = time.thread_time() + {PARSING}
        while not self.waits and time.thread_time() < until:
            sum(range(10_000))
        yield {{"url": response.url}}
        for next in (2 * number + 1, 2 * number + 2):
            if next < self.pages:
                yield trawl.Request(f"http://{{host}}/small/{{next}}", cb_kwargs={{"host": host, "number": next}})
"""


def processes(bench: Bench) -> list[Figure]:
    """Return the speed of a spider that computes for 20 ms per page, with one process and with two processes.

    A model computes the speed of more processes that have a core each. To confirm the model on a machine with few
    cores, each process sleeps for 20 ms per page instead of computing, so it runs as if it had its own core.
    """
    hosts = 8 if bench.is_quick else HOSTS
    folder = bench.folder / "processes"
    folder.mkdir()
    (folder / "busy.py").write_text(BUSY, encoding="utf-8")
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(bench.rounds):
        for count, found in rates.items():
            crawled, took = _crawl(bench, count, hosts)
            found.append(crawled / took)
            bench.say(f"  {count} processes: {found[-1]:,.1f} pages/s")
    costs = _costs(bench)
    full = (PARSING + costs["own"] / 1e6) / (costs["store"] / 1e6)
    steady = {count: _steady(bench, count) for count in (1, 2, *CONFIRMED)}
    return [
        median_of("one process", rates[1], "pages/s"),
        median_of("two processes", rates[2], "pages/s"),
        ratio_of("two processes against one", rates[2], rates[1], least=1.7),
        *(_confirmed(count, steady, full) for count in CONFIRMED),
        *(_expected(count, steady, full) for count in MODELLED),
    ]


def _steady(bench: Bench, count: int) -> float:
    """Return the pages per second of ``count`` sleeping processes, without the time to start, from two crawls."""
    few, many = (1, 2) if bench.is_quick else (30, 120)
    (pages, took), (more, longer) = (_crawl(bench, count, hosts * count, "-a", "waits=1") for hosts in (few, many))
    rate = (more - pages) / (longer - took)
    bench.say(f"  {count} processes that stand still: {rate:,.1f} pages/s, after {took - pages / rate:.1f} s")
    return rate


def _crawl(bench: Bench, count: int, hosts: int, *options: str) -> tuple[int, float]:
    """Crawl with ``count`` processes. Returns the number of pages and the seconds."""
    folder, pages = bench.folder / "processes", 5 if bench.is_quick else PAGES_A_HOST
    names = " ".join([address(number, bench.site.port) for number in range(hosts)])
    words = [
        sys.executable,
        "-m",
        "trawl",
        "crawl",
        "busy.py",
        "-a",
        f"hosts={names}",
        "-a",
        f"pages={pages}",
        *options,
    ]
    words += ["-O", "items.jsonl", "--stats", "stats.json", "--quiet"]
    words += [] if count == 1 else ["--processes", str(count)]
    subprocess.run(words, cwd=folder, check=True)
    stats = json.loads((folder / "stats.json").read_text("utf-8"))
    if stats["item_scraped_count"] != hosts * pages:
        raise RuntimeError(f"{stats['item_scraped_count']} items in place of {hosts * pages}")
    return hosts * pages, float(stats["elapsed_seconds"])


def _model(count: int, steady: Mapping[int, float], full: float) -> float:
    """Return the predicted speedup if each process has a core. The speeds add up until the server's core is busy.

    Args:
        count: The number of processes.
        steady: Pages per second of one process and of two processes.
        full: Number of processes that keep the server's core busy.
    """
    return min(count * steady[2] / steady[1] / 2.0, full)


def _expected(count: int, steady: Mapping[int, float], full: float) -> Figure:
    note = f"computed from two, which come to {_model(2, steady, full):.2f}; the store is full with {full:,.0f}"
    return Figure(name=f"{count} processes against one", value=_model(count, steady, full), unit="x", note=note)


def _confirmed(count: int, steady: Mapping[int, float], full: float) -> Figure:
    """Return the speed of ``count`` sleeping processes, compared with the model's prediction."""
    expected, measured = _model(count, steady, full), steady[count] / steady[1]
    note = f"{measured:.2f} x one, where the model says {expected:.2f}"
    name = f"{count} processes: measured against the model"
    return Figure(name=name, value=measured / expected, unit="x", least=0.9, note=note)


def _costs(bench: Bench) -> dict[str, float]:
    """Return the microseconds of processor time per linked page, of a worker and of the server."""
    with _storing(bench) as running:
        own = _own(bench, running.url("costs"))
        return {"own": own, "store": _cpu(running) / (PAGES + SMALL_SITES[0]) * 1e6}


def store(bench: Bench) -> list[Figure]:
    """Return the cost of a job in a server, compared with a job in a directory, and the memory of a link and a mark."""
    more, served, plain = [], [], []
    for number in range(bench.rounds):
        directory = _own(bench, str(bench.folder / f"job-{number}"))
        with _storing(bench) as running:
            shared = _own(bench, running.url("pages"))
            served.append(_cpu(running) / (PAGES + SMALL_SITES[0]) * 1e6)
        plain.append(directory)
        more.append(shared - directory)
        bench.say(f"  directory {directory:,.0f} us/page, server {shared:,.0f}, its own {served[-1]:,.0f}")
    return [
        median_of("a job in a directory: processor time", plain, "us/page"),
        median_of("a job in a server: additional processor time", more, "us/page", most=60.0),
        median_of("the server's processor time", served, "us/page", most=40.0),
        *_memory(bench),
    ]


def _memory(bench: Bench) -> Iterator[Figure]:
    """Yield the server's memory per pending link without its seen mark, and per seen mark."""
    links, marks = (PENDING // 10, MARKS // 20) if bench.is_quick else (PENDING, MARKS)
    few = links // 10
    held = {}
    for count in (few, links):
        with _storing(bench) as running:
            trio.run(_hold, running.url("links"), count)
            _ask(running, "EVAL", FORGET, "0", f"{Keys('links').seen(0).removesuffix('0')}*")
            held[count] = _used(running)
    yield Figure(name="a pending link", value=(held[links] - held[few]) / (links - few), unit="bytes", most=360.0)
    with _storing(bench) as running:
        before = _used(running)
        _mark(running, marks)
        yield Figure(
            name=f"a seen mark, mean of {marks:,}", value=(_used(running) - before) / marks, unit="bytes", most=12.0
        )


FORGET = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end return 0"


async def _hold(url: str, links: int) -> None:
    """Store ``links`` links that may not be sent for an hour."""

    async def watch(crawl: Crawl) -> None:
        while crawl.queued < links:  # noqa: ASYNC110 - there is no notification for this
            await trio.sleep(0.05)
        crawl.cancel()

    settings = loaded(DOWNLOAD_DELAY=3_600.0, JOB_DIR=url, CONCURRENT_REQUESTS=0)
    arguments = {"hosts": HOSTS_OF_LINKS, "pending": links}
    await crawl_with(Holder, settings, spider_args=arguments, transport=NullTransport(), watchers=[watch])


@contextmanager
def _storing(bench: Bench) -> Iterator[StoreProcess]:
    folder = bench.folder / f"store-{time.monotonic_ns()}"
    folder.mkdir()
    with running_store("redis", folder) as running:
        yield running


def _own(bench: Bench, job: str) -> float:
    """Return the microseconds of processor time per linked page, computed from crawls of a large and a small site."""
    feed = bench.folder / "shared_jobs.jsonl"
    few = SMALL_SITES[0]
    took: list[float] = []
    for name, count in ((str(few), few), ("p", PAGES)):
        url = bench.site.url(f"/{name}/0.html")
        told = run_script("trawl", "crawlers/with_trawl.py", url, str(feed), "--job", f"{job}-{name}")
        if told["pages"] != count:
            raise RuntimeError(f"{told['pages']} pages in place of {count}")
        took.append(told["own"])
    return (took[1] - took[0]) / (PAGES - few) * 1e6


def _ask(running: StoreProcess, *words: str | bytes) -> bytes:
    """Send a command to the server. Returns its response as received."""
    with socket.create_connection(("127.0.0.1", running.port)) as wire:
        wire.sendall(_command(*words))
        return _answer(wire.makefile("rb"))


def _command(*words: str | bytes) -> bytes:
    parts = [word if isinstance(word, bytes) else word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%s\r\n" % (len(part), part) for part in parts])


def _answer(lines: BinaryIO) -> bytes:
    first = lines.readline().rstrip()
    if first[:1] != b"$":
        return first[1:]
    return lines.read(int(first[1:]) + 2)[:-2]


def _info(running: StoreProcess, section: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in _ask(running, "INFO", section).decode().splitlines())
    return {name: value for name, is_pair, value in pairs if is_pair}


def _used(running: StoreProcess) -> int:
    return int(_info(running, "memory")["used_memory"])


def _cpu(running: StoreProcess) -> float:
    """Return the total seconds of processor time of the server."""
    found = _info(running, "cpu")
    return float(found["used_cpu_sys"]) + float(found["used_cpu_user"])


def _mark(running: StoreProcess, count: int) -> None:
    """Store ``count`` marks in the server, in the same way as a job."""
    keys = Keys("marks")
    with socket.create_connection(("127.0.0.1", running.port)) as wire:
        answers = wire.makefile("rb")
        for first in range(0, count, AT_ONCE):
            marks = (
                mark_of(blake2b(b"%d" % number, digest_size=16).digest()) for number in range(first, first + AT_ONCE)
            )
            wire.sendall(b"".join([_command("SADD", keys.seen(subset), str(mark)) for subset, mark in marks]))
            for _ in range(AT_ONCE):
                answers.readline()
