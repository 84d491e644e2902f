from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_python_m_trawl_is_the_command() -> None:
    # A process of its own: pytest's import hook, which loads what brings a plugin, knows no runpy.
    done = subprocess.run([sys.executable, "-m", "trawl", "version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("trawl 0.")


def test_a_reader_of_standard_error_that_leaves_changes_no_exit_status(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text(
        "import trawl\n\nclass Nothing(trawl.Spider):\n    name = 'nothing'\n    start_urls = []\n"
    )
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "trawl", "crawl", "nothing.py"]
    try:
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=write, check=False, text=True)
    finally:
        os.close(write)
    assert (done.returncode, done.stdout) == (0, "")
