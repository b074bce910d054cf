"""Products of computed operands: no matrix is stored for a vector, none twice for a generated product."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused import CPU, program_of, record, spec, steps_by_name
from fused_programs import GENERATED_VECTORS, VECTORS, lowered
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.program.lower import lower

RNG = np.random.default_rng(0)
V, W, SCALE = (RNG.normal(size=s).astype("f4") for s in ((96,), (70, 96), (96,)))
Q = RNG.integers(-128, 128, (70, 96)).astype("i1")


@pytest.mark.parametrize("name", VECTORS)
def test_vector_products_of_computed_matrices_are_sums(name: str) -> None:
    graph, program = lowered(VECTORS[name])
    assert "matmul" in str(graph)
    assert not any("call" in step or "matmul" in step for step in steps_by_name(program))
    largest = max((size for size, _ in program.sizes.values()), default=0)
    assert largest < max(prod(x.shape) for x in VECTORS[name].specs) or name == "vector and vector"


@pytest.mark.parametrize(
    "function",
    [
        lambda w, v: w @ v,  # nothing is computed
        lambda w, v: (lambda x: (x @ v, x))(w * 2),  # the matrix is wanted
        lambda w, v: (lambda x: x @ v + x.sum(1))(tb.exp(w)),  # by others
        lambda w, v: (w * 2) @ tb.stack([v, v], axis=1),  # two matrices
    ],
)
def test_other_products_are_calls(function: Callable[..., Any]) -> None:
    _, program = program_of(record(function, spec(70, 96), spec(96)))
    assert "call matmul" in steps_by_name(program)


def generated(function: Callable[..., Any], *arrays: Any) -> tuple[Any, Any]:
    """Return the graph and the program of a device without a library."""
    specs = [spec(*x.shape, dtype=dt.dtype(x.dtype.name)) for x in arrays]
    layouts = [packed(k, s.shape) for k, s in enumerate(specs)]
    graph, _ = program_of(record(function, *specs))
    return graph, lower(graph, layouts, CPU, library=frozenset())


@pytest.mark.parametrize("columns", [5, 33, 96])
def test_a_generated_product_packs_what_it_computes(columns: int) -> None:
    x = RNG.normal(size=(40, 70)).astype("f4")
    q, scale = Q[:, :columns].copy(), SCALE[:columns].copy()
    _, program = generated(lambda x, q, s: x @ (q.to(tb.float32) * s), x, q, scale)
    names = [name for step in steps_by_name(program) for name in step.split("+")]
    assert len(names) == 2, names  # what packs, and the product
    assert sum("matmul" in name for name in names) == 1


@pytest.mark.parametrize(
    ("columns", "left", "kernels"),
    [
        (5, lambda x: tb.relu(x), 2),  # what packs the right operand, and the product
        (32, lambda x: (x - 1.5) * 0.3, 1),  # which lies as the product wants it
        (32, lambda x: tb.concat([x, x])[:40] + 1, 2),  # of more than two buffers
        (33, lambda x: tb.relu(x), 3),  # many columns would compute it again and again
        (5, lambda x: tb.exp(x), 3),  # as would functions
    ],
)
def test_a_generated_product_computes_a_cheap_left_operand(
    columns: int, left: Callable[..., Any], kernels: int
) -> None:
    x = RNG.normal(size=(40, 70)).astype("f4")
    _, program = generated(lambda x, w: left(x) @ w, x, W[:, :columns].copy())
    names = [name for step in steps_by_name(program) for name in step.split("+")]
    assert len(names) == kernels, names


@pytest.mark.parametrize("name", GENERATED_VECTORS)
def test_generated_vector_products_are_sums(name: str) -> None:
    graph, program = lowered(GENERATED_VECTORS[name])
    assert "matmul" in str(graph)
    assert not any("matmul" in step for step in steps_by_name(program))


def test_what_others_read_too_is_stored() -> None:
    x = RNG.normal(size=(40, 70)).astype("f4")
    _, program = generated(lambda x, w: (x @ (w * 2), w * 2), x, W)
    assert program.outputs[1].slot in program.sizes
    assert steps_by_name(program)[0] == "tb_multiply"
