"""Warnings, each once."""

from __future__ import annotations

from typing import Any

import pytest

import trawl
from tests.throttling.driving import Answer, Drive, throttle_of
from trawl.errors import ConnectFailed
from trawl.http import Request
from trawl.testing import SimulatedWeb, simulate
from trawl.throttling import Throttle

A = "a.example"
PAGE = Request("http://a.example/")


def driven(until: float, latency: float = 0.1, **given: Any) -> Throttle:
    throttle = throttle_of(**given)
    throttle.scope(A, 0.0).waits.lanes = 1
    Drive(throttle, lambda request, now: Answer(latency=latency), endless=PAGE).run(until)
    return throttle


def about(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [record.message for record in caplog.records if words in record.message]


@pytest.mark.parametrize(
    "key",
    [
        *("*.example.com", "*", "api.*", ".example.com", "https://a.example/", "http://a.example"),
        *(
            f"http://{A}:3128",
            f"http://{A}:3128/",
            f"HTTPS://{A}/list?page=1",
            f"http://user:pw@{A}/",
            "http://[::1]:80/",
        ),
    ],
)
async def test_e19_a_key_that_fits_no_host_is_warned_of_at_the_start(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    await throttle_of(throttling_scopes={key: {"delay": 2.0}, A: {}}).begin(0.0)
    [message] = [record.message for record in caplog.records]
    assert message.startswith(f"THROTTLING_SCOPES[{key!r}] matches no host: a key is the name of one scope")
    assert "name each host, or give the requests of all of them one scope by meta" in message


@pytest.mark.parametrize(
    "key", ["api", A, f"{A}:8080", "localhost", "[::1]", f"{A}/fast", f"proxy:{A}", "http", ".", "ftp://x/y"]
)
async def test_e20_a_name_of_ones_own_is_none_of_those(key: str, caplog: pytest.LogCaptureFixture) -> None:
    await throttle_of(throttling_scopes={key: {"delay": 2.0}}).begin(0.0)
    assert not caplog.records


def test_f10_direct_fetches_that_pile_up_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    throttle = throttle_of(delayed_requests_warn_threshold=3)
    for count in (1, 2, 3, 4):
        throttle.warnings.waiting_direct(count)
    assert len(about(caplog, "3 direct fetches wait")) == len(caplog.records) == 1


def test_i02_a_concurrency_that_is_not_reached_is_reported_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    driven(1000.0, throttling_scopes={A: {"concurrency": 4, "delay": 1.0}})
    [warning] = about(caplog, "its concurrency of 4 is not reached (1 at most")
    assert warning.endswith("what holds it up: delay")


def test_i02_a_rate_that_is_not_reached_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    driven(1000.0, latency=1.0, throttling_scopes={A: {"rate": 4, "concurrency": 2}})
    [warning] = about(caplog, "its rate of 4/s is not reached (2/s")
    assert warning.endswith("what holds it up: concurrency")


@pytest.mark.long
def test_i02_what_is_reached_is_not(caplog: pytest.LogCaptureFixture) -> None:
    driven(700.0, throttling_scopes={A: {"rate": 4}})
    driven(700.0, latency=1.0, throttling_scopes={A: {"concurrency": 4, "delay": 0.2}})
    assert not caplog.records


AUTO: Any = {"autothrottle_enabled": True, "download_delay": 0.0, "download_delay_per_slot": 0.0}


def test_h16_a_delay_stuck_at_its_maximum(caplog: pytest.LogCaptureFixture) -> None:
    driven(1000.0, latency=5.0, autothrottle_max_delay=2.0, **AUTO)
    assert len(about(caplog, "stuck at its maximum, 2 s")) == 1


def test_h16_a_delay_near_zero(caplog: pytest.LogCaptureFixture) -> None:
    driven(700.0, latency=0.5, autothrottle_target_concurrency=100.0, autothrottle_start_delay=0.0, **AUTO)
    assert len(about(caplog, "near zero")) == 1


def test_h16_concurrency_below_its_target(caplog: pytest.LogCaptureFixture) -> None:
    driven(700.0, latency=0.5, autothrottle_target_concurrency=8.0, **AUTO)
    assert len(about(caplog, "target concurrency of 8 is not reached")) == 1


def test_h16_fewer_items_while_the_pages_stay_quick(caplog: pytest.LogCaptureFixture) -> None:
    throttle = throttle_of(**AUTO)

    def server(request: Request, now: float) -> Answer:
        throttle.items(request, 5 if now < 400.0 else 0)
        return Answer(latency=0.5)

    drive = Drive(throttle, server, endless=PAGE)
    drive.run(1500.0)
    assert len(about(caplog, "is it blocking us?")) == 1


def test_h16_a_healthy_crawl_raises_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    driven(1000.0, latency=0.5, **AUTO)
    assert not caplog.records


async def test_a11_what_nobody_has_configured_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    await throttle_of(concurrent_requests=1).begin(0.0)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("trouble", "setting"),
    [({"status": 503}, "BACKOFF_HTTP_CODES"), ({"connect_error": ConnectFailed}, "BACKOFF_EXCEPTIONS")],
)
def test_the_first_line_on_backing_off_names_the_setting_that_turns_it_off(
    caplog: pytest.LogCaptureFixture, trouble: dict[str, Any], setting: str
) -> None:
    class Pages(trawl.Spider):
        name = "pages"
        start_urls = ["http://a.example/", "http://b.example/"]
        custom_settings = {"ROBOTSTXT_OBEY": False, "RETRY_ENABLED": False}

        def parse(self, response: trawl.Response) -> None: ...

    web = SimulatedWeb()
    for host in ("a.example", "b.example"):
        web.add_host(host, **trouble)
    with caplog.at_level("INFO", "trawl.throttling"):
        simulate(Pages, web)
        first, second = (line for line in caplog.messages if "backing off" in line)
        assert f"{setting} says what counts as a refusal, [] turns it off" in first
        assert "BACKOFF_" not in second
        caplog.clear()
        simulate(Pages, web, {setting: []})
        assert not about(caplog, "backing off")


@pytest.mark.parametrize("id", [f"https://{A}/", f"http://{A}:8080/list"])
def test_e19_a_scope_of_meta_that_is_named_as_a_url_is_warned_of_once(
    id: str, caplog: pytest.LogCaptureFixture
) -> None:
    throttle = throttle_of()
    for name in (id, id, A, f"http://{A}:3128"):  # the last may be a proxy
        throttle.scope(name, 0.0)
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"the scope {id!r} is named as a URL")
