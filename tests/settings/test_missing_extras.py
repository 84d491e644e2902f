"""An extra that a setting needs is asked for before the first request, with the command that installs it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import trawl
from trawl.cli.checks import check_made
from trawl.exceptions import UsageError
from trawl.http import Outcome
from trawl.transport import TransportRouter


class One(trawl.Spider):
    name = "one"
    start_urls = ("http://a.example/",)


MISSING = pytest.mark.parametrize(
    ("extra", "module", "settings"),
    [
        ("parquet", "pyarrow", {"FEEDS": {"out.parquet": {}}}),
        ("parquet", "pyarrow", {"FEEDS": {"out-%(batch)d.parquet": {"batch_item_count": 10}}}),
        ("zstd", "zstandard", {"FEEDS": {"out.jsonl.zst": {}}}),
        ("s3", "fsspec.core", {"FEEDS": {"s3://bucket/out.jsonl": {}}}),
        ("fsspec", "fsspec.core", {"FEEDS": {"gs://bucket/out.jsonl": {}}}),
        ("s3", "fsspec.core", {"ITEM_PIPELINES": {"trawl.pipelines.FilesPipeline": 1}, "FILES_STORE": "s3://bucket/"}),
        ("images", "PIL", {"ITEM_PIPELINES": {"trawl.pipelines.ImagesPipeline": 1}, "IMAGES_STORE": "images"}),
        ("cache", "hishel", {"HTTPCACHE_ENABLED": True, "HTTPCACHE_POLICY": "rfc9111"}),
        ("redis", "coredis", {"JOB_DIR": "redis://127.0.0.1:1/job"}),
        ("http2", "h2", {"HTTP2_ENABLED": True}),
        ("dns", "dns", {"DNS_RESOLVER": "dnspython"}),
        ("warc", "warcio.warcwriter", {"WARC_FILE": "out.warc"}),
        ("socks", "socksio", {"ROTATING_PROXY_LIST": ["socks5://user:pw@proxy.example:1080"]}),
        ("socks", "socksio", {"SESSIONS": {"a": {"proxy": "socks5://user:pw@proxy.example:1080"}}}),
    ],
)


def remove(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each == module or each.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)


@MISSING
def test_a_setting_whose_extra_is_missing_ends_before_the_first_request(
    extra: str, module: str, settings: Mapping[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(*given: object) -> Outcome:
        pytest.fail("something was sent")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TransportRouter, "send", send)
    remove(module, monkeypatch)
    with pytest.raises(UsageError) as raised:
        trawl.run(One, settings)
    assert f"pip install 'trawl-crawler[{extra}]'" in str(raised.value)
    assert "pw" not in str(raised.value)


@MISSING
def test_trawl_check_reports_the_extra_too(
    extra: str, module: str, settings: Mapping[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    remove(module, monkeypatch)
    (sentence,) = set(check_made(type("Named", (One,), {"custom_settings": settings})))
    assert f"pip install 'trawl-crawler[{extra}]'" in sentence


def test_a_socks_proxy_of_the_environment_is_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "socks5h://proxy.example:1080")
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(UsageError, match=r"needs the extra socks: pip install"):
        trawl.run(One)


def test_trawl_check_reports_a_feed_that_no_job_can_continue() -> None:
    settings = {"JOB_DIR": "job", "FEEDS": {"out.parquet": {}}}
    (sentence,) = check_made(type("Named", (One,), {"custom_settings": settings}))
    assert "can't be a feed of a job" in sentence
