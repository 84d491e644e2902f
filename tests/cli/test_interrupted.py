"""Ctrl-C before a crawl runs: the command's own parts, and the spider's, are still being imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTS = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(10)\n"
ROOT = Path(__file__).parents[2]


def ended(tmp_path: Path, code: str, *words: str) -> tuple[int, str, str]:
    """Status, output and errors of ``trawl WORDS`` in a process that runs ``code`` first."""
    program = f"import sys\n{code}\nfrom trawl.cli import main\nsys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", [["crawl", "slow.py"], ["check", "slow.py"], ["settings", "slow.py"]])
def test_ctrl_c_while_a_spider_is_imported_ends_the_command_without_a_traceback(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "slow.py").write_text(INTERRUPTS, "utf-8")
    assert ended(tmp_path, "", *words) == (130, "", "")


@pytest.mark.parametrize("module", ["trawl.cli.app", "trawl.cli.crawl", "trio"])
def test_ctrl_c_while_trawl_itself_is_imported_does_so_too(tmp_path: Path, module: str) -> None:
    finder = f"""
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            import os, signal
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
"""
    assert ended(tmp_path, finder, "crawl", "nothing.py") == (130, "", "")
