"""Nontemporal stores of results that exceed the caches, on a made-up processor with vectors of 4."""

from __future__ import annotations

from tensorbus.decompose.tracer import trace
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.heuristics import Heuristics
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.ir.verify import verify
from tensorbus.lowering.program.lower import lower
from tensorbus.lowering.target import Target
from tensorbus.ops.definition import Spec

OPS = frozenset({"add", "subtract", "multiply", "divide", "maximum", "exp", "rsqrt"})
WIDE = Target(tasks_to_fill=4, work_items_to_fill=64, lanes=4, vector_ops=OPS, scan_lanes=4, scan_ops=OPS)
PLAIN = Target(tasks_to_fill=4, work_items_to_fill=64, lanes=4)
LARGE, SMALL = (Heuristics().nontemporal_min_bytes // 4 // 1024, 1024), (64, 1024)


def one(op: str, shape: tuple[int, ...], target: Target, **attrs: object) -> tuple[str, tuple[int, ...]]:
    """Return the one kernel of an op as text, and what its items fill of each buffer."""
    program = lower(trace(op, [Spec(shape, dt.float32)], attrs), [packed(0, shape)], target, sized=True)
    (step,) = program.steps
    verify(step.launch.kernel)
    return str(step.launch.kernel), step.launch.fills


def test_only_large_results_go_past_the_caches() -> None:
    for op, attrs in (("exp", {}), ("softmax", {"axis": 1})):
        assert " nontemporal" in one(op, LARGE, WIDE, **attrs)[0]
        assert " nontemporal" not in one(op, SMALL, WIDE, **attrs)[0]


def test_what_is_read_again_lies_in_an_array_of_the_items_own() -> None:
    large, small = one("softmax", LARGE, WIDE, axis=1)[0], one("softmax", SMALL, WIDE, axis=1)[0]
    assert "float32[1024]" in large
    assert "float32[1024]" not in small
    assert large.count("out[") < small.count("out["), "the result itself is only stored"


def test_the_next_row_is_fetched_in_the_second_walk_over_one() -> None:
    text = one("softmax", LARGE, WIDE, axis=1)[0]
    assert text.count("fetch x0[") == 1
    assert "fetch" not in one("softmax", SMALL, WIDE, axis=1)[0]


def test_work_items_say_what_they_fill() -> None:
    assert one("exp", SMALL, PLAIN)[1] in ((0, 1), (1, 0))
    assert max(one("softmax", SMALL, PLAIN, axis=1)[1]) == 1024
    assert one("softmax", SMALL, PLAIN, axis=0)[1] == (), "rows of a panel are apart"


def test_running_sums_in_vectors() -> None:
    scan = {"axis": 1, "dtype": dt.float32, "include_initial": False}
    wide, plain = (one("cumulative_sum", SMALL, target, **scan)[0] for target in (WIDE, PLAIN))
    assert "running_sum(" in wide
    assert "running_sum(" not in plain
