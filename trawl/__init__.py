"""A polite, fast web crawler on Trio."""

__version__ = "0.1.0"
