"""The worker of a crawl with a job. It records running callbacks for the process that opens the job after a death.

This is a separate module, because only a crawl with a job loads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trawl.engine.callback_deaths import FATAL, CallbackDeaths
from trawl.engine.callbacks import Callback, CallbackOutputs
from trawl.engine.worker import Worker
from trawl.errors import DownloadError
from trawl.http import Drop, Outcome, Replace
from trawl.scheduler import Attempt

__all__ = ["JobWorker"]


class JobWorker(Worker):
    """The worker of a crawl with a job.

    Args:
        deaths: Records which callbacks run.
        parts: The arguments of :class:`~trawl.engine.worker.Worker`.
    """

    def __init__(self, deaths: CallbackDeaths, *parts: Any) -> None:
        super().__init__(*parts)
        self._deaths = deaths

    def _refusal(self, attempt: Attempt, reason: str, failure: DownloadError | None) -> Outcome:
        if reason == FATAL:
            return Outcome(attempt.request, then=Drop(reason, self._deaths.give_up(attempt)))
        return super()._refusal(attempt, reason, failure)

    def _end(self, attempt: Attempt) -> None:
        super()._end(attempt)
        self._deaths.end_turn(attempt)

    async def _outcome(self, attempt: Attempt) -> Outcome:
        if not self._may_fetch or not attempt.is_page:  # without user code, nothing is recorded
            return await super()._outcome(attempt)
        await self._deaths.enter(attempt, "middleware")
        try:
            return await super()._outcome(attempt)
        finally:
            self._deaths.leave(attempt)

    async def _act(self, attempt: Attempt, outcome: Outcome) -> None:
        await super()._act(attempt, outcome)
        then = outcome.then
        if attempt.is_page and (not isinstance(then, Replace) or then.is_new_target):  # a retry is the same page
            self._deaths.survived(attempt)

    async def _run(
        self,
        attempt: Attempt,
        callback: Callback | None,
        default: str,
        argument: object,
        cb_kwargs: Mapping[str, object] | None,
        outputs: CallbackOutputs,
    ) -> None:
        await self._deaths.enter(attempt, "callback")
        try:
            await super()._run(attempt, callback, default, argument, cb_kwargs, outputs)
            self._deaths.survived(attempt)
        finally:
            self._deaths.leave(attempt)
