"""Two faults at a time in a crawl of several processes: each page is in the feed once, in time, and the job finishes.

``nox -s soak`` runs ``CHAOS_DRAWS`` draws from the seed ``CHAOS_SEED`` on, and its short form runs one.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from tests.histories.checker import Found
from tests.servers.stores import running_store
from tests.soak.chaos import Draw, draw, run_chaos

HOSTS = [f"127.0.6.{number}" for number in range(1, 21)]


async def chaos(chosen: Draw, folder: Path, pages: int) -> Found:
    """Run a draw in a folder."""
    with ExitStack() as stack:
        store = None
        if chosen.is_remote:
            (folder / "data").mkdir(parents=True)
            store = stack.enter_context(running_store("valkey", folder / "data"))
        return await run_chaos(chosen, HOSTS, pages, folder, store)


@pytest.mark.soak
async def test_two_faults_at_a_time(tmp_path: Path) -> None:
    wrong = {}
    first = int(os.environ.get("CHAOS_SEED", "0"))
    for seed in range(first, first + int(os.environ.get("CHAOS_DRAWS", "40"))):
        chosen, folder = draw(seed), tmp_path / str(seed)
        folder.mkdir()
        try:
            found = await chaos(chosen, folder, 24)
            assert found.is_clean, found
        except* (AssertionError, trio.TooSlowError) as error:  # the other draws are run as well
            wrong[seed] = error
        print(f"{chosen}: {wrong.get(seed, found)}", flush=True)
    assert not wrong
