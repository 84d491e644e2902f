"""The commands of the pages come to an end, or the tests say which did not."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.docs import commands
from tests.docs.commands import Commands

ENDLESS = """
import trawl, trio

class Endless(trawl.Spider):
    name = "endless"

    async def start(self):
        {waits}
        yield
"""


@pytest.mark.parametrize(
    "waits", ["await trio.sleep_forever()", "while True: await trio.sleep(1)"], ids=["nothing", "the next second"]
)
def test_a_crawl_that_never_ends_is_ended_and_named(
    waits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "ended_in_time", partial(commands.ended_in_time, longest=0.05))
    (tmp_path / "endless.py").write_text(ENDLESS.format(waits=waits), "utf-8")
    typed = Commands(tmp_path)
    said = typed.run("trawl crawl endless.py")
    assert typed.status != 0
    assert "Endless" in said
    assert "has not ended after 0.05 s" in said
