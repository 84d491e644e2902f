"""Images are checked, converted, kept and made small."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import trawl
from trawl.errors import SettingsError
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
    assert "text.png: no file: it is no image of a known kind" in caplog.text


@pytest.mark.parametrize(
    ("thumbs", "said"),
    [
        ({"../out": [5, 5]}, "IMAGES_THUMBS: '../out' is no name of a folder"),
        ({"flat": [0, 5]}, "IMAGES_THUMBS"),
        ({"": [5, 5]}, "the key '' of IMAGES_THUMBS"),
    ],
)
def test_thumbnails_that_can_not_be_are_refused(tmp_path: Path, thumbs: dict[str, list[int]], said: str) -> None:
    with pytest.raises(SettingsError, match=f"^{said}"):
        crawled(tmp_path, IMAGES_THUMBS=thumbs)
    assert not list(tmp_path.iterdir())
