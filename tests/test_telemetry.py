"""Metrics for Prometheus and spans for OpenTelemetry, from running crawls."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
import yaml

import trawl
from trawl.blocking import InlineBlocking
from trawl.cli import main
from trawl.errors import ConnectFailed, UsageError
from trawl.observe import CrawlStatus, Estimate, Health, ScopeEstimate, ScopeStatus
from trawl.observe.status import LATENCY_BOUNDS
from trawl.telemetry import MAX_SCOPES, OTHER, MetricsServer, metrics_page, trace_requests
from trawl.testing import SimulatedWeb, simulate

parser = pytest.importorskip("prometheus_client.parser", reason="needs the extra metrics")

DEPLOY = Path(__file__).parents[1] / "examples" / "deploy"


def scope(number: int, **values: Any) -> ScopeStatus:
    latency = [0] * (len(LATENCY_BOUNDS) + 1)
    latency[2] = number
    statuses = (0, number, 0, 1, 0, 0)
    usual: dict[str, Any] = {"sends": number, "statuses": statuses, "latency": latency, "delay": 1.0, "size": 10}
    return ScopeStatus(scope=f"h{number}.example", **(usual | values))


def fake(*scopes: ScopeStatus, **values: Any) -> Any:
    status = CrawlStatus(spider="quotes", pages=7, statuses={"200": 6, "404": 1}, limits={"delay": 3}, **values)
    return SimpleNamespace(
        status=lambda: status,
        status_keeper=SimpleNamespace(scopes={each.scope: each for each in scopes}),
        blocking=InlineBlocking(),
    )


def served(*crawls: Any, most: int = MAX_SCOPES, accept: str = "") -> str:
    return trio.run(metrics_page, crawls, accept, most)[0].decode()


def values_of(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_the_figures_of_a_crawl_are_metrics() -> None:
    found = values_of(served(fake(scope(5), health=Health(backlog=2048))))
    assert found["trawl_unwritten_bytes"] == [({"spider": "quotes"}, 2048.0)]
    assert found["trawl_pages_total"] == [({"spider": "quotes"}, 7.0)]
    assert found["trawl_crawl_info"] == [({"spider": "quotes", "state": "running"}, 1.0)]
    assert ({"spider": "quotes", "status": "404"}, 1.0) in found["trawl_responses_total"]
    assert found["trawl_waiting_requests"] == [({"spider": "quotes", "limit": "delay"}, 3.0)]
    assert found["trawl_scope_delay_seconds"] == [({"spider": "quotes", "scope": "h5.example"}, 1.0)]
    assert {labels["status"] for labels, _ in found["trawl_scope_responses_total"]} == {"2xx", "4xx"}


def test_the_histogram_of_latencies_is_cumulative_and_of_all_servers() -> None:
    counts = [0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1]
    found = values_of(served(fake(scope(5), latency=counts, latency_seconds=71.0)))
    buckets = [(labels["le"], value) for labels, value in found["http_client_request_duration_seconds_bucket"]]
    assert buckets[:4] == [("0.05", 0.0), ("0.1", 0.0), ("0.2", 5.0), ("0.5", 5.0)]
    assert buckets[-1] == ("+Inf", 6.0)
    assert found["http_client_request_duration_seconds_sum"] == [({"spider": "quotes"}, 71.0)]
    assert found["http_client_request_duration_seconds_count"] == [({"spider": "quotes"}, 6.0)]


def test_the_scopes_that_end_last_have_their_estimated_end() -> None:
    last = ScopeEstimate(scope="h5.example", pending=9, seconds=80.0)
    found = values_of(served(fake(scope(5), scope(6), estimate=Estimate(seconds=90.0, scopes=[last]))))
    assert found["trawl_estimated_end_seconds"] == [({"spider": "quotes"}, 90.0)]
    assert found["trawl_scope_estimated_end_seconds"] == [({"spider": "quotes", "scope": "h5.example"}, 80.0)]


def test_only_the_busiest_scopes_have_metrics_and_the_others_are_summed_up() -> None:
    found = values_of(served(fake(*[scope(number, queued=number) for number in range(1, 11)]), most=2))
    queued = {labels["scope"]: value for labels, value in found["trawl_scope_queued_requests"]}
    assert queued == {"h10.example": 10.0, "h9.example": 9.0, OTHER: 36.0}
    assert {labels["scope"] for labels, _ in found["trawl_scope_delay_seconds"]} == {"h10.example", "h9.example"}
    others = [value for labels, value in found["trawl_scope_responses_total"] if labels["scope"] == OTHER]
    assert others == [36.0, 8.0]


def test_names_that_a_server_chose_stay_values_of_labels() -> None:
    name = 'x"} 1\nfake{a="\\'
    found = values_of(served(fake(ScopeStatus(scope=name, sends=1))))
    assert found["trawl_scope_delay_seconds"] == [({"spider": "quotes", "scope": name}, 0.0)]


def test_a_scraper_may_ask_for_open_metrics() -> None:
    text = served(fake(scope(1)), accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


class Pages(trawl.Spider):
    name = "pages"
    start_urls = [f"http://a.example/{number}" for number in range(9)]

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}


@asynccontextmanager
async def listening() -> AsyncIterator[MetricsServer]:
    with closing(MetricsServer("0")) as server:
        yield server


async def asked(port: int, *lines: str) -> bytes:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all("\r\n".join([*lines, "", ""]).encode())
        found = b""
        while received := await stream.receive_some():
            found += received
    return found


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["GET /metrics HTTP/1.1", "Host: 127.0.0.1:1"], b"200 OK"),
        (["GET /metrics?x HTTP/1.0", "host: localhost"], b"200 OK"),
        (["HEAD /metrics HTTP/1.1", "Host: [::1]:80"], b"200 OK"),
        (["GET / HTTP/1.1", "Host: localhost:80"], b"404 Not Found"),
        (["POST /metrics HTTP/1.1", "Host: localhost"], b"405 Method Not Allowed"),
        (["GET /metrics HTTP/1.1", "Host: evil.example"], b"421 Misdirected Request"),
        (["GET /metrics HTTP/1.1"], b"421 Misdirected Request"),
        (["\xff"], b"421 Misdirected Request"),
    ],
)
async def test_the_server_responds_to_scrapes_of_this_machine_only(lines: list[str], status: bytes) -> None:
    async with listening() as server, trio.open_nursery() as nursery:
        nursery.start_soon(server.watch, fake(scope(3)))
        response = await asked(server.port, *lines)
        nursery.cancel_scope.cancel()
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert b"nosniff" in head
    assert (b"trawl_pages_total" in body) is (status == b"200 OK" and lines[0].startswith("GET"))


async def test_a_request_that_fails_is_logged_and_the_next_one_is_served(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> CrawlStatus:
        raise ZeroDivisionError

    line = "GET /metrics HTTP/1.1", "Host: localhost"
    crawl = fake(scope(3))
    async with listening() as server, trio.open_nursery() as nursery:
        nursery.start_soon(server.watch, crawl)
        await trio.testing.wait_all_tasks_blocked()
        status, crawl.status = crawl.status, fail
        wrong = await asked(server.port, *line)
        crawl.status = status
        right = await asked(server.port, *line)
        nursery.cancel_scope.cancel()
    assert wrong.startswith(b"HTTP/1.1 500 ")
    assert right.startswith(b"HTTP/1.1 200 ")
    assert "a request for metrics failed" in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.2:9000", "LOCALHOST:9000"])
async def test_the_address_of_the_option_is_a_name_of_the_server(host: str) -> None:
    with closing(MetricsServer("127.0.0.2:0")) as server:
        assert b" 404 " in await server._response(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert b" 421 " in await server._response(b"GET / HTTP/1.1\r\nHost: 127.0.0.3:9000\r\n\r\n")


async def test_when_a_crawl_ends_another_continues_to_serve() -> None:
    first, second = trio.CancelScope(), fake(scope(3))
    second.status = lambda: CrawlStatus(spider="second")

    async def watch(server: MetricsServer) -> None:
        with first:
            await server.watch(fake(scope(2)))

    async with listening() as server, trio.open_nursery() as nursery:
        nursery.start_soon(watch, server)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(server.watch, second)
        await trio.testing.wait_all_tasks_blocked()
        line = "GET /metrics HTTP/1.1", "Host: localhost"
        assert (await asked(server.port, *line)).count(b"trawl_pages_total{") == 2
        first.cancel()
        await trio.testing.wait_all_tasks_blocked()
        response = await asked(server.port, *line)
        nursery.cancel_scope.cancel()
    assert response.count(b"trawl_pages_total{") == 1
    assert b'spider="second"' in response


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_in_use_is_one_line_and_nothing_is_sent(
    taken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pages.py").write_text("import trawl\n\nclass P(trawl.Spider):\n    name = 'p'\n")
    assert main(["crawl", str(tmp_path / "pages.py"), "--metrics", str(taken)]) == 2
    error = capsys.readouterr().err
    assert error == f"trawl: --metrics {taken}: Address already in use\n"


@pytest.mark.parametrize("address", ["", "x", "a:b", "99999", "-1"])
def test_an_address_that_is_none_is_told(address: str) -> None:
    with pytest.raises(UsageError, match="--metrics takes PORT or HOST:PORT, not"):
        MetricsServer(address)


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(UsageError, match=r"--metrics 192\.0\.2\.1:0: "):
        MetricsServer("192.0.2.1:0")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--metrics-scopes", "5"], "--metrics-scopes needs --metrics PORT"),
        (["--metrics", "0", "--processes", "2"], "--metrics is for one process"),
    ],
)
def test_options_that_do_not_fit_are_told(
    words: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pages.py").write_text("import trawl\n\nclass P(trawl.Spider):\n    name = 'p'\n")
    assert main(["crawl", str(tmp_path / "pages.py"), *words]) == 2
    assert error in capsys.readouterr().err


def test_a_crawl_has_the_metrics_of_its_scopes() -> None:
    web, pages = SimulatedWeb(), list[str]()
    web.add_host("a.example", latency=0.3)

    async def scrape(crawl: Any) -> None:
        crawl.status()
        await trio.sleep(6.6)
        pages.append((await metrics_page([crawl]))[0].decode())

    simulate(Pages, web, {"WATCHERS": {scrape: 0}, "ROBOTSTXT_OBEY": False, "RANDOMIZE_DOWNLOAD_DELAY": False})
    found = values_of(pages[0])
    labels = {"spider": "pages", "scope": "a.example"}
    assert found["trawl_pages_total"][0][1] in {6.0, 7.0}
    assert found["trawl_scope_responses_total"][0][0] == {**labels, "status": "2xx"}
    assert found["trawl_scope_responses_total"][0][1] in {6.0, 7.0}
    assert found["http_client_request_duration_seconds_bucket"][-1][1] in {6.0, 7.0}


async def test_the_panel_serves_the_metrics_too() -> None:
    panels = pytest.importorskip("trawl.panel", reason="needs the extra panel")
    clients = pytest.importorskip("starlette.requests", reason="needs the extra panel")
    panel = panels.Panel(None)
    request = clients.Request({"type": "http", "headers": [(b"accept", b"text/plain")], "query_string": b""})
    assert (await panel._metrics(request)).status_code == 404
    panel._pages["quotes"] = SimpleNamespace(crawl=fake(scope(3)))
    response = await panel._metrics(request)
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert "trawl_pages_total" in values_of(response.body.decode())
    assert "/metrics" in {route.path for route in panel.app().routes}


def test_the_page_of_many_scopes_is_short_and_made_in_a_thread() -> None:
    crawl, runs = fake(*map(scope, range(1, 2001))), []

    class Counted(InlineBlocking):
        async def run(self, function: Any, *args: Any) -> Any:  # type: ignore[override]  # mypy can't pass Ts on
            runs.append(function.__name__)
            return await InlineBlocking().run(function, *args)

    crawl.blocking = Counted()
    assert len(served(crawl)) < 60_000
    assert runs == ["_encoded"]


def test_each_request_has_a_span() -> None:
    reason = "needs opentelemetry-sdk"
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=reason)
    export = pytest.importorskip("opentelemetry.sdk.trace.export", reason=reason)
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=reason)
    trace = pytest.importorskip("opentelemetry.trace", reason=reason)
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "get_tracer", provider.get_tracer)
        web = SimulatedWeb()
        web.add_host("a.example", latency=0.25, connect=0.5, keep_alive=0)
        web.add_host("b.example", connect_error=ConnectFailed)

        class Some(Pages):
            start_urls = ["http://me:secret@a.example:80/1", "http://a.example/2", "http://b.example/"]

        settings = {"WATCHERS": {trace_requests: 0}, "ROBOTSTXT_OBEY": False, "RETRY_ENABLED": False}
        simulate(Some, web, settings, errors="collect")
    spans = {span.attributes["url.full"]: span for span in exporter.get_finished_spans()}
    assert len(spans) == 3
    second = spans["http://a.example/2"]
    assert (second.end_time - second.start_time) / 1e9 == pytest.approx(0.75)
    assert second.attributes["http.response.status_code"] == 200
    assert second.attributes["trawl.throttled"] > 0
    assert (second.attributes["trawl.scope"], second.attributes["trawl.limit"]) == ("a.example", "delay")
    assert spans["http://b.example/"].attributes["error.type"] == "ConnectFailed"
    assert not any("secret" in url for url in spans)
    assert abs(second.end_time / 1e9 - time.time()) < 86_400


NAMES = re.compile(r"\b(?:trawl|http_client)_[a-z_]+\b")


def whole() -> Any:
    """A crawl whose page has every metric."""
    last = ScopeEstimate(scope="h3.example", pending=9, seconds=80.0)
    estimate = Estimate(seconds=90.0, scopes=[last])
    return fake(scope(3, limit="delay"), item_types={"dict": 1}, estimate=estimate, latency=[1] * 11)


def known() -> set[str]:
    return {*values_of(served(whole()))}


def expressions() -> list[str]:
    """The expressions of the dashboard."""
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_the_dashboard_shows_metrics_that_exist() -> None:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len({*ids})
    assert {name for query in expressions() for name in NAMES.findall(query)} <= known()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24


def test_a_host_to_which_nothing_can_be_sent_is_not_among_the_busiest_of_the_dashboard() -> None:
    busiest = [query for query in expressions() if "trawl_scope_responses_total" in query]
    assert busiest
    assert all('trawl_scope_responses_total{status!="error"}' in query for query in busiest)


def test_the_alerts_are_about_metrics_that_exist() -> None:
    found = yaml.safe_load((DEPLOY / "prometheus-alerts.yaml").read_text())
    rules = [rule for group in found["groups"] for rule in group["rules"]]
    assert len(rules) >= 4
    for rule in rules:
        assert {*rule} == {"alert", "expr", "for", "labels", "annotations"}
        names = {*NAMES.findall(rule["expr"])}
        assert names
        assert names <= known()
        assert re.fullmatch(r"\d+[smh]", rule["for"])


def test_the_documentation_names_each_metric() -> None:
    page = (DEPLOY.parents[1] / "docs" / "howto" / "metrics.md").read_text("utf-8")
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in known()}
    assert {name for name in names if f"`{name}`" not in page} == set()
    assert {*NAMES.findall(page)} <= names | {"trawl_crawl"}


@pytest.mark.servers
def test_promtool_accepts_the_metrics_the_alerts_and_the_dashboard(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian: prometheus)")
    rules = [
        {"record": f"dashboard:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(expressions())
    ]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    for words, given in (
        (["check", "metrics"], served(whole())),
        (["check", "rules", "--lint-fatal", str(DEPLOY / "prometheus-alerts.yaml"), str(tmp_path / "rules.yaml")], ""),
    ):
        done = subprocess.run([promtool, *words], input=given, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
