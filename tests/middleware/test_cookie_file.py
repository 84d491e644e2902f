"""Cookies from one crawl to the next."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Any

import pytest

import trawl
from trawl.errors import UsageError
from trawl.http import Request, Response
from trawl.testing import SimulatedResponse, SimulatedWeb, simulate

HOST = "http://a.example"


class Visits(trawl.Spider):
    """A page without a session, and one in each of two jars."""

    name = "visits"

    async def start(self) -> Any:
        for jar in (None, "anna", 2):
            yield Request(f"{HOST}/{jar}", meta={"cookiejar": jar})

    def parse(self, response: Response, **kwargs: Any) -> Any:
        return {"url": response.url, "had": response.text}


def web_of() -> SimulatedWeb:
    def answer(request: Any) -> SimulatedResponse:
        name = request.url.rpartition("/")[2]
        fields = {"Set-Cookie": f"id={name}; Max-Age=1000"}
        return SimulatedResponse(body=request.headers.get("Cookie") or "", headers=fields)

    web = SimulatedWeb()
    web.add_host("a.example", handler=answer)
    return web


def had(path: Path) -> dict[str, str]:
    sim = simulate(Visits, web_of(), {"COOKIES_FILE": str(path)}, errors="collect")
    return {item["url"].rpartition("/")[2]: item["had"] for item in sim.items}


def test_every_jar_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "cookies.json"
    assert had(path) == {"None": "", "anna": "", "2": ""}
    assert had(path) == {"None": "id=None", "anna": "id=anna", "2": "id=2"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["cookies.json"]


def test_a_cookies_txt_has_the_jar_without_a_name_and_says_what_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cookies.txt"
    had(path)
    assert "['anna', 2] are not saved" in caplog.text
    (line,) = path.read_text().splitlines()[2:]
    *fields, expires, name, value = line.split("\t")
    assert (*fields, name, value) == ("a.example", "FALSE", "/", "FALSE", "id", "None")
    assert 1735690600 <= int(expires) < 1735690700  # a thousand seconds after it was set
    assert had(path) == {"None": "id=None", "anna": "", "2": ""}


@pytest.mark.parametrize("name", ["cookies.json", "cookies.txt"])
def test_a_file_that_is_none_of_cookies_is_refused_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("something else")
    with pytest.raises(UsageError, match=f"COOKIES_FILE: .*{name}' can't be read"):
        had(path)
    assert path.read_text() == "something else"


def test_a_folder_that_is_not_there_is_told_before_the_crawl(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="COOKIES_FILE: the folder"):
        had(tmp_path / "nowhere" / "cookies.json")


def test_a_file_that_cant_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    had(tmp_path / "cookies.json")
    assert "could not be written" in caplog.text
    assert not (tmp_path / "cookies.json").exists()


def test_cookies_are_logged_if_wanted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trawl.middleware")

    class Twice(Visits):
        async def start(self) -> Any:
            yield Request(f"{HOST}/1", cookies={"mine": "0"})

    simulate(Twice, web_of(), {"COOKIES_DEBUG": True})
    told = [record.getMessage() for record in caplog.records if "cookie" in record.getMessage()]
    assert told == [
        "<GET http://a.example/1>: sent the cookies 'mine=0'",
        "<GET http://a.example/1>: received the cookie 'id=1; Max-Age=1000'",
    ]
