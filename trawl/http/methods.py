"""What the methods of requests mean (RFC 9110, 9)."""

from __future__ import annotations

__all__ = ["SAFE_METHODS"]

SAFE_METHODS: frozenset[str] = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""The methods that ask for nothing to change: sent once more, they do no harm (RFC 9110, 9.2.1)."""
