"""The crawlers to compare, called peers. Each peer has its own virtual environment, created when it is first used.

The environments are stored in ``~/.cache/trawl-benchmarks``, or in ``TRAWL_BENCHMARKS_CACHE``. To get newer versions,
delete the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["PEERS", "environment_of", "peer_python", "run_script", "version_of"]

ROOT = Path(__file__).parent.parent
PEERS = {
    "scrapy": "scrapy>=2.19,<3",
    "crawlee": "crawlee[parsel]>=1.11",
    "compiled": str(ROOT),
    "scrapy-playwright": "scrapy-playwright>=0.0.48",
}
"""The requirements of each environment, for pip. ``compiled`` is this checkout with compiled modules."""

CHILD_WITHIN = 600.0
"""Maximum number of seconds for a script."""


def cache() -> Path:
    """Return the folder of the environments."""
    given = os.environ.get("TRAWL_BENCHMARKS_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "trawl-benchmarks"


def peer_python(name: str) -> str:
    """Return the Python of a peer's environment. For ``trawl``, this is the current Python.

    Raises:
        subprocess.CalledProcessError: If the peer could not be installed.
    """
    if name not in PEERS:
        return sys.executable
    folder = cache() / name
    python, done = folder / "bin" / "python", folder / "installed"
    wanted = PEERS[name] if name != "compiled" else sources()
    if not done.exists() or done.read_text("utf-8") != wanted:
        print(f"making an environment for {name} in {folder}", file=sys.stderr, flush=True)
        compiled = {**os.environ, "TRAWL_COMPILED": "1"}
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", PEERS[name]], check=True, env=compiled)
        done.write_text(wanted, "utf-8")
    return str(python)


def sources() -> str:
    """Return a digest of the sources of the compiled build."""
    digest = hashlib.blake2b()
    for path in [ROOT / "pyproject.toml", ROOT / "hatch_build.py", *sorted((ROOT / "trawl").rglob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def environment_of(peer: str) -> dict[str, str]:
    """Return the variables for a peer's script. Only trawl's own environment imports this checkout."""
    return {"PYTHONPATH": str(ROOT)} if peer not in PEERS else {}


def version_of(name: str) -> str:
    """Return the version of a peer."""
    script = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.run([peer_python(name), "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def run_script(peer: str, script: str, *arguments: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a script of this folder with a peer's Python. Returns its last line, parsed.

    Raises:
        RuntimeError: If the script failed. The message contains its output.
    """
    child = subprocess.run(
        [peer_python(peer), str(Path(__file__).parent / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=CHILD_WITHIN,
        env={**os.environ, **environment_of(peer), **(environment or {})},
    )
    if child.returncode:
        raise RuntimeError(f"{script} failed:\n{child.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(child.stdout.strip().splitlines()[-1])
    return told
