"""examples/pydoc.py, run as its documentation says, against a real documentation server on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def crawl(example: Path, feed: Path, *arguments: str) -> list[dict[str, object]]:
    """The records of a run of the command."""
    command = [sys.executable, "-m", "trawl", "crawl", str(example), "-O", str(feed), "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=feed.parent, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in feed.read_text(encoding="utf-8").splitlines()]


def test_a_package_becomes_a_record_a_module(examples: Path, tmp_path: Path) -> None:
    found = crawl(examples / "pydoc.py", tmp_path / "out.jsonl", "-a", "package=json")
    records = {record["module"]: record for record in found}
    assert set(records) == {"json", "json.decoder", "json.encoder", "json.scanner", "json.tool"}
    decoder = records["json.decoder"]
    assert decoder["summary"] == "Implementation of JSONDecoder"
    assert {"JSONDecodeError", "JSONDecoder"} <= set(decoder["classes"])  # type: ignore[call-overload]
    assert str(decoder["file"]).endswith("decoder.py")
    assert records["json"]["functions"] == ["dump", "dumps", "load", "loads"]


@pytest.mark.servers
def test_every_module_of_the_standard_library_becomes_a_record(examples: Path, tmp_path: Path) -> None:
    records = crawl(examples / "pydoc.py", tmp_path / "out.jsonl")
    modules = [record["module"] for record in records]
    assert len(modules) == len(set(modules))
    documented = {name for name in sys.stdlib_module_names if not name.startswith("_")}
    absent = documented - set(modules)  # those of other systems, and the one that opens a browser
    assert {"antigravity", "winreg"} <= absent
    assert len(absent) < 30
    assert {"email.message", "concurrent.futures.thread", "sys", "xml.dom.minidom"} <= set(modules)
