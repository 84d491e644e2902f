"""Pages of strangers send no crawl into the user's own network, whatever they link or redirect to (SSRF).

Names resolve to what a test says, and every connection goes to one server on loopback: what counts is the address that
would have been dialled.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import trawl
from tests.net.badserver import BadServer, Connection, clock, serving
from tests.net.crawls import AT_ONCE, crawled
from trawl._run import crawl_with
from trawl.address_guard import AddressGuard
from trawl.errors import AddressRefused
from trawl.http import Request, Response
from trawl.pipelines import FilesPipeline, ImagesPipeline
from trawl.settings import Layer, load, of_spider
from trawl.testing import SimulatedWeb, simulate
from trawl.transport import Http11Transport, HttpxTransport, TransportSettings
from trawl.transport import connect as dialling
from trawl.transport.resolver import Address

__all__ = ["clock"]

PUBLIC = "93.184.215.14"
LOGGED = "trawl.engine"


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def at(address: str, port: int) -> Address:
    """An address as the socket module has it."""
    if ip_address(address).version == 6:
        return Address(socket.AF_INET6, (address, port, 0, 0))
    return Address(socket.AF_INET, (address, port))


@attrs.define
class Network:
    """What names resolve to, and which addresses were dialled.

    Attributes:
        server: Answers for every address.
        names: The addresses of names; several answers are given one after the other, the last one again and again.
        dialled: Addresses, in order.
    """

    server: BadServer
    names: dict[str, list[list[str]]] = attrs.Factory(dict)
    dialled: list[str] = attrs.Factory(list)

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        """The next answer about a name."""
        await trio.lowlevel.checkpoint()
        if is_address(host):
            return [at(host, port)]
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        answers = self.names[host]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return [at(text, port) for text in answer]

    async def connected(self, address: Address, *options: object) -> trio.SocketStream:
        """A connection to the one server, in place of ``address``."""
        self.dialled.append(str(address.sockaddr[0]))
        return await trio.open_tcp_stream("127.0.0.1", self.server.port)


@pytest.fixture
def pages() -> dict[str, str]:
    """Links by host and path; ``"-> URL"`` is a redirect."""
    return {}


@pytest.fixture
async def network(clock: MockClock, pages: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Network]:
    async def answer(connection: Connection) -> None:
        head = connection.head.decode("latin-1")
        path = head.split(" ")[1]
        host = head.lower().partition("host: ")[2].partition("\r")[0]
        page = pages.get(f"{host}{path}", "")
        if page.startswith("-> "):
            await connection.answer(b"", "302 Found", f"Location: {page[3:]}", "Connection: close")
        else:
            status = "404 Not Found" if path == "/robots.txt" and not page else "200 OK"
            links = "".join(f'<a href="{url}">x</a>' for url in page.split())
            await connection.answer(links.encode(), status, "Content-Type: text/html", "Connection: close")

    async with serving(answer) as server:
        made = Network(server, {"shop.example": [[PUBLIC]]})
        monkeypatch.setattr(dialling, "_connected", made.connected)
        yield made


class Links(trawl.Spider):
    """Follows every link; errors are logged."""

    def parse(self, response: Response, **kwargs: Any) -> Any:
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link, errback=getattr(self, "fail"))  # noqa: B009 - the spider that is crawled has it


async def test_a_link_to_a_private_address_is_dropped_and_counted(
    clock: MockClock, network: Network, pages: dict[str, str]
) -> None:
    private = ["http://127.0.0.1:9/a", "http://10.0.0.1/", "https://[::1]/", "http://169.254.169.254/latest/meta-data/"]
    private += ["http://me:pw@192.168.1.1/", "http://0x7f000001/", "http://[::ffff:10.0.0.1]/", "http://0/"]
    pages["shop.example/"] = " ".join([*private, "/other"])
    run = await crawled(["http://shop.example/"], resolve=network.resolve, spider=Links)
    assert [url for url, _ in run.pages] == ["http://shop.example/", "http://shop.example/other"]
    assert run.result.stats["private_addresses_refused"] == len(private)
    assert set(network.dialled) == {PUBLIC}
    assert run.failed == []


@pytest.mark.parametrize("is_obeyed", [False, True], ids=["without robots.txt", "with robots.txt"])
@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "fd00::7", "169.254.169.254", "::ffff:192.168.0.1"])
async def test_a_link_to_a_name_at_a_private_address_is_an_error_of_its_own(
    clock: MockClock, network: Network, pages: dict[str, str], address: str, is_obeyed: bool
) -> None:
    network.names["inside.example"] = [[address]]
    pages["shop.example/"] = "http://inside.example/a http://inside.example/b /other"
    settings = {"ROBOTSTXT_OBEY": is_obeyed, "RETRY_ENABLED": True}
    run = await crawled(["http://shop.example/"], settings, resolve=network.resolve, spider=Links)
    assert len(run.pages) == 2
    assert {type(failed.error) for failed in run.failed} == {AddressRefused}
    assert sorted(failed.url for failed in run.failed) == ["http://inside.example/a", "http://inside.example/b"]
    assert run.result.stats["private_addresses_refused"] == 2
    assert run.result.stats.get("retry_count", 0) == run.result.stats.get("backoff_count", 0) == 0
    assert set(network.dialled) == {PUBLIC}
    assert max(failed.after for failed in run.failed) < 1


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:9/admin", "http://inside.example/admin", "http://localhost/admin"]
)
async def test_a_redirect_to_a_private_address_is_not_followed_c10(
    clock: MockClock, network: Network, pages: dict[str, str], target: str
) -> None:
    network.names.update({"inside.example": [["10.0.0.8"]], "localhost": [["127.0.0.1"]]})
    pages["shop.example/"] = f"-> {target}"
    run = await crawled(["http://shop.example/"], resolve=network.resolve, spider=Links)
    assert run.pages == []
    assert run.result.stats["private_addresses_refused"] == 1
    assert set(network.dialled) == {PUBLIC}


async def test_a_robots_txt_that_redirects_to_a_private_address_is_one_that_can_not_be_had(
    clock: MockClock, network: Network, pages: dict[str, str]
) -> None:
    pages["shop.example/robots.txt"] = "-> http://127.0.0.1:9/"
    settings = {"ROBOTSTXT_OBEY": True, "BACKOFF_GIVE_UP_AFTER": 5.0}
    run = await crawled(["http://shop.example/"], settings, resolve=network.resolve)
    assert run.pages == []
    assert run.result.stats["robots_forbidden"] == 1
    assert set(network.dialled) == {PUBLIC}


async def test_a_name_that_moves_inside_after_it_was_looked_at_is_refused_where_it_is_dialled(
    clock: MockClock, network: Network, pages: dict[str, str]
) -> None:
    network.names["shop.example"] = [[PUBLIC], ["127.0.0.1"]]  # DNS rebinding
    pages["shop.example/"] = "/admin"
    settings = {"DOWNLOAD_DELAY": 100.0, "RANDOMIZE_DOWNLOAD_DELAY": False}  # longer than a look-up is remembered
    run = await crawled(["http://shop.example/"], settings, resolve=network.resolve, spider=Links)
    assert len(run.pages) == 1
    assert [type(failed.error) for failed in run.failed] == [AddressRefused]
    assert "its address 127.0.0.1 is loopback" in str(run.failed[0].error)
    assert network.dialled == [PUBLIC]


async def test_of_several_addresses_only_the_public_ones_are_tried(clock: MockClock, network: Network) -> None:
    network.names["shop.example"] = [["10.0.0.1", PUBLIC, "::1"]]
    run = await crawled(["http://shop.example/"], resolve=network.resolve)
    assert len(run.pages) == 1
    assert network.dialled == [PUBLIC]


@pytest.mark.parametrize("start", ["http://127.0.0.1:8000/", "http://localhost/", "http://intranet/", "http://[::1]/"])
async def test_a_crawl_that_starts_inside_goes_on_inside(
    clock: MockClock, network: Network, pages: dict[str, str], start: str
) -> None:
    network.names.update({"localhost": [["127.0.0.1"]], "intranet": [["10.0.0.2"]], "wiki.example": [["10.0.0.3"]]})
    pages[start.partition("//")[2]] = "http://127.0.0.1:9/a http://wiki.example/ http://169.254.169.254/"
    run = await crawled([start], resolve=network.resolve, spider=Links)
    assert len(run.pages) == 3
    assert [failed.url for failed in run.failed] == ["http://169.254.169.254/"]
    assert "a cloud's metadata service" in str(run.failed[0].error)


@pytest.mark.parametrize("has_job", [False, True], ids=["without a job", "with a job"])
@pytest.mark.parametrize("pipeline", ["files", "images"])
async def test_what_a_page_names_in_an_item_of_start_opens_nothing(
    clock: MockClock, network: Network, pages: dict[str, str], tmp_path: Path, pipeline: str, has_job: bool
) -> None:
    network.names["wiki.example"] = [["10.0.0.3"]]
    pages["shop.example/list"] = "http://127.0.0.1:9/secret http://localhost/ http://[::1]/ http://wiki.example/"
    pages["shop.example/"] = "http://127.0.0.1:9/a http://wiki.example/a"

    class Starts(Links):
        name = "starts"
        start_urls = ["http://shop.example/"]

        async def start(self) -> AsyncIterator[Any]:
            listed = await self.fetch(Request("http://shop.example/list"))
            yield {f"{pipeline[:-1]}_urls": listed.css("a::attr(href)").getall()}
            async for output in super().start():
                yield output

        def fail(self, error: Exception) -> None:
            pass

    settings: dict[str, object] = {
        "ITEM_PIPELINES": {FilesPipeline if pipeline == "files" else ImagesPipeline: 1},
        f"{pipeline.upper()}_STORE": str(tmp_path / "store"),
        **({"JOB_DIR": str(tmp_path / "job")} if has_job else {}),
    }
    layers = load(Layer("test", {**AT_ONCE, **settings}))
    result = await crawl_with(Starts, layers, collect=True, resolve=network.resolve)
    assert set(network.dialled) == {PUBLIC}
    assert result.stats["file_error_count"] == 4
    assert "private_addresses_allowed" not in result.stats
    assert [item[pipeline] for item in result.items or ()] == [[]]


async def test_a_start_url_whose_name_is_inside_is_fetched_and_vouches_for_no_other(
    clock: MockClock, network: Network, pages: dict[str, str]
) -> None:
    network.names.update({"wiki.example": [["10.0.0.3"]], "jira.example": [["10.0.0.4"]]})
    pages["wiki.example/"] = "/page http://jira.example/"
    run = await crawled(["http://wiki.example/"], resolve=network.resolve, spider=Links)
    assert len(run.pages) == 2
    assert [failed.url for failed in run.failed] == ["http://jira.example/"]
    assert set(network.dialled) == {"10.0.0.3"}


async def test_a_job_that_goes_on_reaches_the_names_of_its_start_requests(
    clock: MockClock, network: Network, pages: dict[str, str], tmp_path: Path
) -> None:
    network.names.update({"wiki.example": [["10.0.0.3"]], "jira.example": [["10.0.0.4"]]})
    pages["wiki.example/"] = "/a /b /c http://jira.example/"

    class Starts(Links):
        name = "starts"

        async def start(self) -> AsyncIterator[Any]:
            yield Request("http://wiki.example/")

        def fail(self, error: Exception) -> None:
            pass

    async def run(**settings: object) -> trawl.CrawlResult:
        layers = load(Layer("test", {**AT_ONCE, "JOB_DIR": str(tmp_path / "job"), **settings}))
        return await crawl_with(Starts, layers, collect=True, resolve=network.resolve)

    await run(CLOSESPIDER_PAGECOUNT=2)
    stats = (await run()).stats
    assert stats["response_status_count/200"] == 4
    assert stats["private_addresses_refused"] == 1  # that of the other name
    assert set(network.dialled) == {"10.0.0.3"}


async def test_the_setting_opens_everything(clock: MockClock, network: Network, pages: dict[str, str]) -> None:
    network.names["inside.example"] = [["10.0.0.8"]]
    pages["shop.example/"] = "http://inside.example/ http://127.0.0.1:9/ http://169.254.169.254/"
    settings: dict[str, object] = {"ALLOW_PRIVATE_ADDRESSES": True}
    run = await crawled(["http://shop.example/"], settings, resolve=network.resolve, spider=Links)
    assert len(run.pages) == 4


async def test_the_setting_closes_start_urls_too(
    clock: MockClock, network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    network.names["wiki.example"] = [["10.0.0.3"]]
    settings: dict[str, object] = {"ALLOW_PRIVATE_ADDRESSES": False}
    with caplog.at_level(logging.ERROR):
        run = await crawled(["http://127.0.0.1:9/", "http://wiki.example/"], settings, resolve=network.resolve)
    assert run.pages == []
    assert [failed.url for failed in run.failed] == ["http://wiki.example/"]
    assert "private addresses refused" in caplog.text
    assert run.result.stats["private_addresses_refused"] == 2
    assert network.dialled == []


async def test_a_direct_fetch_of_a_callback_is_a_pages_wish_and_one_of_start_the_users(
    clock: MockClock, network: Network, pages: dict[str, str]
) -> None:
    raised: list[str] = []

    class Logs(trawl.Spider):
        name = "logs"
        first = "http://shop.example/"

        async def start(self) -> AsyncIterator[Any]:
            if self.first != "http://shop.example/":
                await self.fetch(Request(self.first))
            yield Request("http://shop.example/")

        async def parse(self, response: Response, **kwargs: Any) -> Any:
            try:
                await self.fetch(Request("http://127.0.0.1:9/login"))
            except AddressRefused as error:
                raised.append(str(error))

    values = load(Layer("test", AT_ONCE))
    await crawl_with(Logs, values, resolve=network.resolve)
    assert len(raised) == 1
    await crawl_with(Logs, values, spider_args={"first": "http://127.0.0.1:9/login"}, resolve=network.resolve)
    assert len(raised) == 1
    assert network.dialled.count("127.0.0.1") == 2


async def test_a_page_on_a_connection_that_is_open_asks_nothing(
    clock: MockClock, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Counting(AddressGuard):
        def refused(self, host: str, addresses: Any) -> dict[str, str]:
            asked.append(host)
            return super().refused(host, addresses)

    async def kept(connection: Connection) -> None:
        await connection.answer(b"ok")

    async with serving(kept) as server:
        network.server = server
        transport = Http11Transport(TransportSettings(), resolve=network.resolve, guard=Counting())
        for _ in range(3):
            assert (await transport.send(Request("http://shop.example/"), lambda: None)).error is None
        await transport.aclose()
    assert asked == ["shop.example"]


async def test_the_other_transport_is_guarded_too(clock: MockClock, network: Network) -> None:
    network.names["inside.example"] = [["10.0.0.8"]]
    transport = HttpxTransport(TransportSettings(), resolve=network.resolve, guard=AddressGuard())
    outcome = await transport.send(Request("http://inside.example/"), lambda: None)
    await transport.aclose()
    assert type(outcome.error) is AddressRefused
    assert outcome.error.url == "http://inside.example/"
    assert network.dialled == []


async def test_a_job_that_goes_on_knows_that_its_crawl_started_inside(
    clock: MockClock, network: Network, tmp_path: Path
) -> None:
    class Inside(trawl.Spider):
        name = "inside"
        custom_settings = {**AT_ONCE, "JOB_DIR": str(tmp_path / "job")}

        async def start(self) -> AsyncIterator[Any]:
            yield Request("http://10.0.0.1/first")

        def parse(self, response: Response, **kwargs: Any) -> Any:
            if response.url.endswith("/first"):
                yield response.follow("/second")
                raise trawl.CloseSpider("enough")
            yield {"url": response.url}

    values = load(of_spider(Inside))
    assert (await crawl_with(Inside, values, resolve=network.resolve)).reason == "enough"
    rest = await crawl_with(Inside, values, resolve=network.resolve, collect=True)
    assert rest.items == [{"url": "http://10.0.0.1/second"}]
    assert network.dialled == ["10.0.0.1"] * 2


@pytest.mark.parametrize(("settings", "pages"), [({}, 2), ({"ALLOW_PRIVATE_ADDRESSES": False}, 1)])
def test_a_simulated_web_has_no_private_addresses_unless_the_setting_says_so(
    settings: Mapping[str, object], pages: int
) -> None:
    web = SimulatedWeb()
    web.add_page("http://a.example/", links=["http://10.0.0.1/"])
    web.add_host("10.0.0.1")

    class Starts(Links):
        name = "starts"
        start_urls = ("http://a.example/",)

        def fail(self, error: Exception) -> Iterator[Any]:
            yield from ()

    sim = simulate(Starts, web, {"ROBOTSTXT_OBEY": False, **settings})
    assert len(sim.sends) == pages
    assert sim.stats.get("private_addresses_refused", 0) == 2 - pages
