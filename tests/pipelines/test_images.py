"""Images are checked, converted, kept and made small."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from PIL import EpsImagePlugin, Image
from trio.testing import MockClock

import trawl
from trawl.errors import SettingsError
from trawl.http import Request, Response
from trawl.observe import Stats
from trawl.pipelines import ImagesPipeline
from trawl.testing import SimulatedWeb, Simulation, simulate


def picture(kind: str, size: tuple[int, int] = (40, 20), mode: str = "RGB", colour: Any = (255, 0, 0)) -> bytes:
    content = io.BytesIO()
    Image.new(mode, size, colour).save(content, kind)
    return content.getvalue()


PAGES = {
    "http://a.example/photo.jpg": picture("JPEG"),
    "http://a.example/small.jpg": picture("JPEG", (4, 4)),
    "http://a.example/clear.png": picture("PNG", mode="RGBA", colour=(0, 0, 0, 0)),
    "http://a.example/grey.gif": picture("GIF", mode="L", colour=0),
    "http://a.example/text.png": b"not an image",
    "http://a.example/half.jpg": picture("JPEG", (400, 400))[:600],
}


class Photos(trawl.Spider):
    name = "photos"
    start_urls = ["http://a.example/"]
    urls = list(PAGES)

    def parse(self, response: Any) -> Any:
        yield {"image_urls": list(self.urls)}


def crawled(folder: Path, **settings: object) -> Simulation:
    web = SimulatedWeb()
    web.add_host("a.example")
    for url, body in PAGES.items():
        web.add_page(url, body=body, headers={"Content-Type": "image/png"})
    given = {"ITEM_PIPELINES": {ImagesPipeline: 1}, "IMAGES_STORE": str(folder), **settings}
    return simulate(Photos, web, settings=given)


def test_images_are_kept_as_jpeg_and_what_is_one_stays_as_it_came(tmp_path: Path) -> None:
    [item] = crawled(tmp_path).items
    found = {one["url"].rpartition("/")[2]: tmp_path / one["path"] for one in item["images"]}
    assert list(found) == ["photo.jpg", "small.jpg", "clear.png", "grey.gif"]
    assert found["photo.jpg"].read_bytes() == PAGES["http://a.example/photo.jpg"]
    for path in found.values():
        with Image.open(path) as image:
            assert (image.format, image.mode) == ("JPEG", "RGB")
    with Image.open(found["clear.png"]) as image:
        assert image.getpixel((0, 0)) == (255, 255, 255)


def test_thumbnails_fit_their_sizes(tmp_path: Path) -> None:
    [item] = crawled(tmp_path, IMAGES_THUMBS={"tiny": [10, 10], "large": [1000, 1000]}).items
    name = item["images"][0]["path"].rpartition("/")[2]
    sizes = []
    for thumb in ("tiny", "large"):
        with Image.open(tmp_path / "thumbs" / thumb / name) as image:
            sizes.append(image.size)
    assert sizes == [(10, 5), (40, 20)]


def test_images_that_are_too_small_are_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = crawled(tmp_path, IMAGES_MIN_WIDTH=10, IMAGES_MIN_HEIGHT=10)
    assert len(result.items[0]["images"]) == 3
    assert "small.jpg: no file: the image is too small: 4x4, not 10x10" in caplog.text
    assert "text.png: no file: it is not an image of a known format" in caplog.text


@pytest.mark.parametrize(
    ("thumbs", "said"),
    [
        ({"../out": [5, 5]}, "IMAGES_THUMBS: '../out' is not a name for a folder"),
        ({"flat": [0, 5]}, "IMAGES_THUMBS"),
        ({"": [5, 5]}, "the key '' of IMAGES_THUMBS"),
    ],
)
def test_thumbnails_that_can_not_be_are_refused(tmp_path: Path, thumbs: dict[str, list[int]], said: str) -> None:
    with pytest.raises(SettingsError, match=f"^{said}"):
        crawled(tmp_path, IMAGES_THUMBS=thumbs)
    assert not list(tmp_path.iterdir())


def one_image(folder: Path, body: bytes, **settings: object) -> Simulation:
    web = SimulatedWeb()
    web.add_host("a.example")
    web.add_page("http://a.example/one.png", body=body, headers={"Content-Type": "image/png"})
    given = {"ITEM_PIPELINES": {ImagesPipeline: 1}, "IMAGES_STORE": str(folder), **settings}
    return simulate(type("One", (Photos,), {"urls": ["http://a.example/one.png"]}), web, settings=given)


def test_an_image_of_too_many_pixels_is_not_decoded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bomb = picture("PNG", (8_000, 7_000), "1", 0)
    assert len(bomb) < 10_000
    result = one_image(tmp_path, bomb)
    assert result.items[0]["images"] == []
    assert result.stats["file_error_count"] == 1
    assert "too large: 8000x7000 are more pixels than 50000000 (IMAGES_MAX_PIXELS)" in caplog.text


@pytest.mark.parametrize(("most", "kept"), [(800, 1), (799, 0), (0, 1)])
def test_an_image_may_have_as_many_pixels_as_the_setting_says(tmp_path: Path, most: int, kept: int) -> None:
    result = one_image(tmp_path, picture("PNG"), IMAGES_MAX_PIXELS=most)
    assert len(result.items[0]["images"]) == kept


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def test_ghostscript_is_not_run_for_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / "gs"
    script.write_text(f"#!/bin/sh\n/bin/date > {tmp_path}/was_run\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    result = one_image(tmp_path / "store", EPS)
    assert result.items[0]["images"] == []
    assert not (tmp_path / "was_run").exists()
    assert "not an image of a known format (IMAGES_FORMATS)" in caplog.text


def test_formats_are_added_and_taken_away(tmp_path: Path) -> None:
    web = picture("GIF", mode="L", colour=0)
    assert len(one_image(tmp_path / "a", web).items[0]["images"]) == 1
    assert len(one_image(tmp_path / "b", web, IMAGES_FORMATS=["JPEG"]).items[0]["images"]) == 0
    assert len(one_image(tmp_path / "c", picture("ICO"), IMAGES_FORMATS=["ico"]).items[0]["images"]) == 1
    with pytest.raises(SettingsError, match="IMAGES_FORMATS: Pillow can't read 'JPG'"):
        one_image(tmp_path / "d", web, IMAGES_FORMATS=["JPG"])


class Counting:
    """Blocking work that takes a second, and how much of it was decoding at once."""

    def __init__(self) -> None:
        self.decoding = self.most = 0

    async def run(self, function: Any, *args: Any) -> Any:
        is_decoding = isinstance(getattr(function, "__self__", None), ImagesPipeline)
        self.decoding += is_decoding
        self.most = max(self.most, self.decoding)
        await trio.sleep(1)
        self.decoding -= is_decoding
        return function(*args)

    run_abandonable = run


async def test_few_images_are_decoded_at_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    blocking = Counting()
    names = ("STORE", "EXPIRES", "URLS_FIELD", "RESULT_FIELD", "THUMBS", "MIN_WIDTH", "MIN_HEIGHT")
    settings = dict(zip(names, (str(tmp_path), 90.0, "image_urls", "images", {}, 0, 0), strict=True))
    settings |= {"MAX_PIXELS": 1_000, "FORMATS": ["PNG"]}

    async def fetch(request: Request) -> Response:
        await trio.sleep(1)
        return Response(request.url, 200, body=picture("PNG", colour=(len(request.url), 0, 0)), request=request)

    crawl: Any = SimpleNamespace(
        settings={"MEDIA_ALLOW_REDIRECTS": False, "MEDIA_LIKE_SCRAPY": False, "MEDIA_STORE_OPTIONS": {}}
        | {f"IMAGES_{name}": value for name, value in settings.items()},
        spider=SimpleNamespace(name="x"),
        stats=Stats(),
        blocking=blocking,
        now_utc=lambda: datetime(2025, 1, 1, tzinfo=UTC),
        fetch=fetch,
    )
    pipeline = ImagesPipeline(crawl)
    item = await pipeline.process_item({"image_urls": [f"http://a.example/{'x' * n}.png" for n in range(20)]})
    assert len(item["images"]) == 20
    assert blocking.most == 2
