"""A fake transport for tests of middleware, with responses in a given order and a list of the requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import trio

from trawl.errors import DownloadError
from trawl.http import Middleware, Outcome, Request, Response
from trawl.middleware import compose

NOW_UTC = datetime(2025, 1, 1, tzinfo=UTC)

Answer = Response | DownloadError | Callable[[Request], Outcome]


def now_utc() -> datetime:
    return NOW_UTC


class Web:
    """Returns the responses one after another. The last response is repeated."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[Request] = []
        self.fields: list[dict[str, str]] = []

    async def fetch(self, request: Request) -> Outcome:
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        self.fields.append(dict(request.headers))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, DownloadError):
            return Outcome(request, error=answer, is_heard=True)
        if isinstance(answer, Response):
            return Outcome(request, response=answer.replace(request=request), is_heard=True)
        return answer(request)

    async def through(self, middleware: Sequence[Middleware], request: Request) -> Outcome:
        """Send a request through ``middleware``, and return the outcome."""
        return await compose(middleware, self.fetch)(request)
