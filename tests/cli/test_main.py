from __future__ import annotations

import runpy
import sys

import pytest


def test_python_m_trawl_is_the_command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["trawl", "version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("trawl", run_name="__main__")
    assert ended.value.code == 0
    assert capfd.readouterr().out.startswith("trawl 0.")
