"""Jobs on a real server, shared by real processes, through faults of each: nothing lost, nothing twice, nothing early.

Short here (``nox -s servers``), long in ``nox -s soak`` (``HISTORY_SECONDS``).
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import attrs
import pytest

from tests.histories.chain import chain
from tests.histories.history import History, run_history
from tests.histories.networks import networks, why_not
from tests.servers.stores import KINDS, running_store

HOSTS = [f"127.0.7.{number}" for number in range(1, 21)]
FAULTS = ["kill", "kill", "join", "leave", "drop", "kill the store", "cut the power", "cut", "stop", "stall", "slow"]


@pytest.mark.servers
async def test_workers_their_wires_and_their_store_fail_and_each_page_is_in_the_feed_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    faults = ["kill", "join", "drop", "kill the store", "cut", "cut the power", "kill", "stop", "leave"]
    with running_store("valkey", data) as store:
        history = History(hosts=HOSTS, pages=24, faults=faults, pause=0.3, seed=1, exports=True)
        found, done = await run_history(history, tmp_path, store)
    assert found.is_clean, (found, done)
    assert done.total() >= 7


@pytest.mark.servers
async def test_workers_in_networks_of_their_own_whose_cables_are_pulled(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    data = tmp_path / "data"
    data.mkdir()
    faults = ["pull", "kill", "join", "pull", "kill the store", "pull", "leave"]
    with running_store("redis", data) as store, networks(len(HOSTS)) as made:
        history = History(hosts=made.hosts, pages=24, faults=faults, pause=0.3, seed=2, networks=made)
        found, done = await run_history(history, tmp_path, store)
    assert found.is_clean, (found, done)
    assert done["pull"] >= 2


@pytest.mark.servers
async def test_a_replica_that_lags_takes_the_place_of_the_store(tmp_path: Path) -> None:
    faults = ["fail over", "kill", "join", "fail over", "drop", "leave"]
    with chain(tmp_path / "data") as stores:
        settings = ["JOB_DURABILITY=replicated"]
        history = History(hosts=HOSTS, pages=24, faults=faults, pause=0.5, seed=3, settings=settings)
        found, done = await run_history(history, tmp_path, stores)
    assert found.is_clean, (found, done)
    assert done["fail over"] == 2


@pytest.mark.soak
async def test_histories_for_half_an_hour(tmp_path: Path) -> None:
    seconds = float(os.environ.get("HISTORY_SECONDS", "1800"))
    begun, seed, all_done = time.monotonic(), 0, Counter[str]()
    while time.monotonic() - begun < seconds:
        folder = tmp_path / str(seed)
        (folder / "data").mkdir(parents=True)
        is_fast = seed % 5 == 4
        options = ["--appendfsync", "everysec"] if is_fast else []
        with running_store(KINDS[seed % 2], folder / "data", *options) as store:
            history = History(
                hosts=HOSTS,
                pages=150,
                faults=random.Random(seed).choices([*FAULTS, "lose"] if is_fast else FAULTS, k=30),
                pause=1.5,
                seed=seed,
                settings=["JOB_DURABILITY=fast"] if is_fast else [],
                exports=seed % 4 > 1,
            )
            found, done = await run_history(history, folder, store)
        all_done += done
        print(f"history {seed}: {found}; {dict(done)}", flush=True)
        assert (attrs.evolve(found, twice=0) if is_fast else found).is_clean, found
        seed += 1
    print(f"{seed} histories: {dict(all_done)}", flush=True)
