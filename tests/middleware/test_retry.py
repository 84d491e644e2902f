from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.middleware.web import Answer, Web
from trawl.errors import (
    BodyTooLarge,
    ConnectFailed,
    DownloadError,
    NameNotResolved,
    ReadTimeout,
    ResponseBroken,
    TLSFailed,
)
from trawl.http import Drop, Outcome, Replace, Request, Response
from trawl.middleware import MiddlewareSettings, retry
from trawl.middleware.retry import _again

URL = "https://a.example/"


async def ask(answer: Answer, request: Request | None = None, **settings: Any) -> Outcome:
    layer = retry(MiddlewareSettings(**settings), random.Random(0))
    return await Web(answer).through([layer], request or Request(URL))


@pytest.mark.parametrize("status", [500, 502, 503, 504, 522, 524, 408, 429])
async def test_a_status_that_may_pass_is_tried_again(status: int) -> None:
    outcome = await ask(Response(URL, status), Request(URL, priority=3))
    assert isinstance(outcome.then, Replace)
    assert outcome.then.reason == "retry"
    assert not outcome.then.is_new_target
    assert outcome.then.request.meta["retry_times"] == 1
    assert outcome.then.request.priority == 2
    assert outcome.response is not None


@pytest.mark.parametrize("status", [200, 301, 404, 403, 501])
async def test_other_statuses_are_answers(status: int) -> None:
    assert (await ask(Response(URL, status))).then is None


@pytest.mark.parametrize("error", [ConnectFailed, NameNotResolved, ReadTimeout, ResponseBroken])
async def test_a_network_error_is_tried_again(error: type[DownloadError]) -> None:
    assert isinstance((await ask(error("why"))).then, Replace)


@pytest.mark.parametrize("error", [TLSFailed, BodyTooLarge])
async def test_an_error_that_will_not_pass_is_not(error: type[DownloadError]) -> None:
    outcome = await ask(error("why"))
    assert outcome.then is None
    assert isinstance(outcome.error, error)


async def test_after_its_last_try_the_response_goes_to_the_spider() -> None:
    request, tries = Request(URL), 0
    while isinstance((outcome := await ask(Response(URL, 503), request)).then, Replace):
        request, tries = outcome.then.request, tries + 1
    assert tries == 2
    assert outcome.response is not None
    assert outcome.response.status == 503


@pytest.mark.parametrize(
    ("meta", "is_tried"),
    [
        ({"dont_retry": True}, False),
        ({"retry_times": 2}, False),
        ({"retry_times": 2, "max_retry_times": 3}, True),
        ({"max_retry_times": 0}, False),
    ],
)
async def test_a_request_may_set_its_own_number_of_tries(meta: dict[str, Any], is_tried: bool) -> None:
    outcome = await ask(Response(URL, 503), Request(URL, meta=meta))
    assert isinstance(outcome.then, Replace) is is_tried


@pytest.mark.parametrize("times", [0, 2, 50])
async def test_what_is_excused_is_repeated_and_burns_no_retry_r12_b20(times: int) -> None:
    def excused(request: Request) -> Outcome:
        return Outcome(request, response=Response(URL, 418, request=request), is_excused=True, is_heard=True)

    request = Request(URL, meta={"retry_times": times}, priority=3)
    outcome = await ask(excused, request)
    assert isinstance(outcome.then, Replace)
    assert outcome.then.request.meta == {"retry_times": times}
    assert outcome.then.request.priority == 3
    assert outcome.then.delay == 0.0
    assert outcome.then.reason == "backoff"


async def test_a_trigger_is_tried_again_whatever_its_status_at_the_back_of_its_equals_b20() -> None:
    def refused(request: Request) -> Outcome:
        return Outcome(request, response=Response(URL, 418, request=request), is_trigger=True, pause=4.0, is_heard=True)

    outcome = await ask(refused, Request(URL, priority=3))
    assert isinstance(outcome.then, Replace)
    assert outcome.then.request.meta == {"retry_times": 1}
    assert outcome.then.request.priority == 3
    assert outcome.then.delay == 4.0
    assert (await ask(refused, Request(URL, meta={"retry_times": 2}))).then is None


async def test_what_was_decided_inside_is_left_alone() -> None:
    def dropped(request: Request) -> Outcome:
        return Outcome(request, response=Response(URL, 503, request=request), then=Drop("refused"))

    assert (await ask(dropped)).then == Drop("refused")


@given(st.integers(0, 200), st.floats(0, 100), st.floats(0, 1000), st.integers())
def test_the_delay_doubles_within_its_limit_and_its_jitter_r10(times: int, base: float, most: float, seed: int) -> None:
    settings = MiddlewareSettings(retry_times=1000, retry_delay=base, retry_max_delay=most)
    request = Request(URL, meta={"retry_times": times})
    again = _again(request, "why", Outcome(request), settings, random.Random(seed))
    assert again is not None
    planned = min(base * 2.0 ** min(times, 60), most)
    assert planned * 0.5 <= again.delay <= planned * 1.5


async def test_two_hosts_do_not_come_back_at_the_same_instant_r10() -> None:
    layer = retry(MiddlewareSettings(), random.Random(0))
    web = Web(Response(URL, 503))
    thens = [(await web.through([layer], Request(URL))).then for _ in range(10)]
    assert len({then.delay for then in thens if isinstance(then, Replace)}) == 10
