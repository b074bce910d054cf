"""Loops as people run them: text that is generated token by token."""

from __future__ import annotations

from typing import Any

from benchmarks import generation


def run() -> list[dict[str, Any]]:
    """Return the rows of all loops."""
    return generation.rows()
