"""What of the cpu device is tested where C is never compiled, as on Windows: all that NumPy computes, too."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

FILES: Final = frozenset(
    "memory_pool native other_compilers other_dtypes panels parts_of_jobs program_cache vectors".split()
)
"""Tests of what is compiled and of how, file by file."""
TESTS: Final = frozenset({
    "test_captured_ops_prepare_no_kernels", "test_stages_end_in_code", "test_state_is_updated_in_its_place",
    "test_the_number_of_threads_changes_no_result", "test_long_sums_stay_accurate",
    "test_steps_go_past_only_where_results_are_large", "test_many_short_jobs_follow_each_other",
    "test_blocks_that_lie_idle_go_back", "test_large_results_take_the_place_of_operands_that_nobody_reads",
    "test_what_nobody_else_holds_is_written_over",
})  # fmt: skip
"""The same, of files that NumPy passes otherwise."""
HERE: Final = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs compiled C where there is none on purpose; elsewhere a missing compiler fails."""
    if hasattr(os, "fork"):
        return
    for item in items:
        named = item.name.partition("[")[0] in TESTS or item.path.stem.removeprefix("test_") in FILES
        if item.path.parent == HERE and named:
            item.add_marker(pytest.mark.skip(reason="C is compiled on Unix only"))
