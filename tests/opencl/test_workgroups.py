"""Rows that work-items of a workgroup share: kernels with shared arrays and barriers, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused import THIN, program_of, record, spec
from tensorbus.backend_interface.strided_array import StridedArray
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.builder import RuntimeArg
from tensorbus.lowering.ir.kernel_task import ERROR_SLOT
from tensorbus.lowering.program.program import steps_of
from tensorbus.lowering.target import Target

from error_bounds import assert_within, gamma, of_sum, unit
from opencl_bench import Bench, numpy_dtype

RNG = np.random.default_rng(0)


def run(bench: Bench, function: Callable[..., Any], *arrays: Any, target: Target = THIN) -> list[Any]:
    """Run a function as a program for a GPU's work-items; it must have a kernel with barriers."""
    graph, program = program_of(record(function, *(spec(*a.shape) for a in arrays)), target)
    compiler = bench.runtime.compiler
    dialect = replace(compiler.dialect(bench.index), target=target)
    buffers = {ERROR_SLOT: compiler.errors(bench.index)}
    buffers |= {k: bench.put(a).buffer for k, a in enumerate(arrays)}
    buffers |= {
        slot: bench.put(np.full(size, 7, numpy_dtype(dtype))).buffer
        for slot, (size, dtype) in program.sizes.items()
    }
    steps = [step for item in program.steps for step in steps_of(item)]
    assert any(step.launch.group for step in steps)
    for step in steps:
        late = [0 for value in step.launch.values if isinstance(value, RuntimeArg)]
        source = render(step.launch.kernel, dialect)
        compiler.prepare(source, step.launch, bench.index)([buffers[s] for s in step.slots], late)
    return [
        bench.get(StridedArray(buffers[x.slot], x.shape, x.strides, x.offset, node.spec.dtype))
        for x, node in zip(program.outputs, graph.outputs, strict=True)
    ]


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def assert_shares(actual: Any, x: Any) -> None:
    wide = x.astype("f8")
    below = wide.max(-1, keepdims=True) - wide  # what is rounded of an exponent moves a share as far
    relative = gamma(x.shape[-1], "float32") + 2 * unit("float32") * below
    assert_within(actual, softmax(wide), relative * softmax(wide))


@pytest.mark.parametrize("shape", [(9, 33), (3, 5, 100), (70, 1000), (5, 4097)])
def test_items_share_a_row(bench: Bench, shape: tuple[int, ...]) -> None:
    x = RNG.normal(size=shape).astype("f4")
    (got,) = run(bench, lambda x: tb.softmax(x, axis=-1), x)
    assert_shares(got, x)


@pytest.mark.parametrize("groups", [256, 512])
@pytest.mark.parametrize("shape", [(1, 32_767), (2, 40_001), (3, 131_071), (2, 131_073)])
def test_few_rows_of_many_passes(bench: Bench, shape: tuple[int, int], groups: int) -> None:
    """One kernel goes over them all, or several over their pieces, by how many there are and how long."""
    x = RNG.normal(size=shape).astype("f4")

    def passes(x: Any) -> Any:
        return (
            tb.softmax(x, axis=1),
            tb.var(x, axis=1),
            x - tb.max(x, axis=1, keepdims=True),
            tb.argmin(x, axis=1),
        )

    target = replace(THIN, tasks_to_fill=groups, work_items_to_fill=16 * groups)
    soft, var, less, least = run(bench, passes, x, target=target)
    assert_shares(soft, x)
    exact = x.astype("f8").var(1)
    assert_within(var, exact, gamma(shape[1], "float32") * exact)
    np.testing.assert_array_equal(less, x - x.max(1, keepdims=True))
    np.testing.assert_array_equal(least, x.argmin(1))


def test_rows_give_several_results(bench: Bench) -> None:
    x, w = RNG.normal(size=(40, 300)).astype("f4"), RNG.normal(size=300).astype("f4")

    def centred(x: Any, w: Any) -> Any:
        c = x - x.mean(axis=1, keepdims=True)
        return c * w, (c * c).sum(axis=1), tb.max(x, axis=1)

    scaled, squares, top = run(bench, centred, x, w)
    c = x.astype("f8") - x.astype("f8").mean(1, keepdims=True)
    mean = of_sum(x, 1, "float32", keepdims=True) / 300  # what the mean is off by, each element is
    assert_within(scaled, c * w, (mean + gamma(2, "float32") * abs(c)) * abs(w))
    assert_within(squares, (c * c).sum(1), of_sum(c * c, 1, "float32") + 2 * (mean * abs(c)).sum(1))
    np.testing.assert_array_equal(top, x.max(1))


SHARING: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: tb.softmax(x, axis=-1),
    "moments": lambda x: (x.mean(axis=1), x.var(axis=1), tb.argmax(x, axis=1)),
    "columns": lambda x: x.reshape((12_000, 100)).sum(axis=0),
    "running sum": lambda x: tb.cumulative_sum(x, axis=1),
    "sort": lambda x: (tb.sort(x, axis=1), tb.argsort(x, axis=0)),
    "partition": lambda x: tb.sort(x > 0, axis=1),
    "scatter": lambda x: x.index_add(0, tb.argmax(x, axis=1) % 9, x),
}


@pytest.mark.parametrize("function", SHARING.values(), ids=SHARING)
def test_no_work_item_may_miss_a_barrier(function: Callable[[Any], Any]) -> None:
    """A barrier stands in no condition, though it hold for all: drivers were seen to compile that wrongly."""
    from tensorbus_opencl.dialect import dialect

    barriers = 0
    for target in (THIN, replace(THIN, subgroup_size=32, vector_bytes=16)):
        _, program = program_of(record(function, spec(300, 4000)), target)
        language = dialect(half=True, double=True, target=target)
        for launch in (step.launch for item in program.steps for step in steps_of(item)):
            blocks: list[str] = []
            for line in map(str.strip, render(launch.kernel, language).splitlines()):
                if line.startswith("}"):
                    blocks.pop()
                if line.endswith("{"):
                    blocks.append(line)
                if line.startswith("barrier("):
                    barriers += 1
                    assert not [block for block in blocks if block.startswith("if")], launch.kernel.name
    assert barriers


def test_neighbours_read_each_others_registers_where_the_language_has_assembly() -> None:
    from tensorbus_opencl.dialect import dialect

    target = replace(THIN, subgroup_size=32)
    _, program = program_of(record(lambda x: tb.softmax(x, axis=-1), spec(70, 1000)), target)
    (step,) = [step for item in program.steps for step in steps_of(item)]
    source = render(step.launch.kernel, dialect(half=True, double=False, target=target))
    assert source.count("shfl.sync.bfly.b32") == 1
    assert all(source.count(f", {1 << k});") >= 2 for k in range(5)), "the largest, and the sum"
