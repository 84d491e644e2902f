"""Writes the README for package indexes, and compiles the hot modules into the wheel if requested.

``TRAWL_COMPILED=1`` requests compiled modules. The default wheel is pure Python. ``TRAWL_OPT_LEVEL=0`` saves a third of
the time, for a build that is only tested.

The list of modules is in ``pyproject.toml``, with the reason for each omitted module. A module is compiled unchanged,
next to its source. Modules that mypyc can't compile are omitted, and no code is written only for mypyc.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "TRAWL_COMPILED"

# `nox -s types` checks the types. Here, libraries that are not installed have no types.
MYPY = ["--config-file=", "--explicit-package-bases", "--follow-imports=silent", "--ignore-missing-imports"]


def is_asked_for() -> bool:
    """Return whether the environment requests the compiled wheel.

    Raises:
        ValueError: If the variable is neither 0 nor 1.
    """
    value = os.environ.get(VARIABLE) or "0"
    if value not in {"0", "1"}:
        raise ValueError(
            f"{VARIABLE} is {value!r}; set it to 1 for compiled modules, to 0 or not at all for pure Python"
        )
    return value == "1"


def compiled(modules: list[str], folder: Path) -> list[Path]:
    """Build and return the extension modules of source files, as one library, in a folder with the same layout."""
    # Imported here, because the pure build must not need them.
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    work = folder / "work"
    options = [*MYPY, f"--cache-dir={work / 'mypy'}"]
    extensions = mypycify(
        [*options, *modules],
        opt_level=os.environ.get("TRAWL_OPT_LEVEL", "2"),
        debug_level="0",
        multi_file=True,
        target_dir=str(work / "c"),
    )
    if os.name == "posix":
        for extension in extensions:
            # No other code calls these functions, so calls between modules are direct, and the code is smaller.
            extension.extra_compile_args.append("-fvisibility=hidden")
    command = build_ext(Distribution({"name": "trawl", "ext_modules": extensions}))
    command.build_temp, command.build_lib = str(work / "objects"), str(folder / "lib")
    command.ensure_finalized()
    command.run()
    return [Path(output) for output in command.get_outputs()]


# A picture with the line that introduces it.
PICTURE = re.compile(r"(?:^[^\n]+:(?:\*\*)?\n\n)?!\[[^]]*\]\((?!https?:)[^)]+\)\n*", re.M)
LINK = re.compile(r"(?<!!)\[([^]]*)\]\((?!https?:|#)([^)]+)\)")


def for_an_index(readme: str, source: str = "") -> str:
    """Return the README for a package index, which does not have the files that it links to or shows as pictures.

    Args:
        readme: As it stands in the repository.
        source: Where the repository's files are shown, ending in ``/``; "": nowhere, so links become their words.
    """
    if source:
        return re.sub(r"(!?\[[^]]*\])\((?!https?:|#)([^)]+)\)", rf"\1({source}\2)", readme)
    return LINK.sub(r"\1", PICTURE.sub("", readme))


class Readme(MetadataHookInterface):
    """The hook that hatchling calls for dynamic metadata of ``pyproject.toml``. Its option is ``source``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README for the index."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        shown = for_an_index(text, self.config.get("source", ""))
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}


class CompiledModules(BuildHookInterface[Any]):
    """The build hook that hatchling calls. Its options are ``modules``, ``left-out`` and ``requires``."""

    def dependencies(self) -> list[str]:
        """Return the compiler, and the package's dependencies, whose types mypyc reads."""
        if not is_asked_for():
            return []
        return [*self.config["requires"], *self.metadata.core.dependencies]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the extension modules to the wheel.

        Raises:
            ValueError: The install is an editable one.
        """
        if not is_asked_for():
            return
        if version == "editable":
            raise ValueError(f"an editable install runs the sources; leave out either {VARIABLE} or --editable")
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        for file in compiled(self.config["modules"], folder):
            build_data["force_include"][str(file)] = str(file.relative_to(folder / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the build files of the wheel."""
        if is_asked_for():
            self._folder.cleanup()
