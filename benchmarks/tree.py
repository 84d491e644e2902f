"""Measures a command with all processes that it starts: processor time, and the peak of their memory.

In a cgroup of its own, both are exact. Without cgroups (only root may create one), the processor time is that of all
processes for which this program has waited, and the memory is the largest of several samples. As a program, ``tree.py
COMMAND ...`` runs a command without cgroups and prints these figures as its last line.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

__all__ = ["Measured", "group_memory", "measured"]

CGROUPS = Path("/sys/fs/cgroup")
WITHIN = 900.0
"""Maximum number of seconds for a command."""

SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER: processes whose parent has ended become children of this process."""

SAMPLE = 0.25
"""Seconds between two samples of the memory."""


@attrs.frozen
class Measured:
    """A command that has ended.

    Attributes:
        told: Its last line, parsed as JSON.
        cpu: Seconds of processor time of all its processes.
        peak: Largest memory of all its processes, in bytes.
        how: How these were measured.
    """

    told: dict[str, Any]
    cpu: float
    peak: int
    how: str


def measured(command: Sequence[str], environment: Mapping[str, str]) -> Measured:
    """Run a command and measure it.

    Raises:
        RuntimeError: If the command fails.
    """
    v1 = [CGROUPS / kind / f"trawl-{os.getpid()}" for kind in ("cpuacct", "memory")]
    v2 = [CGROUPS / f"trawl-{os.getpid()}"]
    groups = v1 if v1[0].parent.exists() else v2
    try:
        for group in groups:
            group.mkdir()
    except OSError:
        line = _run([sys.executable, __file__, *command], environment)
        return Measured(line["told"], line["cpu"], line["peak"], "processes that ended, and samples of memory")
    try:
        joins = " && ".join(f"echo $$ >{group}/cgroup.procs" for group in groups)
        told = _run(["/bin/sh", "-c", f'{joins} && exec "$@"', "sh", *command], environment)
        if groups is v1:
            cpu = int((v1[0] / "cpuacct.usage").read_text()) / 1e9
            peak = int((v1[1] / "memory.max_usage_in_bytes").read_text())
        else:
            cpu = int((v2[0] / "cpu.stat").read_text().split()[1]) / 1e6
            peak = int((v2[0] / "memory.peak").read_text())
        return Measured(told, cpu, peak, "cgroup")
    finally:
        for group in groups:
            with suppress(OSError):  # a process has not ended yet
                group.rmdir()


def _run(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    child = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=WITHIN, env={**os.environ, **environment}
    )
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{child.stderr[-3000:]}")
    told: dict[str, Any] = json.loads(child.stdout.strip().splitlines()[-1])
    return told


def group_memory(root: int) -> int:
    """Return the memory (proportional set size) of a process and all its descendants, in bytes."""
    parents, total = {}, 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    for pid in parents:
        above = pid
        while above not in (0, root):
            above = parents.get(above, 0)
        if above == root:
            with suppress(OSError, IndexError):
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(rollup.partition("\nPss:")[2].split()[0]) * 1024
    return total


def main() -> None:
    """Run a command without cgroups, and print its figures."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True) as child:
        over, peaks = threading.Event(), [0]

        def sample() -> None:
            while not over.wait(SAMPLE):
                peaks.append(group_memory(child.pid))

        sampler = threading.Thread(target=sample)
        sampler.start()
        told, _ = child.communicate()
        over.set()
        sampler.join()
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if child.returncode:
        raise SystemExit(child.returncode)
    line = {"told": json.loads(told.strip().splitlines()[-1]), "cpu": used.ru_utime + used.ru_stime, "peak": max(peaks)}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
