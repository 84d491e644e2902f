"""A file that seems to belong to another user, also where the tests run as a user who can't give files away."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

__all__ = ["OTHER_USER", "another_user_has"]

OTHER_USER = 4242
"""The uid of the other user."""


def another_user_has(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checks of a job's files find that ``path`` belongs to another user."""

    def changed(call: Callable[[Path], os.stat_result]) -> Callable[[Path], os.stat_result]:
        def status_of(each: Path) -> os.stat_result:
            status = call(each)
            if os.path.abspath(each) != os.path.abspath(path):
                return status
            return os.stat_result([*status[:4], OTHER_USER, *status[5:]])

        return status_of

    system = SimpleNamespace(lstat=changed(os.lstat), stat=changed(os.stat), geteuid=os.geteuid)
    monkeypatch.setattr("trawl.frontier.own_files.os", system)
