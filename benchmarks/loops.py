"""Loops as people run them: training steps that read numbers, text that is generated token by token."""

from __future__ import annotations

from typing import Any

from benchmarks import generation, reading


def run() -> list[dict[str, Any]]:
    """Return the rows of all loops."""
    return [*reading.rows(), *generation.rows()]
