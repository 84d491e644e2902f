"""Finds violations in the sends of a mixture. It knows only the configuration, the sends, the items and the reports.

Each check is a necessary condition that does not depend on the crawler's inner state. Values that can't be known from
outside, such as the recovery of a backoff or the result of AutoThrottle, are bounded on the safe side.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.mixtures.running import USER_CODE, Look, Trace
from tests.mixtures.world import Mixture, Step
from trawl.testing import Send

__all__ = ["overdrawn", "violations"]

EPSILON = 1e-6
MAX_WAIT = 5.0
"""Maximum seconds that a request waits for its send time after its middleware has run."""
WINDOW = 60.0
"""``THROTTLING_WINDOW``'s default."""


def violations(mixture: Mixture, trace: Trace) -> list[str]:
    """Return a sentence for each violated rule."""
    checker = _Checker(mixture, trace)
    return [
        *checker.ended(),
        *checker.charged(),
        *checker.places(),
        *checker.spaced(),
        *checker.within_quota(),
        *checker.within_bandwidth(),
        *checker.held(),
        *checker.allowed_by_robots(),
        *checker.delivered(),
        *checker.never_idle(),
        *checker.told_truly(),
    ]


class _Checker:
    def __init__(self, mixture: Mixture, trace: Trace) -> None:
        self.mixture = mixture
        self.trace = trace
        self.sends = trace.sends
        self.connect = max(site.connect for site in mixture.sites.values())
        # Maximum time from the start of a request's middleware to its send, including waits for places and its send
        # time.
        awaits = mixture.awaits or (0.0, 0.0)
        # A request may wait at its connection: for the random offset of a rate, or for bytes that arrived meanwhile.
        may_wait = awaits[1] or any({"bandwidth", "rate"} & set(config) for config in mixture.scope_settings.values())
        self.way = self.connect + awaits[1] + (MAX_WAIT if may_wait else 0.0)
        # A request that its middleware redirects to another host holds places until then, and is sent much later or
        # never.
        self.ends_unsent = mixture.awaits is not None and any(step.kind == "rewrite" for step in mixture.steps)
        self.of_scope: dict[str, list[tuple[Send, float]]] = defaultdict(list)
        for send in self.sends:
            for scope, amount in self.scopes_of(send.url).items():
                self.of_scope[scope].append((send, 1.0 if amount is None else amount))

    # values known before the run

    def step_of(self, url: str) -> Step | None:
        number = url.rpartition("/")[2]
        return self.mixture.steps[int(number)] if number.isdigit() else None

    def scopes_of(self, url: str) -> Mapping[str, float | None]:
        """Return the scopes that a send of this URL must be charged to."""
        host = url.split("/")[2]
        step = self.step_of(url)
        if step is None or self.is_direct(url):
            return {host: None}
        if step.scopes is not None:
            return step.scopes
        return {host: None, **({f"session:{step.session}": None} if step.session else {})}

    def is_direct(self, url: str) -> bool:
        """Return whether a callback fetches this URL itself."""
        step = self.step_of(url)
        return step is not None and step.kind == "direct" and url.split("/")[3] == "end"

    def is_early(self, scope: str, send: Send) -> bool:
        """Return whether a send may be early by the time to connect: by user code of which no response was known.

        Such a request starts as early as a request that must connect.
        """
        began = max((at for at in self.trace.began if at <= send.time + EPSILON), default=-math.inf)
        own = [each.finished for each, _ in self.of_scope[scope] if each.error == USER_CODE and each.time >= began]
        return send.error == USER_CODE and send.time <= min(own, default=-math.inf) + EPSILON

    def is_host(self, scope: str) -> bool:
        return scope in self.mixture.sites

    def configs(self, scope: str, now: float) -> list[Mapping[str, Any]]:
        """Return the scope's keys with defaults at ``now``. If a change may happen at that time, return several."""
        settings, found = self.mixture.settings, list[Mapping[str, Any]]()
        instants = [now]
        if any(abs(now - began) < self.connect + EPSILON for began in self.trace.began[1:]):
            instants.append(0.0)  # a new run applies the changes at its start
        for config in [each for instant in instants for each in self.mixture.config_at(scope, instant)]:
            whole: dict[str, Any] = {"concurrency": math.inf, "delay": 0.0, "delay_per_slot": 0.0, "jitter": False}
            if self.is_host(scope):
                whole["concurrency"] = settings["CONCURRENT_REQUESTS_PER_DOMAIN"]
                whole["delay"] = settings["DOWNLOAD_DELAY"]
                whole["delay_per_slot"] = settings["DOWNLOAD_DELAY_PER_SLOT"]
            whole["jitter"] = settings["RANDOMIZE_DOWNLOAD_DELAY"]
            if "rate" in config:
                whole.update(delay=1.0 / config["rate"], delay_per_slot=0.0, concurrency=math.inf)
            whole.update(config)
            found.append(whole)
        return found

    def around(self, scope: str, now: float) -> list[Mapping[str, Any]]:
        """Return the same, including keys that applied while a connection ready at ``now`` was being opened."""
        early = [each.at for each in self.mixture.changes if now - self.connect - EPSILON <= each.at <= now]
        return [
            config for instant in [now, *(at - 2 * EPSILON for at in early)] for config in self.configs(scope, instant)
        ]

    def moves(self, scope: str) -> bool:
        """Return whether rampup moves the scope's limits in both directions."""
        return "rampup" in self.mixture.scope_settings.get(scope, {})

    def crawl_delay(self, scope: str, at: float) -> float:
        """Return the delay in seconds that robots.txt sets for a host's scope at ``at``; 0.0 if there is none."""
        site = self.mixture.sites.get(scope)
        if site is None or site.crawl_delay is None:
            return 0.0
        if any({"delay", "rate"} & set(config) for config in self.mixture.config_at(scope, at)):
            return 0.0
        return site.crawl_delay if self.robots_read(scope) <= at - EPSILON else 0.0

    def robots_read(self, host: str) -> float:
        """Return the time at which the host's robots.txt was first available."""
        url = f"http://{host}/robots.txt"
        return min((send.finished for send in self.sends if send.url == url and send.status == 200), default=math.inf)

    def triggers(self, scope: str) -> list[Send]:
        return [send for send, _ in self.of_scope[scope] if send.status == 429]

    # the rules

    def ended(self) -> Iterator[str]:
        if self.trace.reason != "finished":
            yield f"ended as {self.trace.reason!r}"

    def charged(self) -> Iterator[str]:
        for send in self.sends:
            if send.error == USER_CODE:
                continue
            wanted = {scope: 1.0 if amount is None else amount for scope, amount in self.scopes_of(send.url).items()}
            charged = dict(send.scopes)
            if send.url.endswith("/robots.txt"):  # it uses the scopes of a request that waits for it
                charged = {scope: amount for scope, amount in charged.items() if not scope.startswith("session:")}
            if charged != wanted:
                yield f"{send.time:.3f} {send.url} charged to {dict(send.scopes)}, not {wanted}"

    def places(self) -> Iterator[str]:
        most = self.mixture.settings["CONCURRENT_REQUESTS"] or math.inf
        # The middleware of as many pages may run beside the requests on the wire. Direct fetches are not counted in
        # it, because a page's middleware may wait for the callback or the middleware that waits for the fetch.
        for name, is_own in (("all", False), ("all pages in user code", True)):
            of_kind = [send for send in self.sends if (send.error == USER_CODE) is is_own]
            if is_own:
                of_kind = [send for send in of_kind if not self.is_direct(send.url)]
            yield from self._at_once(name, of_kind, lambda now: most)
        for scope, sends in self.of_scope.items():
            if not self.moves(scope):
                yield from self._at_once(
                    scope,
                    [send for send, _ in sends],
                    lambda now, scope=scope: max(config["concurrency"] for config in self.around(scope, now)),
                )

    def _at_once(self, what: str, sends: Sequence[Send], cap: Any) -> Iterator[str]:
        for number, send in enumerate(sends):
            count = 1 + sum(other.finished > send.time + EPSILON for other in sends[:number])
            if count > cap(send.time):
                yield f"{what}: {count} at once at {send.time:.3f}, {cap(send.time)} allowed"

    def spaced(self) -> Iterator[str]:
        for scope, sends in self.of_scope.items():
            for (before, _), (send, _) in pairwise(sends):
                gap = send.time - before.time
                least = 0.0 if self.moves(scope) else min(_least(config) for config in self.around(scope, send.time))
                wish = min(self.crawl_delay(scope, before.time), self.crawl_delay(scope, send.time))
                if any("rate" in each for each in self.around(scope, send.time)):
                    least = 0.0  # a late send may be made up for: see below
                is_early = self.is_early(scope, send) or (gap <= EPSILON and self.is_early(scope, before))
                early = self.connect if is_early else 0.0
                if gap < max(least, wish) - early - EPSILON:
                    yield f"{scope}: {gap:.6f} s before {send.time:.3f}, at least {least:g}, robots.txt {wish:g}"
            for (before, _), (middle, _), (send, _) in zip(sends, sends[1:], sends[2:], strict=False):
                # At most one interval may be shortened, so the span of three sends contains one complete interval.
                least = 0.0 if self.moves(scope) else min(_least(config) for config in self.around(scope, send.time))
                early = self.connect if any(self.is_early(scope, each) for each in (before, middle, send)) else 0.0
                if send.time - before.time < least - early - EPSILON:
                    yield f"{scope}: {send.time - before.time:.6f} s for three sends until {send.time:.3f}"
            if not self.moves(scope) and not any(change.scope == scope for change in self.mixture.changes):
                yield from self._rested(scope, sends)
            yield from self._within_rate(scope, [send for send, _ in sends])

    def _within_rate(self, scope: str, sends: Sequence[Send]) -> Iterator[str]:
        """Check that t seconds contain at most t * rate + 2 sends. A send may be early, see :meth:`is_early`."""
        configs = [list(self.mixture.config_at(scope, at))[-1] for at in (0.0, *self._changed(scope))]
        rates = [float(config["rate"]) for config in configs if config.get("rate") is not None]
        if self.moves(scope) or len(rates) < len(configs):
            return
        rate, lowest = max(rates), math.inf
        for number, send in enumerate(sends):
            lowest = min(lowest, number - send.time * rate)
            if self.is_early(scope, send):
                lowest += self.connect * rate  # for the spans that contain it
            if number - send.time * rate - lowest > 1.0 + EPSILON:
                yield f"{scope}: more than t * {rate:g} + 2 sends in a span that ends at {send.time:.3f}"

    def _changed(self, scope: str) -> list[float]:
        return [change.at + 2 * EPSILON for change in self.mixture.changes if change.scope == scope]

    def _rested(self, scope: str, sends: Sequence[tuple[Send, float]]) -> Iterator[str]:
        latest: dict[int, float] = {}
        for send, _ in sends:
            if send.error == USER_CODE:  # its slot is unknown
                continue
            slot = send.slots.get(scope, 0)
            config = self.configs(scope, send.time)[0]
            least = config["delay_per_slot"] * _low(config["jitter"])
            if slot in latest and send.time - latest[slot] < least - EPSILON:
                rested = send.time - latest[slot]
                yield f"{scope}: slot {slot} rested {rested:.6f} s at {send.time:.3f}, {least:g} asked"
            latest[slot] = send.time

    def within_quota(self) -> Iterator[str]:
        for scope, sends in self.of_scope.items():
            changed = [
                change.at for change in self.mixture.changes if change.scope == scope and "quota" in change.limits
            ]
            for since, until in zip([-1.0, *changed], [*changed, math.inf], strict=True):
                config = list(self.mixture.config_at(scope, since + 2 * EPSILON))[-1]
                if config.get("quota") is None:
                    continue
                inside = [(s.time, amount) for s, amount in sends if since + EPSILON < s.time < until - EPSILON]
                window = float(config.get("window", WINDOW))
                # a running window continues after a change of the quota, and any earlier send may have started it
                ends = [-math.inf]
                if since > 0:
                    ends += [since + window, *(s.time + window for s, _ in sends if since - window < s.time <= since)]
                # a send at the time of a kill may start a window in the next run
                again = [self.trace.began[1:][:number] for number in range(len(self.trace.began))]
                again += [[began] for began in self.trace.began[2:]]
                # by rounding, a send when a window ends may belong to this window or start the next one
                slacks = (EPSILON, -EPSILON)
                ways = [(end, begun, slack) for end in ends for begun in again for slack in slacks]
                yield from min([list(overdrawn(scope, inside, config, *way)) for way in ways], key=len)

    def within_bandwidth(self) -> Iterator[str]:
        """Check that no send comes before the bytes of the earlier responses are paid for."""
        for scope, sends in self.of_scope.items():
            for send, _ in sends:
                paid_at = self._paid_at(scope, send.time)
                early = self.connect if self.is_early(scope, send) else 0.0
                if send.time < paid_at - early - EPSILON:
                    yield f"{scope}: sent at {send.time:.3f}, the bytes until then are paid for at {paid_at:.3f}"

    def _paid_at(self, scope: str, now: float) -> float:
        """Return the earliest time at which the bytes that a scope received before ``now`` may be paid for."""
        paid_at = -math.inf
        for send, _ in sorted(self.of_scope[scope], key=lambda each: each[0].finished):
            numbers = [config.get("bandwidth", math.inf) for config in self.around(scope, send.finished)]
            # a kill may forget the last two seconds
            is_lost = any(kill - 2.5 < send.finished <= kill + EPSILON for kill in self.trace.kills)
            if send.status == 200 and send.finished < now - EPSILON and max(numbers) < math.inf and not is_lost:
                paid_at = max(paid_at, send.time) + self.mixture.size(send.url) / max(numbers)
        return paid_at

    def held(self) -> Iterator[str]:
        """Check that no send follows a trigger within the first step's delay or the requested time."""
        for scope, sends in self.of_scope.items():
            for answer in self.triggers(scope):
                wish = self._retry_after(answer)
                others = [
                    each for each in self.triggers(scope) if each is not answer and each.finished <= answer.finished
                ]
                is_first = not any(each.finished > answer.time - EPSILON for each in others) and not self.moves(scope)
                if any(answer.finished <= kill + EPSILON and answer.finished > kill - 2.5 for kill in self.trace.kills):
                    continue  # responses in the two seconds before a kill may be forgotten
                step = 0.0
                if is_first and not any(abs(change.at - answer.finished) < 2 for change in self.mixture.changes):
                    base = min(config["delay"] for config in self.around(scope, answer.finished))
                    step = min(30.0, max(1.0, 2.0 * base))
                for send, _ in sends:
                    since = send.time - answer.finished
                    if EPSILON < since < max(step, wish) - EPSILON:
                        asked = f"{step:g}, asked {wish:g}"
                        yield f"{scope}: sent at {send.time:.3f}, {since:.3f} s after {answer.url} said 429 ({asked})"

    def _retry_after(self, answer: Send) -> float:
        """Return the seconds that a response requested.

        If page or host may have refused it, return the smaller value.
        """
        limit, step = self.mixture.sites[answer.host].limit, self.step_of(answer.url)
        wishes = [] if limit is None else [float(limit[2] or 0.0)]
        if "/busy/" in answer.url and step is not None:
            wishes.append(float(step.retry_after or 0.0))
        return min(wishes, default=0.0)

    def allowed_by_robots(self) -> Iterator[str]:
        for send in self.sends:
            if "/no/" in send.url:
                yield f"{send.url} is forbidden by robots.txt, sent at {send.time:.3f}"
            if not send.url.endswith("/robots.txt") and self.robots_read(send.host) > send.time + EPSILON:
                yield f"{send.url} sent at {send.time:.3f}, before its robots.txt was read"

    def delivered(self) -> Iterator[str]:
        found = Counter(item["number"] for item in self.trace.items)
        arrives: dict[int, bool] = {}
        for step in self.mixture.steps:
            is_asked = step.parent is None or arrives[step.parent]
            leads_on = step.kind in ("redirect", "replace", "rewrite")
            forbidden = step.kind == "no" or (leads_on and step.end == "no")
            forbidden = forbidden or self.mixture.user_code(step.url) == "ignores"
            arrives[step.number] = is_asked and not forbidden
            wanted = int(arrives[step.number])
            if found[step.number] != wanted:
                yield f"step {step.number} ({step.kind}, {step.end}) delivered {found[step.number]} times, not {wanted}"

    def never_idle(self) -> Iterator[str]:
        """Check that a plain page of a quiet host is sent as soon as the known limits allow it."""
        quiet = {host for host in self.mixture.sites if self._is_quiet(host)}
        if self.trace.kills:
            return
        asked: set[int] = set()
        for index, send in enumerate(self.sends):
            step = self.step_of(send.url)
            if step is None or send.host not in quiet or step.number in asked:
                continue
            asked.add(step.number)
            if send.url != step.url or step.delay or step.kind == "rewrite" or step.session or step.scopes is not None:
                continue
            # The time that middleware awaits is added after the limits, because it is not known in advance.
            latest = self._may_go(send, step, index) + self.mixture.awaited(step.url)
            if send.time > latest + self.connect + EPSILON:
                yield f"{send.url} sent at {send.time:.3f}, might have gone at {latest:.3f}"

    def _is_quiet(self, host: str) -> bool:
        site = self.mixture.sites[host]
        several = any(step.scopes is not None and host in step.scopes for step in self.mixture.steps)
        sessions = any(step.session for step in self.mixture.steps)
        changed = any(change.scope == host for change in self.mixture.changes)
        # A request that its middleware redirects to another host has used its turn at this host.
        leaves = any(step.kind == "rewrite" and step.host == host != step.to for step in self.mixture.steps)
        return not (
            self.triggers(host)
            or leaves
            or several
            or sessions
            or changed
            or self.moves(host)
            or self.mixture.settings["AUTOTHROTTLE_ENABLED"]
            or site.limit
            or any(send.error == USER_CODE for send, _ in self.of_scope[host])
        )

    def _may_go(self, send: Send, step: Step, index: int) -> float:
        """Return the latest time until which a known limit held a plain page of a quiet host."""
        config = self.configs(send.host, send.time)[0]
        site = self.mixture.sites[send.host]
        asked_at = 0.0 if step.parent is None else self._given_at(step.parent)
        latest = [asked_at, self.robots_read(send.host)]
        earlier = [s for s, _ in self.of_scope[send.host] if s.time <= send.time and s is not send]
        delay, high = config["delay"], _high(config["jitter"])
        cap, rest = config["concurrency"], config["delay_per_slot"]
        own = {"delay", "rate"} & set(site.config)
        if site.crawl_delay is not None:
            delay = delay if own else max(delay, site.crawl_delay * 1.5 / high)
            cap = cap if "concurrency" in site.config else 1
        if earlier:
            latest.append(earlier[-1].time + delay * high)
        for other in earlier[-int(cap) :] if rest and cap < math.inf else []:
            latest.append(other.time + rest * high)
        if "quota" in config:
            window = config.get("window", WINDOW)
            latest.extend(s.time + window for s in earlier)
        latest.append(self._paid_at(send.host, send.time + 2 * EPSILON))
        latest.append(_full_until(self._on_their_way(earlier), cap, send.time))
        most = self.mixture.settings["CONCURRENT_REQUESTS"] or math.inf
        latest.append(_full_until(self._on_their_way(self.sends[:index]), most, send.time))
        # requests that are connecting also hold places, and are sent a moment later
        latest.append(_full_until(self._on_their_way(self.sends), most, send.time))
        if self.mixture.awaits is not None:  # middleware runs for as many requests as there are places
            running = [(s.time - self.connect - self.mixture.awaited(s.url), s.time) for s in self.sends]
            latest.append(_full_until(running, most, send.time - self.mixture.awaited(step.url)))
        return max(latest)

    def _on_their_way(self, sends: Sequence[Send]) -> list[tuple[float, float]]:
        """Return the earliest start and the end of the time in which each send held its places."""
        return [(send.time - self.connect, send.finished) for send in sends]

    def _given_at(self, parent: int) -> float:
        """Return the time at which the callback of a step yielded its requests."""
        return max(send.finished for send in self.sends if (step := self.step_of(send.url)) and step.number == parent)

    def told_truly(self) -> Iterator[str]:
        for look in self.trace.looks:
            problem = self._untrue(look)
            if problem:
                yield f"told at {look.at:.3f} of {look.scope or f'{look.count} requests'}: {look.reason}: {problem}"

    def _untrue(self, look: Look) -> str:
        reason, now = look.reason, look.at
        if look.scope and reason.scope and reason.limit not in ("gate", "robots") and reason.scope != look.scope:
            urls = [
                url
                for step in self.mixture.steps
                for url in (step.url, step.target)
                if reason.scope in self.scopes_of(url)
            ]
            turned = any(
                step.kind == "rewrite" and (step.host, step.to) == (look.scope, reason.scope)
                for step in self.mixture.steps
            )
            if not turned and not any(
                look.scope in self.scopes_of(url) or look.scope == url.split("/")[2] for url in urls
            ):
                return "no request has both scopes"
        if reason.limit in ("gate", "robots"):
            return ""
        if reason.scope and not look.scope:
            pending = self._pending(reason.scope, now)
            if pending < look.count:
                return f"{pending} pending requests have that scope at the most"
        if reason.limit in ("places", "concurrency"):
            # A request that is connecting at a kill is never sent. If its scope backs off, it is sent much later.
            until = now + self.way + EPSILON
            cut = any(now <= kill <= until for kill in self.trace.kills)
            refused = any(now <= s.finished <= until for scope in self.of_scope for s in self.triggers(scope))
            if cut or refused or self.ends_unsent:
                return ""
            sends = self.sends if reason.limit == "places" else [s for s, _ in self.of_scope[reason.scope]]
            busy = sum(s.time - self.way <= now + EPSILON and s.finished >= now - EPSILON for s in sends)
            most = (self.mixture.settings["CONCURRENT_REQUESTS"] or math.inf) if reason.limit == "places" else 1
            return "" if busy >= most else f"{busy} on their way, of {most}"
        if reason.limit in ("hint", "backoff") and not any(
            s.finished <= now + EPSILON for s in self.triggers(reason.scope)
        ):
            return "nothing has refused a request of it"
        if (
            reason.limit in ("hint", "delay", "bandwidth")
            and look.until < math.inf
            and not self._unsettled(reason.scope, now, look.until)
        ):
            sends = [s for s, _ in self.of_scope[reason.scope]]
            later = [s.time + self.connect * self.is_early(reason.scope, s) for s in sends if s.time > now]
            ahead = look.in_flight - sum(s.time <= now < s.finished for s in sends)  # these wait at their connections
            early = [time for time in later[max(ahead, 0) :] if now + self.way + EPSILON < time < look.until - EPSILON]
            return f"sent at {early[0]:.3f}, before {look.until:.3f}" if early else ""
        return ""

    def _unsettled(self, scope: str, since: float, until: float) -> bool:
        """Return whether the limits of a scope may have changed in this period."""
        return (
            any(since <= change.at <= until for change in self.mixture.changes if change.scope == scope)
            or self.moves(scope)
            or self.mixture.settings["AUTOTHROTTLE_ENABLED"]
            or any(since <= kill <= until for kill in self.trace.kills)
            or bool(self.triggers(scope))
            # A request that waits for its middleware is expected to be sent, until user code ends it without a send.
            or any(self.mixture.user_code(s.url) for s in self.mixture.steps if scope in self.scopes_of(s.url))
        )

    def _pending(self, scope: str, now: float) -> int:
        """Return the maximum number of requests with this scope that may be pending at ``now``."""
        count = 0
        for step in self.mixture.steps:
            done = [s.finished for s in self.sends if (each := self.step_of(s.url)) and each.number == step.number]
            leads_on = step.kind in ("redirect", "replace", "rewrite")
            if done and max(done) < now - EPSILON and not (leads_on and step.end == "no"):  # it may still be disallowed
                continue
            count += any(scope in self.scopes_of(url) for url in (step.url, step.target))
            count += step.kind == "direct" and scope == step.to
        return count + (scope in self.mixture.sites)


def _low(jitter: Any) -> float:
    if isinstance(jitter, bool):
        return 0.5 if jitter else 1.0
    return 1.0 + float(jitter[0]) if isinstance(jitter, list) else 1.0 - float(jitter)


def _high(jitter: Any) -> float:
    if isinstance(jitter, bool):
        return 1.5 if jitter else 1.0
    return 1.0 + float(jitter[1] if isinstance(jitter, list) else jitter)


def _least(config: Mapping[str, Any]) -> float:
    return float(config["delay"]) * _low(config["jitter"])


def overdrawn(
    scope: str,
    sends: Sequence[tuple[float, float]],
    config: Mapping[str, Any],
    ends: float,
    begun: Sequence[float],
    slack: float = EPSILON,
) -> Iterator[str]:
    """Yield a sentence for each send beyond a quota, if the window of the first send ends at ``ends``.

    A window may also start at each of the times ``begun``, because a killed run may not have stored the start of its
    window. The amount used in a running window then counts in the new window. A fixed window ends ``slack`` seconds
    early.
    """
    quota, window = float(config["quota"]), float(config.get("window", WINDOW))
    spent: list[tuple[float, float]] = []
    for at, amount in sends:
        if not amount:
            continue
        for instant in begun:
            if not config.get("sliding") and instant <= at < instant + window and ends < instant + window:
                spent, ends = spent if instant < ends - EPSILON else [], instant + window
        if config.get("sliding"):
            spent = [each for each in spent if each[0] + window > at + EPSILON]
        elif at >= ends - slack:
            spent, ends = [], at + window  # a window starts with the first send that is charged
        total = sum(each[1] for each in spent)
        if total + amount > quota + EPSILON and (total > EPSILON or amount <= quota):
            yield f"{scope}: {total + amount:g} of a quota of {quota:g} spent at {at:.3f}"
        spent.append((at, amount))


def _full_until(busy: Sequence[tuple[float, float]], cap: float, until: float) -> float:
    """Return the last time up to ``until`` at which ``cap`` of the periods in ``busy`` may have overlapped."""
    if cap == math.inf:
        return 0.0
    ends = sorted({min(ended, until) for began, ended in busy if began <= until})
    for end in reversed(ends):
        if sum(began < end <= ended for began, ended in busy) >= cap:
            return end
    return 0.0
