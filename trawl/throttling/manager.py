"""Managers: which scopes a request has, and which of them an answer exhausts."""

from __future__ import annotations

__all__: list[str] = []


class ThrottlingManager:
    """Placeholder."""


class ThrottlingScopeManager:
    """Placeholder."""
