"""Installs a package as pip would, without waiting for pip."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

__all__ = ["install", "install_parcel"]

HOME = Path(__file__).parents[2] / "examples" / "plugin"


def install(site: Path, name: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Write the core metadata and entry points of an installed package."""
    meta = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n", "utf-8")
    lines: list[str] = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (meta / "entry_points.txt").write_text("\n".join(lines), "utf-8")


def install_parcel(site: Path) -> None:
    """Install examples/plugin in ``site``, which is created."""
    site.mkdir()
    project = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["project"]
    install(site, project["name"], project["entry-points"])
    (site / "trawl_parcel.py").write_bytes((HOME / "trawl_parcel.py").read_bytes())
