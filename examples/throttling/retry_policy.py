"""A scraping API's retry policy: rate-limited requests are repeated without limit, other failures a few times.

Use this recipe if an API's documentation specifies retries. A scope manager decides for its scope which responses mean
"slow down", how long to wait after them, and which responses count as retries. Here, both kinds wait longer each time:
1, 2, 4 ... 60 s after a rate-limit response, and three times as long after another failure.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import trawl
from trawl.throttling import ThrottlingScopeManager

API = "api.toscrape.com"
RATE_LIMITED = {429, 503}
FAILED = {500, 520, 521}


class ApiRetryPolicy(ThrottlingScopeManager):
    """Follows the retry policy in the API's documentation."""

    def is_trigger(self, response: trawl.Response | None, exception: Exception | None) -> bool | None:
        """Return True for both kinds of responses. For exceptions, the configuration decides."""
        return None if response is None else response.status in RATE_LIMITED | FAILED

    def get_delay(self, response: trawl.Response | None, exception: Exception | None, delay: float) -> float | None:
        """Return the delay in seconds. ``delay`` is the delay of backoff, which doubles with each step."""
        return delay if self.is_rate_limit(response) else 3.0 * delay

    def is_retry(
        self, request: trawl.Request, response: trawl.Response | None, exception: Exception | None
    ) -> bool | None:
        """Return True if the response counts toward ``RETRY_TIMES``. Only failures count."""
        return not self.is_rate_limit(response)

    def is_rate_limit(self, response: trawl.Response | None) -> bool:
        """Return whether a response only means "not now"."""
        return response is not None and response.status in RATE_LIMITED


class Patient(trawl.Spider):
    """Requests pages from the API, and records the failed pages."""

    name = "patient"
    custom_settings = {
        "ROBOTSTXT_OBEY": False,
        "RETRY_TIMES": 3,
        "RETRY_HTTP_CODES": sorted(RATE_LIMITED | FAILED),
        "RETRY_DELAY": 0.0,  # the scope manager decides how long to wait
        "BACKOFF_GIVE_UP_AFTER": 7 * 86_400.0,  # give up only after a week of refusals
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
        """Yield requests for the pages. Failures go to :meth:`failed`."""
        for url in self.start_urls:
            yield trawl.Request(url, errback=self.failed)

    def parse(self, response: trawl.Response) -> dict[str, str]:
        """Return the text of a response of the API."""
        return {"url": response.url, "text": response.text}

    def failed(self, error: trawl.HttpError) -> dict[str, str]:
        """Return a record of a page that failed after all retries."""
        return {"url": str(error.request and error.request.url), "failed": str(error)}
