"""The pipelines of files and images as Scrapy has them: names, checksums, and what classes override."""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import trawl
from trawl.errors import SettingsError
from trawl.http import Request
from trawl.pipelines import FileError, FilesPipeline, ImagesPipeline, MediaPipeline
from trawl.testing import SimulatedWeb, Simulation, simulate

HOST = "http://a.example"
PDF = b"%PDF 1"


def picture(kind: str, mode: str = "RGB", colour: Any = (255, 0, 0), *, orientation: int = 1) -> bytes:
    content = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new(mode, (40, 20), colour).save(content, kind, exif=exif)
    return content.getvalue()


PAGES = {
    f"{HOST}/a.pdf": PDF,
    f"{HOST}/b.PDF?x=1": PDF,
    f"{HOST}/download?name=c.zip": b"PK",
    f"{HOST}/wild.xyzzy": b"x",
    f"{HOST}/turned.jpg": picture("JPEG", orientation=6),
    f"{HOST}/clear.png": picture("PNG", "RGBA", (0, 0, 255, 0)),
    f"{HOST}/palette.gif": picture("GIF", "P", 3),
}


def crawled(folder: Path, pipeline: Any, *urls: str, **settings: object) -> Simulation:
    web = SimulatedWeb()
    for url, body in PAGES.items():
        web.add_page(url, body=body, headers={"Content-Type": "application/octet-stream"})
    web.add_page(f"{HOST}/none.pdf", status=404)
    web.add_host("a.example")

    class Own(trawl.Spider):
        name = "own"
        start_urls = [f"{HOST}/"]

        def parse(self, response: Any) -> Any:
            yield {"file_urls": list(urls), "image_urls": list(urls)}

    given = {"ITEM_PIPELINES": {pipeline: 1}, "FILES_STORE": str(folder), "IMAGES_STORE": str(folder)}
    fast = {"ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0, "DOWNLOAD_DELAY_PER_SLOT": 0, "RETRY_ENABLED": False}
    return simulate(Own, web, {**fast, **given, "MEDIA_LIKE_SCRAPY": True, **settings})


def sha1(url: str) -> str:
    return hashlib.sha1(url.encode()).hexdigest()


@pytest.mark.parametrize(
    ("url", "ending"),
    [
        (f"{HOST}/a.pdf", ".pdf"),
        (f"{HOST}/b.PDF?x=1", "" if sys.version_info < (3, 13) else ".pdf"),  # mimetypes takes the query off since
        (f"{HOST}/download?name=c.zip", ".zip"),
        (f"{HOST}/wild.xyzzy", ""),
    ],
)
def test_files_are_named_by_their_url_with_an_ending_that_is_known(tmp_path: Path, url: str, ending: str) -> None:
    [item] = crawled(tmp_path, FilesPipeline, url).items
    checksum = hashlib.md5(PAGES[url]).hexdigest()
    path = f"full/{sha1(url)}{ending}"
    assert item["files"] == [{"url": url, "path": path, "checksum": checksum, "status": "downloaded"}]
    assert (tmp_path / path).read_bytes() == PAGES[url]


def test_a_file_that_is_there_and_new_enough_is_up_to_date(tmp_path: Path) -> None:
    url = f"{HOST}/a.pdf"
    place = tmp_path / "full" / f"{sha1(url)}.pdf"
    place.parent.mkdir()
    place.write_bytes(b"from before")
    [item] = crawled(tmp_path, FilesPipeline, url).items
    [found] = item["files"]
    assert (found["status"], found["checksum"]) == ("uptodate", hashlib.md5(b"from before").hexdigest())
    os.utime(place, (0, 0))
    [item] = crawled(tmp_path, FilesPipeline, url).items
    assert (item["files"][0]["status"], place.read_bytes()) == ("downloaded", PDF)


def test_images_are_encoded_anew_and_the_checksum_is_theirs(tmp_path: Path) -> None:
    urls = [url for url in PAGES if url.endswith(("jpg", "png", "gif"))]
    [item] = crawled(tmp_path, ImagesPipeline, *urls, IMAGES_THUMBS={"small": [10, 10]}).items
    for url, found in zip(urls, item["images"], strict=True):
        content = (tmp_path / f"full/{sha1(url)}.jpg").read_bytes()
        assert found["path"] == f"full/{sha1(url)}.jpg"
        assert found["checksum"] == hashlib.md5(content).hexdigest()
        assert content != PAGES[url]
        with Image.open(tmp_path / f"thumbs/small/{sha1(url)}.jpg") as small:
            assert max(small.size) == 10
    with Image.open(tmp_path / f"full/{sha1(urls[0])}.jpg") as turned:
        assert turned.size == (20, 40)
    with Image.open(tmp_path / f"full/{sha1(urls[1])}.jpg") as clear:
        assert clear.getpixel((0, 0)) == pytest.approx((0, 0, 255), abs=3)  # Scrapy does not put it on white


# What classes written for Scrapy override, whether a spider is moved or not.


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_class_may_pass_on_the_arguments_of_its_constructor(tmp_path: Path, is_moved: bool) -> None:
    class Anything(FilesPipeline):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.suffix = "x"

    class Explicit(FilesPipeline):
        def __init__(self, store_uri: Any, download_func: Any = None, settings: Any = None, *, crawler: Any) -> None:
            super().__init__(store_uri, download_func, settings, crawler=crawler)
            assert store_uri == crawler.settings["FILES_STORE"]

    class Elsewhere(FilesPipeline):
        def __init__(self, *args: Any, crawler: Any) -> None:
            super().__init__(tmp_path / "elsewhere", crawler=crawler)

    class Older(FilesPipeline):
        def __init__(self, store_uri: Any, download_func: Any = None, settings: Any = None) -> None:
            super().__init__(store_uri, settings=settings, download_func=download_func)

    class Native(FilesPipeline):
        def __init__(self, crawl: Any) -> None:
            super().__init__(crawl)

    class Made(FilesPipeline):
        @classmethod
        def from_crawler(cls, crawler: Any) -> Any:
            made = super().from_crawler(crawler)
            made.files_urls_field = "image_urls"
            return made

    for pipeline in (Anything, Explicit, Elsewhere, Older, Native, Made):
        [item] = crawled(tmp_path, pipeline, f"{HOST}/a.pdf", MEDIA_LIKE_SCRAPY=is_moved).items
        assert [found["checksum"] for found in item["files"]] == [hashlib.md5(PDF).hexdigest()]
    assert (tmp_path / "elsewhere" / "full").is_dir()


def test_fields_come_from_settings_of_the_class_and_from_its_attributes(tmp_path: Path) -> None:
    class Mine(FilesPipeline):
        DEFAULT_FILES_URLS_FIELD = "image_urls"
        FILES_RESULT_FIELD = "results"
        EXPIRES = 3

        def item_completed(self, results: Any, item: Any, info: Any) -> Any:
            assert self.expires == 3  # days, as in Scrapy
            return super().item_completed(results, item, info)

    [item] = crawled(tmp_path, Mine, f"{HOST}/a.pdf").items
    assert [found["url"] for found in item["results"]] == [f"{HOST}/a.pdf"]
    [item] = crawled(tmp_path, Mine, f"{HOST}/a.pdf", FILES_RESULT_FIELD="set").items
    assert "set" in item
    web = {"MINE_FILES_RESULT_FIELD": "own"}

    class Declares(trawl.Spider):
        name = "declares"
        start_urls = [f"{HOST}/"]
        own_settings = web

        def parse(self, response: Any) -> Any:
            yield {"image_urls": []}

    site = SimulatedWeb()
    site.add_host("a.example")
    sim = simulate(Declares, site, {"ITEM_PIPELINES": {Mine: 1}, "FILES_STORE": str(tmp_path)})
    assert sim.items == [{"image_urls": [], "own": []}]


def test_file_downloaded_may_write_the_file_itself(tmp_path: Path) -> None:
    class Mine(FilesPipeline):
        def file_downloaded(self, response: Any, request: Request, info: Any, *, item: Any = None) -> Any:
            path = self.file_path(request, response=response, info=info, item=item)
            self.store.persist_file(path, io.BytesIO(response.body + b"!"), info)
            return "a checksum"

    class Calls(FilesPipeline):
        async def file_downloaded(self, response: Any, request: Request, info: Any, *, item: Any = None) -> Any:
            return f"<{await super().file_downloaded(response, request, info, item=item)}>"

    url = f"{HOST}/a.pdf"
    [item] = crawled(tmp_path, Mine, url).items
    assert item["files"][0]["checksum"] == "a checksum"
    assert (tmp_path / item["files"][0]["path"]).read_bytes() == PDF + b"!"
    [item] = crawled(tmp_path / "other", Calls, url, MEDIA_LIKE_SCRAPY=False).items
    assert item["files"][0]["checksum"] == f"<{hashlib.md5(PDF).hexdigest()}>"


@pytest.mark.parametrize("is_moved", [True, False])
def test_images_may_be_made_and_converted_otherwise(tmp_path: Path, is_moved: bool) -> None:
    class Grey(ImagesPipeline):
        def convert_image(self, image: Any, size: Any = None, *, response_body: io.BytesIO) -> Any:
            grey, _ = super().convert_image(image, size, response_body=response_body)
            content = io.BytesIO()
            grey.convert("L").save(content, "PNG")
            return grey, content

        def get_images(self, response: Any, request: Any, info: Any, *, item: Any = None) -> Any:
            for path, image, content in super().get_images(response, request, info, item=item):
                yield path.replace(".jpg", ".png"), image, content

    class Noted(ImagesPipeline):
        async def image_downloaded(self, response: Any, request: Any, info: Any, *, item: Any = None) -> Any:
            return "noted " + await super().image_downloaded(response, request, info, item=item)

    url = f"{HOST}/turned.jpg"
    [item] = crawled(tmp_path, Grey, url, MEDIA_LIKE_SCRAPY=is_moved).items
    place = tmp_path / item["images"][0]["path"].replace(".jpg", ".png")
    with Image.open(place) as grey:
        assert (grey.mode, grey.format) == ("L", "PNG")
    assert item["images"][0]["checksum"] == hashlib.md5(place.read_bytes()).hexdigest()
    [item] = crawled(tmp_path / "noted", Noted, url, MEDIA_LIKE_SCRAPY=is_moved).items
    assert item["images"][0]["checksum"].startswith("noted ")


def test_an_opened_jpeg_is_kept_and_a_transparent_image_gets_a_white_ground(tmp_path: Path) -> None:
    class Plain(ImagesPipeline):
        def get_images(self, response: Any, request: Any, info: Any, *, item: Any = None) -> Any:
            opened = Image.open(io.BytesIO(response.body))
            image, content = self.convert_image(opened, response_body=io.BytesIO(response.body))
            yield self.file_path(request, response=response, info=info, item=item), image, content
            seen.append((response.body, content.getvalue(), image.getpixel((0, 0))))

    seen: list[tuple[bytes, bytes, tuple[int, ...]]] = []
    crawled(tmp_path, Plain, f"{HOST}/turned.jpg")
    crawled(tmp_path, Plain, f"{HOST}/clear.png")
    (jpeg, kept, _), (_, _, color) = seen
    assert jpeg == kept
    assert color == (255, 255, 255)


def test_a_class_may_answer_in_place_of_the_wire_and_hear_of_failures(tmp_path: Path) -> None:
    heard: list[str] = []

    class Answers(FilesPipeline):
        def media_to_download(self, request: Any, info: Any, *, item: Any = None) -> Any:
            if request.url.endswith("a.pdf"):
                return {"url": request.url, "path": "there", "checksum": "", "status": "uptodate"}
            return super().media_to_download(request, info, item=item)

        def media_failed(self, failure: Any, request: Any, info: MediaPipeline.SpiderInfo) -> Any:
            heard.append(f"{info.spider.name}: {failure.getErrorMessage()}")
            raise FileError("told")

        def item_completed(self, results: Any, item: Any, info: Any) -> Any:
            item["said"] = [value["path"] if is_there else str(value) for is_there, value in results]
            return item

    class Downloaded(FilesPipeline):
        async def media_downloaded(self, response: Any, request: Any, info: Any, *, item: Any = None) -> Any:
            told = await super().media_downloaded(response, request, info, item=item)
            return {**told, "status": "mine"}

    sim = crawled(tmp_path, Answers, f"{HOST}/a.pdf", f"{HOST}/none.pdf")
    assert [item["said"] for item in sim.items] == [["there", "told"]]
    assert heard == ["own: status 404"]
    sim = crawled(tmp_path / "other", Downloaded, f"{HOST}/a.pdf")
    assert sim.items[0]["files"][0]["status"] == "mine"
    assert sim.stats["file_status_count/mine"] == 1


class WithoutStatus(FilesPipeline):
    async def media_to_download(self, request: Request, info: Any, *, item: Any = None) -> dict[str, str]:
        return {"url": request.url, "path": "there", "checksum": ""}


class OlderStatistics(FilesPipeline):
    def inc_stats(self, spider: Any, status: str) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    ("kind", "why"), [(WithoutStatus, "has no status"), (OlderStatistics, r"inc_stats\(\) missing .*'status'")]
)
def test_overrides_that_do_not_fit_cost_the_file_and_not_the_item(
    kind: type[FilesPipeline], why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sim = crawled(tmp_path, kind, f"{HOST}/a.pdf")
    assert [item["files"] for item in sim.items] == [[]]
    assert sim.stats["file_error_count"] == 1
    assert re.search(f"{HOST}/a.pdf: no file: .*{why}", caplog.text)


def test_a_class_that_makes_its_own_store_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    class Mine(FilesPipeline):
        def _get_store(self, uri: str) -> None:
            raise AssertionError

    class Schemes(FilesPipeline):
        STORE_SCHEMES = {"gs": object}

    for kind, name in ((Mine, "_get_store"), (Schemes, "STORE_SCHEMES")):
        with pytest.raises(SettingsError, match=rf"{kind.__name__}\.{name} has no effect: FILES_STORE takes a folder"):
            crawled(tmp_path, kind)
    with pytest.raises(AttributeError, match="STORE_SCHEMES, which is Scrapy's: FILES_STORE takes a folder"):
        FilesPipeline.STORE_SCHEMES  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(("is_moved", "count"), [(True, 1), (False, 2)])
def test_a_file_outside_allowed_domains_is_not_downloaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_moved: bool, count: int
) -> None:
    class Own(trawl.Spider):
        name = "own"
        start_urls = [f"{HOST}/"]
        allowed_domains = ["a.example"]

        def parse(self, response: Any) -> Any:
            yield {"file_urls": [f"{HOST}/a.pdf", "http://b.example/b.pdf"]}

    web = SimulatedWeb()
    for host in ("a.example", "b.example"):
        web.add_host(host, body=PDF)
    values = {"ITEM_PIPELINES": {FilesPipeline: 1}, "FILES_STORE": str(tmp_path), "MEDIA_LIKE_SCRAPY": is_moved}
    [item] = simulate(Own, web, values).items
    assert len(item["files"]) == count
    assert ("its host is not in allowed_domains: add it there" in caplog.text) is is_moved
