"""A scraping API's retry policy: rate-limit answers are repeated without end, other failures a few times.

Use it where an API's documentation says how to repeat requests. A scope manager decides for its one scope: which
answers say "slow down", how long to wait after them, and which of them use up a request's retries. Both kinds wait
longer each time here: 1, 2, 4 ... 60 s after a rate-limit answer, three times as long after another failure.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import trawl
from trawl.throttling import ThrottlingScopeManager

API = "api.toscrape.com"
RATE_LIMITED = {429, 503}
FAILED = {500, 520, 521}


class ApiRetryPolicy(ThrottlingScopeManager):
    """What the documentation of the API says of its answers."""

    def is_trigger(self, response: trawl.Response | None, exception: Exception | None) -> bool | None:
        """Both kinds of answer slow the scope down; of exceptions, those that are configured."""
        return None if response is None else response.status in RATE_LIMITED | FAILED

    def get_delay(self, response: trawl.Response | None, exception: Exception | None, delay: float) -> float | None:
        """``delay`` is what backing off would wait; it doubles with every step."""
        return delay if self.is_rate_limit(response) else 3.0 * delay

    def is_retry(
        self, request: trawl.Request, response: trawl.Response | None, exception: Exception | None
    ) -> bool | None:
        """Only failures count towards ``RETRY_TIMES``."""
        return not self.is_rate_limit(response)

    def is_rate_limit(self, response: trawl.Response | None) -> bool:
        """Whether an answer says no more than "not now"."""
        return response is not None and response.status in RATE_LIMITED


class Patient(trawl.Spider):
    """Asks the API for pages, and notes which it could not have."""

    name = "patient"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "RETRY_TIMES": 3,
        "RETRY_HTTP_CODES": sorted(RATE_LIMITED | FAILED),
        "RETRY_DELAY": 0.0,  # the scope manager says how long to wait
        "BACKOFF_GIVE_UP_AFTER": 7 * 86_400.0,  # "without end": a week of nothing but refusals
        "THROTTLING_SCOPES": {
            API: {
                "concurrency": 4,
                "delay": 0.0,
                "delay_per_slot": 0.0,
                "manager": ApiRetryPolicy,
                "backoff": {"min_delay": 1.0, "delay_factor": 2.0, "max_delay": 60.0},
            }
        },
    }
    start_urls = [f"https://{API}/?page={page}" for page in range(10)]

    async def start(self) -> AsyncGenerator[trawl.Request, None]:
        """The pages; what can't be had goes to :meth:`failed`."""
        for url in self.start_urls:
            yield trawl.Request(url, errback=self.failed)

    def parse(self, response: trawl.Response) -> dict[str, str]:
        """What the API answers."""
        return {"url": response.url, "text": response.text}

    def failed(self, error: trawl.HttpError) -> dict[str, str]:
        """What it refuses for good."""
        return {"url": str(error.request and error.request.url), "failed": str(error)}
