"""Files that items name are fetched by the crawl's own throttle, kept by their content, asked for only if need be."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

import trawl
from trawl.errors import SettingsError
from trawl.http import Request
from trawl.pipelines import FilesPipeline, MediaInfo
from trawl.pipelines.files import MAX_AT_ONCE
from trawl.testing import SimulatedResponse, SimulatedWeb, Simulation, simulate

PDF = {"Content-Type": "application/pdf", "ETag": '"v1"', "Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT"}


@dataclasses.dataclass
class Report:
    file_urls: list[str]
    files: list[dict[str, str]] = dataclasses.field(default_factory=list)


class Reports(trawl.Spider):
    name = "reports"
    start_urls = ["http://a.example/"]
    urls = ["http://files.example/a.pdf"]

    def parse(self, response: Any) -> Any:
        yield {"file_urls": list(self.urls)}


class Server:
    """A server of files that knows whether what a client has is still so."""

    def __init__(self, content: bytes = b"%PDF 1") -> None:
        self.content = content
        self.etag = '"v1"'
        self.asked: list[tuple[str, str | None, str | None]] = []

    def __call__(self, request: Request) -> SimulatedResponse:
        known = request.headers.get("If-None-Match")
        self.asked.append((request.url, known, request.headers.get("If-Modified-Since")))
        if request.url.endswith("missing.pdf"):
            return SimulatedResponse(404)
        if request.url.endswith("moved.pdf"):
            return SimulatedResponse(302, headers={"Location": "/a.pdf"})
        if request.url.endswith("empty.pdf"):
            return SimulatedResponse(200, b"", PDF)
        if known == self.etag:
            return SimulatedResponse(304)
        return SimulatedResponse(200, self.content, {**PDF, "ETag": self.etag})

    @property
    def web(self) -> SimulatedWeb:
        web = SimulatedWeb()
        web.add_host("a.example")
        web.add_host("files.example", handler=self)
        return web


def crawled(folder: Path, server: Server, spider: Any = Reports, **settings: object) -> Simulation:
    given = {"ITEM_PIPELINES": {FilesPipeline: 1}, "FILES_STORE": str(folder), "RETRY_ENABLED": False, **settings}
    return simulate(spider, server.web, settings=given, errors="collect")


def test_an_items_files_are_fetched_and_kept_by_their_content(tmp_path: Path) -> None:
    [item] = crawled(tmp_path, Server()).items
    name = hashlib.sha1(b"%PDF 1").hexdigest()
    assert item["files"] == [
        {
            "url": "http://files.example/a.pdf",
            "path": f"full/{name}.pdf",
            "checksum": hashlib.md5(b"%PDF 1").hexdigest(),
            "status": "downloaded",
        }
    ]
    assert (tmp_path / "full" / f"{name}.pdf").read_bytes() == b"%PDF 1"


def test_scrapys_name_of_the_pipeline_means_ours(tmp_path: Path) -> None:
    settings = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}}
    [item] = crawled(tmp_path, Server(), **settings).items
    assert len(item["files"]) == 1


def test_items_of_any_kind_are_filled(tmp_path: Path) -> None:
    class Typed(Reports):
        def parse(self, response: Any) -> Any:
            yield Report(["http://files.example/a.pdf"])

    [item] = crawled(tmp_path, Server(), Typed).items
    assert item.files[0]["status"] == "downloaded"


@pytest.mark.parametrize("given", ["http://files.example/a.pdf", b"http://files.example/a.pdf", 7])
def test_what_is_no_list_of_urls_is_told_in_a_line_and_counted_and_the_item_goes_on(
    tmp_path: Path, given: object, caplog: pytest.LogCaptureFixture
) -> None:
    class Text(Reports):
        def parse(self, response: Any) -> Any:
            yield {"file_urls": given}

    result = crawled(tmp_path, Server(), Text)
    assert result.items == [{"file_urls": given, "files": []}]
    [told] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert (told.exc_info, told.getMessage()) == (
        None,
        "FilesPipeline: spider 'reports': no file: the field file_urls of an item must be a list of URLs,"
        f" not {given!r}",
    )
    assert (result.stats["file_error_count"], result.stats.get("item_error_count")) == (1, None)


def test_an_item_with_very_many_files_has_a_bounded_number_under_way(tmp_path: Path) -> None:
    class VeryMany(Reports):
        urls = [f"http://files.example/{number}.pdf" for number in range(2 * MAX_AT_ONCE + 1)]

    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_host("files.example", body="%PDF 1", latency=1.0)
    free = {"DOWNLOAD_DELAY": 0.0, "DOWNLOAD_DELAY_PER_SLOT": 0.0, "ROBOTSTXT_OBEY": False}
    settings = {**free, "CONCURRENT_REQUESTS": 1000, "CONCURRENT_REQUESTS_PER_DOMAIN": 1000}
    pipeline = {"ITEM_PIPELINES": {FilesPipeline: 1}, "FILES_STORE": str(tmp_path)}
    sim = simulate(VeryMany, web, settings={**settings, **pipeline})
    at_once = Counter(send.time for send in sim.sends if send.host == "files.example")
    assert list(at_once.values()) == [MAX_AT_ONCE, MAX_AT_ONCE, 1]
    assert len(sim.items[0]["files"]) == 2 * MAX_AT_ONCE + 1


def test_the_throttle_holds_for_files_and_robots_txt_too(tmp_path: Path) -> None:
    class Many(Reports):
        urls = [f"http://files.example/{number}.pdf" for number in range(4)]

    server = Server()
    result = simulate(
        Many,
        server.web,
        settings={"ITEM_PIPELINES": {FilesPipeline: 1}, "FILES_STORE": str(tmp_path), "DOWNLOAD_DELAY": 2.0},
    )
    times = [send.time for send in result.sends if send.host == "files.example"]
    assert len(times) == 5  # robots.txt is one
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(times))
    assert len(result.items[0]["files"]) == 4
    assert len({found["path"] for found in result.items[0]["files"]}) == 1  # the same content is kept once


def test_a_url_is_fetched_once_whichever_items_name_it(tmp_path: Path) -> None:
    class Twice(Reports):
        start_urls = ["http://a.example/", "http://a.example/2"]
        urls = ["http://files.example/a.pdf"] * 2

    server = Server()
    result = crawled(tmp_path, server, Twice)
    assert [len(item["files"]) for item in result.items] == [2, 2]
    assert len(server.asked) == 1


def test_a_file_is_not_asked_for_before_it_expires_and_then_only_if_it_changed(tmp_path: Path) -> None:
    server = Server()
    crawled(tmp_path, server)
    [item] = crawled(tmp_path, server).items
    assert item["files"][0]["status"] == "uptodate"
    assert len(server.asked) == 1
    [item] = crawled(tmp_path, server, FILES_EXPIRES=0).items
    assert item["files"][0]["status"] == "uptodate"
    assert server.asked[1][1:] == ('"v1"', "Wed, 01 Jan 2025 00:00:00 GMT")
    server.content, server.etag = b"%PDF 2", '"v2"'
    [item] = crawled(tmp_path, server, FILES_EXPIRES=0).items
    assert item["files"][0]["status"] == "downloaded"
    assert len(list((tmp_path / "full").iterdir())) == 2


def test_a_file_that_a_power_cut_has_left_empty_is_fetched_again(tmp_path: Path) -> None:
    server = Server()
    crawled(tmp_path, server)
    [file] = (tmp_path / "full").iterdir()
    file.write_bytes(b"")
    [item] = crawled(tmp_path, server).items
    assert item["files"][0]["status"] == "downloaded"
    assert file.read_bytes() == server.content


def test_a_file_that_was_deleted_is_fetched_again(tmp_path: Path) -> None:
    server = Server()
    [item] = crawled(tmp_path, server).items
    (tmp_path / item["files"][0]["path"]).unlink()
    [item] = crawled(tmp_path, server).items
    assert item["files"][0]["status"] == "downloaded"
    assert server.asked[1][1] is None


def test_what_can_not_be_had_is_left_out_counted_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Reports):
        urls = [
            "http://files.example/missing.pdf",
            "http://files.example/empty.pdf",
            "http://files.example/moved.pdf",
            "http://nowhere.example/",
            "ftp://files.example/",
            "http://files.example/a.pdf",
        ]

    result = crawled(tmp_path, Server(), Failing)
    assert [found["url"] for found in result.items[0]["files"]] == ["http://files.example/a.pdf"]
    assert result.stats["file_error_count"] == 5
    assert result.stats["file_count"] == result.stats["file_status_count/downloaded"] == 1
    assert "http://files.example/missing.pdf: no file: status 404" in caplog.text


def test_redirects_are_followed_only_where_they_may(tmp_path: Path) -> None:
    class Moved(Reports):
        urls = ["http://files.example/moved.pdf"]

    assert crawled(tmp_path, Server(), Moved).items[0]["files"] == []
    [item] = crawled(tmp_path, Server(), Moved, MEDIA_ALLOW_REDIRECTS=True).items
    assert item["files"][0]["url"] == "http://files.example/moved.pdf"


def test_a_body_that_is_too_large_is_no_file(tmp_path: Path) -> None:
    [item] = crawled(tmp_path, Server(b"x" * 2000), DOWNLOAD_MAXSIZE=1000).items
    assert item["files"] == []


class Named(FilesPipeline):
    """What Scrapy's users override."""

    def get_media_requests(self, item: Any, info: MediaInfo) -> Any:
        for url in item["file_urls"]:
            yield Request(url, meta={"title": "../" if "evil" in url else "report"})

    def file_path(self, request: Request, response: Any = None, info: Any = None, *, item: Any = None) -> str:
        return f"{request.meta['title']}/{len(item['file_urls'])}.pdf"

    def item_completed(self, results: Any, item: Any, info: MediaInfo) -> Any:
        paths = [found["path"] for is_there, found in results if is_there]
        if not paths:
            raise trawl.exceptions.DropItem("no files")
        return {"paths": paths, "errors": [str(found) for is_there, found in results if not is_there]}


def test_methods_can_be_overridden_as_in_scrapy(tmp_path: Path) -> None:
    class Two(Reports):
        urls = ["http://files.example/a.pdf", "http://files.example/evil.pdf"]

    [item] = crawled(tmp_path / "store", Server(), Two, ITEM_PIPELINES={Named: 1}).items
    assert item["paths"] == ["report/2.pdf"]
    assert item["errors"] == ["'..//2.pdf' is not a path below the store"]
    assert not (tmp_path / "2.pdf").exists()


def test_an_item_may_be_dropped_for_want_of_its_files(tmp_path: Path) -> None:
    class Missing(Reports):
        urls = ["http://files.example/missing.pdf"]

    result = crawled(tmp_path, Server(), Missing, ITEM_PIPELINES={Named: 1})
    assert result.items == []
    assert result.stats["item_dropped_count"] == 1


def test_without_a_store_the_pipeline_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [item] = crawled(tmp_path, Server(), FILES_STORE="").items
    assert "files" not in item
    assert "FilesPipeline is left out: FILES_STORE names no store" in caplog.text


class Quotes(trawl.Item):
    file_urls = trawl.Field()


@dataclasses.dataclass
class Plain:
    file_urls: list[str]


@attrs.define
class Defined:
    file_urls: list[str]


@attrs.frozen
class Frozen:
    file_urls: list[str]
    files: list[dict[str, str]] = attrs.field(factory=list)


class Packed(msgspec.Struct):
    file_urls: list[str]


class TwoOfAKind(trawl.Spider):
    """Two items of one class, with a file each."""

    name = "two"
    start_urls = ["http://a.example/"]
    kind: type[Any] = Quotes

    def parse(self, response: Any) -> Any:
        for _ in range(2):
            yield self.kind(file_urls=["http://files.example/a.pdf"])


@pytest.mark.parametrize("kind", [Quotes, Plain, Defined, Packed])
def test_an_item_without_the_field_goes_on_without_its_files_and_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: type[Any]
) -> None:
    sim = crawled(tmp_path, Server(), type("Own", (TwoOfAKind,), {"kind": kind}))
    assert [type(item) for item in sim.items] == [kind, kind]
    assert not any(hasattr(item, "files") for item in sim.items)
    assert len(list((tmp_path / "full").iterdir())) == 1
    assert caplog.text.count(f"items of type {kind.__name__} have no field files") == 1


def test_an_item_that_can_not_be_changed_is_an_error_that_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert crawled(tmp_path, Server(), type("Own", (TwoOfAKind,), {"kind": Frozen})).stats["item_error_count"] == 2
    assert "an item of type Frozen takes no files" in caplog.text


def test_what_is_no_url_is_left_out_and_the_item_has_its_other_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Careless(Reports):
        urls: Any = [None, "", "no url", b"http://files.example/b.pdf", "http://files.example/a.pdf"]

    result = crawled(tmp_path, Server(), Careless)
    [item] = result.items
    assert [file["url"] for file in item["files"]] == ["http://files.example/a.pdf"]
    assert result.stats["file_error_count"] == 4
    told = [record.getMessage() for record in caplog.records if record.name == "trawl.pipelines"]
    assert [line.partition(": no file: ")[0] for line in told] == [
        f"FilesPipeline: {url!r}" for url in Careless.urls[:4]
    ]


def test_a_store_that_is_no_folder_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for store in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SettingsError, match=r"^FILES_STORE: '.*file' is not a folder$"):
            crawled(store, Server())
