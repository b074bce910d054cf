"""What programs that fuse compute in C; what they are lowered to: tests/core/lowering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused import program_of, record, spec
from fused_programs import (
    COLUMNS,
    EPILOGUES,
    FUSION,
    GENERATED_VECTORS,
    IN_PLACE,
    LOSSES,
    OF_A_TOY,
    ORDER,
    RECOMPUTED,
    SHARED_KERNELS,
    VECTORS,
)
from tensorbus.dtypes import definition as dt

from error_bounds import assert_as_exact_as_eager, assert_within, gamma
from generated_c import check, execute

RNG = np.random.default_rng(0)
F = tb.nn.functional
FAMILIES = {
    "fusion": FUSION, "in place": IN_PLACE, "order": ORDER, "shared kernels": SHARED_KERNELS,
    "columns": COLUMNS, "epilogues": EPILOGUES, "losses": LOSSES, "vectors": VECTORS,
    "generated vectors": GENERATED_VECTORS, "recomputed": RECOMPUTED, "a schedule of the target": OF_A_TOY,
}  # fmt: skip

CASES = [
    pytest.param(family, name, marks=pytest.mark.fast if place in (0, len(cases) // 2) else pytest.mark.full)
    for family, cases in FAMILIES.items()
    for place, name in enumerate(cases)
]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_it_computes_what_the_ops_do_one_by_one(family: str, name: str) -> None:
    check(FAMILIES[family][name], f"{family}: {name}")


def test_a_number_of_each_run_is_a_parameter() -> None:
    graph, program = program_of(record(lambda x, y: x * y + x, spec(50), spec()), scalars=(1,))
    x = RNG.normal(size=50).astype("f4")
    for value in (2.0, -0.5):
        result = execute(program, graph, [x, value])[0]
        wide = x.astype("f8")
        assert_within(result, wide * value + wide, gamma(2, "float32") * (abs(wide * value) + abs(wide)))


def holds(loss: Any, x: Any, t: Any) -> None:
    exact = F.cross_entropy(x.to("float64"), t).item()
    eager = F.cross_entropy(x, t).item()
    assert_as_exact_as_eager(loss.item(), eager, exact, x.shape[0] + x.shape[1], "float32")


def test_it_starts_again_from_nothing() -> None:
    compiled = tb.compile(F.cross_entropy)
    for _ in range(3):
        x, t = tb.asarray(RNG.normal(size=(5000, 60)).astype("f4")), tb.asarray(RNG.integers(0, 60, 5000))
        holds(compiled(x, t), x, t)


def test_a_class_that_is_not_there_leaves_no_count_behind() -> None:
    compiled = tb.compile(F.cross_entropy)
    x, t = tb.asarray(RNG.normal(size=(5000, 60)).astype("f4")), RNG.integers(0, 60, 5000)
    wrong = t.copy()
    wrong[17] = 60
    compiled(x, tb.asarray(t))
    for _ in range(2):
        with pytest.raises(tb.errors.IndexingError):
            compiled(x, tb.asarray(wrong)).item()
        holds(compiled(x, tb.asarray(t)), x, tb.asarray(t))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_products_round_once(dtype: str) -> None:
    """What is computed keeps its dtype; products of narrow floats add up in float32, as those of matrices."""
    w, v = (tb.asarray(RNG.normal(size=s).astype("f4")).to(dtype) for s in ((70, 96), (96,)))
    ours = tb.compile(lambda w, v: (w * 1.5) @ v)(w, v)
    right = (w * 1.5).to("float64").numpy() @ v.to("float64").numpy()
    assert ours.dtype is dt.dtype(dtype)
    size = np.abs(w.to("float64").numpy()) @ np.abs(v.to("float64").numpy())
    assert np.all(np.abs(ours.to("float64").numpy() - right) <= tb.finfo(dtype).eps * (np.abs(right) + size))


def test_moving_numbers_and_gradients_go_through() -> None:
    w, v = RNG.normal(size=(70, 96)).astype("f4"), RNG.normal(size=96).astype("f4")
    weight = tb.asarray(w).requires_grad_()
    step = tb.compile(lambda w, v, a: tb.sum(tb.sin(w * a) @ v))
    for a in (0.5, 1.5, 2.5):
        (grads,) = tb.grad(step(weight, tb.asarray(v), a), [weight])
        wide = w.astype("f8") * a
        # The cosine is of a rounded argument: off by that times the sine.
        bound = gamma(6, "float32") * abs(a * v) * (abs(np.cos(wide)) + abs(wide * np.sin(wide)))
        assert_within(grads.numpy(), np.cos(wide) * a * v, bound)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_a_mode_changes_no_result(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any, w: Any) -> Any:
        return tb.softmax(F.gelu(x @ w), axis=-1), (x * 2).sum(axis=0)

    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))
    x, w = (tb.asarray(RNG.normal(size=s).astype("f4")) for s in ((40, 30), (30, 50)))
    exact = f(x.to("float64"), w.to("float64"))
    for actual, eager, right in zip(tb.compile(f, mode=mode)(x, w), f(x, w), exact, strict=True):
        assert_as_exact_as_eager(actual.numpy(), eager.numpy(), right.numpy(), 30 + 50, "float32")
