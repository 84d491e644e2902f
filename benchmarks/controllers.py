"""Small pure models of other crawlers that are limited by a server. They use no clock and no network.

Each model is written from the published source that its docstring names, with the defaults of that source. The models
only decide when a request is sent, and whether and when a refused request is sent again.
"""

from __future__ import annotations

import math
import random
from collections import deque
from typing import Protocol

import attrs

__all__ = ["MODELS", "Aimd", "Answer", "Aws", "BbrLike", "Controller", "Crawlee", "CrawleeThrottled", "Scrapy"]

LOST = math.inf
"""The time of the next attempt for a lost page. It is infinite, because there is no next attempt."""


@attrs.frozen
class Answer:
    """A response.

    Attributes:
        now: Time of the response.
        sent_at: Time of the request.
        status: 200, 429 or 503.
        tries: Number of attempts for the page, including this one.
        retry_after: Seconds in ``Retry-After``; 0.0 without it.
    """

    now: float
    sent_at: float
    status: int
    tries: int
    retry_after: float = 0.0

    @property
    def is_good(self) -> bool:
        """True if the response contains the page."""
        return self.status == 200


class Controller(Protocol):
    """A model of a crawler. Times are seconds since the start of the crawl."""

    def ready_at(self, now: float, in_flight: int) -> float:
        """Return the time at which the next request may be sent; ``inf`` if a response must arrive first."""
        ...

    def sent(self, now: float) -> None:
        """Record a send."""
        ...

    def answered(self, answer: Answer) -> float:
        """Record a response. Returns the time at which a refused page may be sent again; ``inf`` if it is lost."""
        ...


class Aws:
    """The adaptive mode of AWS's SDKs: a token bucket whose rate grows along CUBIC from the refused rate.

    Source: botocore, ``retries/{adaptive,throttling,bucket,standard,quota}.py``. The pool has ten connections,
    so the model has ten callers. It makes three attempts per page until the retry quota of 500 is used up. It ignores
    ``Retry-After``, because the SDKs read only ``x-amz-retry-after``.
    """

    SCALE, BETA, SMOOTHING, BUCKET, LEAST_RATE = 0.4, 0.7, 0.8, 0.5, 0.5
    CALLERS, TRIES, QUOTA, COST = 10, 3, 500, 5

    def __init__(self, limit: float, rng: random.Random) -> None:
        self._rng = rng
        self._is_enabled = False
        self._rate, self._capacity, self._tokens, self._filled_at = 1.0, 1.0, 0.0, 0.0
        self._measured, self._count, self._bucket = 0.0, 0, 0.0
        self._highest, self._failed_at, self._zero = 0.0, 0.0, 0.0
        self._quota = self.QUOTA

    def ready_at(self, now: float, in_flight: int) -> float:
        """Return the time of the next token, once the model was throttled."""
        if in_flight >= self.CALLERS:
            return math.inf
        self._fill(now)
        missing = 1.0 - self._tokens
        return now + missing / self._rate if self._is_enabled and missing > 1e-9 else now

    def sent(self, now: float) -> None:
        """Take a token."""
        if self._is_enabled:
            self._fill(now)
            self._tokens -= 1.0

    def answered(self, answer: Answer) -> float:
        """Change the rate. A refused request is sent again after a random part of 1, 2, ... seconds."""
        self._measure(answer.now)
        if answer.status == 429:
            self._highest = min(self._measured, self._rate) if self._is_enabled else self._measured
            self._zero = (self._highest * (1.0 - self.BETA) / self.SCALE) ** (1.0 / 3.0)
            self._failed_at, self._is_enabled = answer.now, True
            wanted = self._highest * self.BETA
        else:
            wanted = self.SCALE * (answer.now - self._failed_at - self._zero) ** 3 + self._highest
        self._move(min(wanted, 2.0 * self._measured), answer.now)
        if answer.is_good:
            self._quota = min(self.QUOTA, self._quota + (self.COST if answer.tries > 1 else 1))
        if answer.is_good or answer.tries >= self.TRIES or self._quota < self.COST:
            return LOST
        self._quota -= self.COST
        return answer.now + self._rng.random() * min(2.0 ** (answer.tries - 1), 20.0)

    def _measure(self, now: float) -> None:
        self._count += 1
        bucket = math.floor(now / self.BUCKET) * self.BUCKET
        if bucket > self._bucket:
            rate = self._count / (bucket - self._bucket)
            self._measured = rate * self.SMOOTHING + self._measured * (1.0 - self.SMOOTHING)
            self._count, self._bucket = 0, bucket

    def _move(self, rate: float, now: float) -> None:
        self._fill(now)
        self._rate, self._capacity = max(rate, self.LEAST_RATE), max(rate, 1.0)
        self._tokens = min(self._tokens, self._capacity)

    def _fill(self, now: float) -> None:
        self._tokens = min(self._capacity, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now


class _Paced:
    """Sends at even intervals, and repeats refused requests until they are served."""

    def __init__(self, rate: float) -> None:
        self.rate: float = rate
        self._sent_at = -math.inf

    def ready_at(self, now: float, in_flight: int) -> float:
        """Return the time that is one interval after the last send."""
        return max(now, self._sent_at + 1.0 / self.rate)

    def sent(self, now: float) -> None:
        """Record the start of the interval."""
        self._sent_at = now


class Aimd(_Paced):
    """Additive increase, multiplicative decrease. The model knows the limit, and its increase depends on it.

    Source: Chiu and Jain, "Analysis of the Increase and Decrease Algorithms for Congestion Avoidance in Computer
    Networks" (1989). The rate starts at 1 per second and grows by a fortieth of the limit per second. A refusal
    multiplies the rate by 0.85. Refusals of requests that were sent before this change have no effect.
    """

    INCREASE, DECREASE = 1.0 / 40.0, 0.85

    def __init__(self, limit: float, rng: random.Random) -> None:
        super().__init__(1.0)
        self._step = limit * self.INCREASE
        self._at = self._fell_at = 0.0

    def answered(self, answer: Answer) -> float:
        """Increase the rate by the elapsed time, or decrease it."""
        self.rate += self._step * (answer.now - self._at)
        self._at = answer.now
        if not answer.is_good and answer.sent_at >= self._fell_at:
            self.rate, self._fell_at = max(self.rate * self.DECREASE, 0.1), answer.now
        return max(answer.now, answer.now + answer.retry_after)


class BbrLike(_Paced):
    """BBR's model of a network path, for requests. The rate is the highest delivery rate of ten rounds, times a gain.

    Source: draft-ietf-ccwg-bbr. A round is ten responses. Startup uses a gain of 2.77 until each of three rounds
    raises the rate by less than a quarter. One round of draining follows. Then the gains cycle through 1.25, 0.75
    and six rounds of 1. The minimum rate is 1 per second. Refusals are ignored, like losses in BBR's first version, and
    so is ``Retry-After``.
    """

    ROUND, STARTUP, DRAIN = 10, 2.77, 0.5
    CYCLE = (1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)

    def __init__(self, limit: float, rng: random.Random) -> None:
        super().__init__(1.0)
        self._rates = deque([1.0], maxlen=10)
        self._answers = self._good = self._place = self._flat = 0
        self._since = self._full = 0.0
        self._is_starting = True

    def answered(self, answer: Answer) -> float:
        """Measure the rate of delivery of a round."""
        self._answers += 1
        self._good += answer.is_good
        if self._answers >= self.ROUND and answer.now > self._since:
            self._rates.append(self._good / (answer.now - self._since))
            self._since, self._answers, self._good = answer.now, 0, 0
            self.rate = max(max(self._rates) * self._gain(), 1.0)
        return answer.now

    def _gain(self) -> float:
        if not self._is_starting:
            self._place = (self._place + 1) % len(self.CYCLE)
            return self.CYCLE[self._place]
        if max(self._rates) >= self._full * 1.25:
            self._full, self._flat = max(self._rates), 0
        else:
            self._flat += 1
        self._is_starting = self._flat < 3
        return self.STARTUP if self._is_starting else self.DRAIN


class Scrapy:
    """Scrapy's AutoThrottle and retry middleware with default settings.

    Source: Scrapy 2.19, ``extensions/throttle.py``, ``downloadermiddlewares/retry.py``. The delay starts at 5 s and
    follows the latency, with a target of one request in flight. Each interval is random, from half to one and a half
    of the delay. At most 8 requests are in flight. Each page has three attempts, whatever the reason for a refusal.
    """

    START, LONGEST, TARGET, AT_ONCE, TRIES = 5.0, 60.0, 1.0, 8, 3

    def __init__(self, limit: float, rng: random.Random) -> None:
        self._rng = rng
        self._delay = self.START
        self._next_at = 0.0

    def ready_at(self, now: float, in_flight: int) -> float:
        """Return the time after the random interval, if there is a free slot."""
        return max(now, self._next_at) if in_flight < self.AT_ONCE else math.inf

    def sent(self, now: float) -> None:
        """Draw the interval."""
        self._next_at = now + self._delay * self._rng.uniform(0.5, 1.5)

    def answered(self, answer: Answer) -> float:
        """Adjust the delay to the latency. Only a page may lower the delay."""
        target = (answer.now - answer.sent_at) / self.TARGET
        wanted = min(max(target, (self._delay + target) / 2.0), self.LONGEST)
        if answer.is_good or wanted > self._delay:
            self._delay = wanted
        return LOST if answer.tries >= self.TRIES else answer.now


class Crawlee:
    """Crawlee's autoscaled pool and rotated sessions with default settings.

    Source: Crawlee for Python 1.11, ``_autoscaling/autoscaled_pool.py``, ``crawlers/_basic/_basic_crawler.py``. The
    pool starts with 10 tasks, and adds a twentieth every 10 s if nine tenths of the tasks are busy and the machine is
    not. After a 429, the page is requested in another session, with ten sessions at most. After a 5xx, the page has
    four attempts in all. There are no delays.
    """

    START, MOST, STEP, BUSY, EACH = 10, 100, 0.05, 0.9, 10.0
    SESSIONS, TRIES = 10, 4

    def __init__(self, limit: float, rng: random.Random) -> None:
        self._at_once = self.START
        self._scaled_at = 0.0

    def ready_at(self, now: float, in_flight: int) -> float:
        """Return ``now`` if there is a free task."""
        while now >= self._scaled_at + self.EACH:
            self._scaled_at += self.EACH
            if in_flight >= math.floor(self.BUSY * self._at_once):
                self._at_once = min(self.MOST, self._at_once + math.ceil(self.STEP * self._at_once))
        return now if in_flight < self._at_once else math.inf

    def sent(self, now: float) -> None:
        """Do nothing, because nothing depends on the time of a send."""

    def answered(self, answer: Answer) -> float:
        """Put a refused page back into the queue, with another session."""
        tries = self.SESSIONS if answer.status == 429 else self.TRIES
        return LOST if answer.tries >= tries else answer.now


class CrawleeThrottled(Crawlee):
    """:class:`Crawlee` with ``ThrottlingRequestManager``, which must be selected explicitly.

    Source: Crawlee for Python 1.11, ``request_loaders/_throttling_request_manager.py``. After a 429, the domain pauses
    for 2 s, or for the time in ``Retry-After``. Each further 429 doubles the pause, up to 60 s. After a time without a
    429 that is as long as the pause, the pause starts at 2 s again. No page is lost.
    """

    BASE, LONGEST = 2.0, 60.0

    def __init__(self, limit: float, rng: random.Random) -> None:
        super().__init__(limit, rng)
        self._until = self._decays_at = 0.0
        self._refusals = 0

    def ready_at(self, now: float, in_flight: int) -> float:
        """Return the time after the pause."""
        return max(super().ready_at(now, in_flight), self._until)

    def answered(self, answer: Answer) -> float:
        """Pause after the first refusal of a burst."""
        if answer.status != 429:
            return super().answered(answer)
        if answer.now >= self._until:
            self._refusals = 1 if answer.now >= self._decays_at else self._refusals + 1
            rest = min(answer.retry_after or self.BASE * 2.0 ** min(self._refusals - 1, 20), self.LONGEST)
            self._until, self._decays_at = answer.now + rest, answer.now + 2.0 * rest
        return self._until


MODELS: dict[str, type[Aws | Aimd | BbrLike | Scrapy | Crawlee]] = {
    "AWS adaptive": Aws,
    "AIMD, told the limit": Aimd,
    "BBR-like": BbrLike,
    "Scrapy": Scrapy,
    "Crawlee": Crawlee,
    "Crawlee, throttled": CrawleeThrottled,
}
"""The models by their names in the tables. Each is created with the server's limit and a random generator."""
