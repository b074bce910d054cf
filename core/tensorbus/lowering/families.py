"""The ops that schedules are written for, by family."""

from __future__ import annotations

from typing import Final

REDUCTIONS: Final = frozenset({"sum", "prod", "max", "min", "any", "all", "argmax", "argmin"})
SCANS: Final = {
    "cumulative_sum": "sum", "cumulative_prod": "prod", "cumulative_max": "max", "cumulative_min": "min",
    "logcumsumexp": "logsumexp",
}  # fmt: skip
"""Each scan, and the reduction whose states it keeps."""
SORTS: Final = frozenset({"sort", "argsort"})
