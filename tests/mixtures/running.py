"""Runs a mixture on a virtual clock, including its kills, and records the sends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio

import trawl
from tests.mixtures.world import BODY, Mixture, Step
from tests.watched_crawl import crawl_with
from trawl.blocking import InlineBlocking
from trawl.exceptions import IgnoreRequest
from trawl.http import Fetch, HtmlResponse, Outcome, Replace, Request
from trawl.settings import Layer, load
from trawl.testing import Send
from trawl.testing.clock import VirtualClock, seeded_scheduling
from trawl.testing.sends import ScopeTracker

__all__ = ["Look", "Trace", "run_mixture"]

START_UTC = datetime(2025, 1, 1, tzinfo=UTC)
USER_CODE = "user code"
"""Marks requests that user code handled instead of the transport, in the field for the error."""

LONGEST = 20_000.0
"""Virtual seconds after which a mixture counts as stuck."""


@attrs.frozen
class Look:
    """A report of the crawl at one time.

    Attributes:
        at: The time, in seconds since the start of the first run.
        scope: The scope of the report; "" for a group of ``crawl.waiting()``.
        count: Number of waiting requests in a group.
        reason: The reported reason.
        until: The reported end of the wait, in seconds since the start of the first run.
        in_flight: Number of requests in the reason's scope that hold a place, sent or not.
    """

    at: float
    scope: str
    count: int
    reason: Any
    until: float
    in_flight: int = 0


@attrs.define
class Trace:
    """All runs of a mixture. Times are seconds since the start of the first run.

    Attributes:
        sends: The sends in order. Sends that a kill interrupted end at the kill.
        items: The delivered items.
        looks: The reports during the runs.
        kills: Times of the kills.
        began: Start times of the runs.
        reason: The reason why the last run ended.
        failed: The URLs for which user code failed or did something else.
    """

    sends: list[Send] = attrs.Factory(list)
    items: list[Mapping[str, Any]] = attrs.Factory(list)
    looks: list[Look] = attrs.Factory(list)
    kills: list[float] = attrs.Factory(list)
    began: list[float] = attrs.Factory(list)
    reason: str = ""
    failed: set[str] = attrs.Factory(set)


class Killer(trio.abc.Instrument):
    """Copies a folder at one step of Trio's tasks, in the state that a SIGKILL would leave, and cancels the run."""

    def __init__(self, at: int, folder: Path, copy: Path) -> None:
        self._at = at
        self._folder = folder
        self._copy = copy
        self._steps = 0
        self.scope: trio.CancelScope = trio.CancelScope()
        self.killed_at: float | None = None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count the step, and kill at the chosen step."""
        self._steps += 1
        if self._steps == self._at:
            self.killed_at = trio.current_time()
            shutil.copytree(self._folder, self._copy)
            self.scope.cancel()


def spider_of(mixture: Mixture) -> type[trawl.Spider]:
    """Return the spider that makes the mixture's requests."""

    def request_of(spider: trawl.Spider, step: Step) -> Request:
        meta: dict[str, Any] = {}
        if step.scopes is not None:
            meta["throttling_scopes"] = dict(step.scopes)
        if step.session:
            meta["session"] = step.session
        if step.delay:
            meta["delay"] = step.delay
        return Request(step.url, spider.parse, priority=step.priority, meta=meta, cb_kwargs={"number": step.number})

    class Mixed(trawl.Spider):
        name = "mixed"

        async def start(self) -> Any:
            for step in mixture.steps:
                if step.parent is None:
                    yield request_of(self, step)

        async def parse(self, response: Any, number: int) -> Any:
            step = mixture.steps[number]
            if step.kind == "direct":
                await self.fetch(Request(f"http://{step.to}/end/{number}"))
            yield {"number": number}
            for child in mixture.steps:
                if child.parent == number:
                    yield request_of(self, child)

    return Mixed


def turns_elsewhere(mixture: Mixture, asked: list[Send], failed: set[str]) -> Callable[[Fetch], Fetch]:
    """Return a middleware that switches to another host's page, before or after the send, and awaits before the send.

    Requests that it handles itself are added to ``asked`` as sends. URLs for which it fails are added to ``failed``.
    """

    def middleware(fetch: Fetch) -> Fetch:
        async def send(request: Request) -> Outcome:
            entered_at = trio.current_time()
            if mixture.awaits is not None:
                await trio.sleep(mixture.awaited(request.url))
            does = mixture.user_code(request.url)
            if does and not (does == "fails" and request.url in failed):
                await trio.sleep(mixture.user_code_takes(request.url))
                asked.append(asked_of_user_code(request, does, entered_at))
                failed.add(request.url)
                if does == "ignores":
                    raise IgnoreRequest("not wanted")
                if does == "fails":
                    raise ConnectionResetError("as the network does")
                return Outcome(request, response=HtmlResponse(request.url, body=BODY.encode(), request=request))
            kind, _, number = request.url.partition("//")[2].partition("/")[2].partition("/")
            if kind == "rewrite":
                request = request.replace(url=mixture.steps[int(number)].target)
            outcome = await fetch(request)
            if (
                kind == "replace"
                and outcome.then is None
                and outcome.response is not None
                and outcome.response.status < 400
            ):
                step = mixture.steps[int(number)]
                outcome.then = Replace(request.replace(url=step.target), reason="elsewhere")
            return outcome

        return send

    return middleware


def asked_of_user_code(request: Request, does: str, entered_at: float) -> Send:
    """Return a request that user code handles as a send of this run."""
    host = request.url.split("/")[2]
    return Send(
        time=entered_at,
        finished=trio.current_time(),
        url=request.url,
        host=host,
        slot=0,
        scopes={},
        status=200 if does == "responds" else None,
        method="GET",
        slots={},
        error=USER_CODE,
    )


def run_mixture(mixture: Mixture, folder: Path) -> Trace:
    """Run a mixture to its end, including its kills.

    Raises:
        trio.TooSlowError: If it does not end.
    """
    trace = Trace()
    web, start = mixture.web(), 0.0
    kills: Sequence[int | None] = [*mixture.kills, None]
    live = folder / "live"
    for run, kill in enumerate(kills):
        live.mkdir(parents=True, exist_ok=True)
        with seeded_scheduling(mixture.seed):
            ended = trio.run(
                _one_run, mixture, web, live, folder / f"kill{run}", kill, start, trace, clock=VirtualClock()
            )
        if ended is None:
            break
        shutil.rmtree(live)
        shutil.copytree(folder / f"kill{run}", live)
        trace.kills.append(start + ended)
        start += ended + mixture.down
    trace.items = [json.loads(line) for line in (live / "items.jsonl").read_text(encoding="utf-8").splitlines()]
    return trace


async def _one_run(
    mixture: Mixture, web: Any, live: Path, copy: Path, kill: int | None, start: float, trace: Trace
) -> float | None:
    """Make one run. Returns the seconds after which it was killed, or None."""
    begun_at = trio.current_time()
    trace.began.append(start)
    asked: list[Send] = []

    def since(at: float) -> float:
        return round(at - begun_at, 9)

    settings: dict[str, Any] = {
        **mixture.settings,
        "THROTTLING_SCOPES": mixture.scope_settings,
        **(
            {"DOWNLOADER_MIDDLEWARES": {turns_elsewhere(mixture, asked, trace.failed): 560}}
            if mixture.has_middleware
            else {}
        ),
        "FEEDS": {str(live / "items.jsonl"): {}},
        **({"JOB_DIR": str(live / "job")} if mixture.kills else {}),
    }
    values = load(Layer("test", settings))
    transport = web.transport(seed=f"{mixture.seed}:{start}", begun_at=begun_at)
    tracker = ScopeTracker(transport.send_log, begun_at)
    killer = Killer(kill or 0, live, copy)

    async def change(crawl: Any) -> None:
        for each in mixture.changes:
            if each.at < start:  # the program makes its changes again when it restarts
                crawl.throttling.set(each.scope, **each.limits)
                continue
            await trio.sleep_until(begun_at + each.at - start)
            crawl.throttling.set(each.scope, **each.limits)

    async def look(crawl: Any) -> None:
        for at in mixture.looks:
            if at < start:
                continue
            await trio.sleep_until(begun_at + at - start)
            told = [("", group.count, group.reason) for group in crawl.waiting(100)]
            told += [(scope, 1, crawl.why(scope)) for scope in [*mixture.sites, *mixture.named]]
            in_flight = {scope.id: scope.traffic.in_flight for scope in crawl._throttle.table}
            for scope, count, reason in told:
                if reason is not None and (reason.limit or not scope):
                    until = reason.until - begun_at + start
                    trace.looks.append(Look(at, scope, count, reason, until, in_flight.get(reason.scope, 0)))

    trio.lowlevel.add_instrument(killer)
    result = None
    try:
        with trio.fail_after(LONGEST), killer.scope:
            result = await crawl_with(
                spider_of(mixture),
                values,
                transport=transport,
                blocking=InlineBlocking(),
                resolve=web.resolve,
                seed=mixture.seed,
                now_utc=START_UTC + timedelta(seconds=start),
                watchers=[tracker.watch, change, look],
                recorder=tracker.record,
            )
    finally:
        trio.lowlevel.remove_instrument(killer)
    end = trio.current_time() if killer.killed_at is None else killer.killed_at
    own = [msgspec.structs.replace(s, time=since(s.time), finished=since(s.finished)) for s in asked]
    for send in sorted([*transport.send_log.sends(begun_at, end), *own], key=lambda send: (send.time, send.finished)):
        if send.time <= end - begun_at:
            finished = min(send.finished, end - begun_at)
            trace.sends.append(attrs_of(send, start, finished))
    if killer.killed_at is None:
        trace.reason = "" if result is None else result.reason
        return None
    return killer.killed_at - begun_at


def attrs_of(send: Send, start: float, finished: float) -> Send:
    """Return the send with times relative to the first run."""
    return Send(
        time=send.time + start,
        finished=finished + start,
        url=send.url,
        host=send.host,
        slot=send.slot,
        scopes=send.scopes,
        status=send.status,
        method=send.method,
        slots=send.slots,
        error=send.error,
    )
