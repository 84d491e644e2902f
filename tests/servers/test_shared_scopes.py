"""Shared scopes in real servers: several sessions, each with its connections, against the limits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

from tests.frontier.test_line import Send, Session, check, limits
from tests.servers.stores import KINDS, running_store
from trawl.frontier.redis.client import Address, connect

pytestmark = pytest.mark.servers

SCOPES = {"a delay": limits(delay=0.05), "some places": limits(concurrency=3), "quota": limits(quota=20, window=0.5)}


@pytest.mark.parametrize("kind", KINDS)
async def test_sessions_keep_the_limits_of_shared_scopes_together(kind: str, tmp_path: Path) -> None:
    sends: list[Send] = []
    with running_store(kind, tmp_path) as store:
        address = Address.parse(store.url("shared"))
        sessions = [Session(connect, f"s{number}", SCOPES, sends, address) for number in range(3)]

        async def work(session: Session, scopes: list[str], nursery: trio.Nursery) -> None:
            while len(sends) < 120:
                await session.send(dict.fromkeys(scopes, 1.0), 0.02)
            nursery.cancel_scope.cancel()

        with trio.fail_after(60.0):
            async with trio.open_nursery() as nursery:
                for session in sessions:
                    await nursery.start(session.run)
                    nursery.start_soon(work, session, ["a delay"], nursery)
                    nursery.start_soon(work, session, ["quota", "some places"], nursery)
                    nursery.start_soon(work, session, [*SCOPES], nursery)
    check(sends, {id: each for id, each in SCOPES.items() if id != "quota"}, [])
    quota = sorted([send.at for send in sends if "quota" in send.scopes])
    assert max([len([at for at in quota if start <= at < start + 0.5]) for start in quota]) <= 2 * 20
    by_session = Counter([send.session for send in sends])
    assert len(by_session) == 3
    assert min(by_session.values()) >= 10
