"""Starts ranks on a Ray cluster: those of a program by ``tensorbus run --launcher ray``, or of a function.

In order: ``options``, ``cluster``, ``rank_process``, ``rank_actor``, ``launcher``, ``function_rank``,
``function_ranks``, ``extension``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .function_ranks import run_ranks as run_ranks


def __getattr__(name: str) -> Any:
    """Import ``run_ranks`` when it is first named: the processes of ranks do not need it."""
    if name == "run_ranks":
        from .function_ranks import run_ranks

        return run_ranks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
