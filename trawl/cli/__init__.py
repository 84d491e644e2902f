"""The command ``trawl``."""

from trawl.cli.app import app, main

__all__ = ["app", "main"]
