from __future__ import annotations

import subprocess
import sys


def test_python_m_trawl_is_the_command() -> None:
    # A process of its own: pytest's import hook, which loads what brings a plugin, knows no runpy.
    done = subprocess.run([sys.executable, "-m", "trawl", "version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("trawl 0.")
