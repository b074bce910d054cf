"""Losses as one kernel: the last task or workgroup to finish adds up what the rows come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused import CPU, THIN, check, program_of, record, steps_by_name, with_gradients
from tensorbus.dtypes import definition as dt
from tensorbus.errors import TensorbusError
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.loop_ir import LastTaskEpilogue
from tensorbus.lowering.ir.verify import verify
from tensorbus.lowering.program.program import steps_of
from tensorbus.ops.definition import Spec
from tensorbus_cpu.dialect import dialect as cpu
from tensorbus_cuda.dialect import dialect as cuda
from tensorbus_metal.dialect import dialect as metal

RNG = np.random.default_rng(5)
F = tb.nn.functional


def f(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("f4")


def chances(*shape: int) -> Any:
    return RNG.uniform(0.1, 0.9, size=shape).astype("f4")


def classes(count: int, *shape: int) -> Any:
    found = RNG.integers(0, count, shape)
    found.reshape(-1)[::7] = -100
    return found


def entropy(**options: Any) -> Callable[..., Any]:
    return lambda x, t, *weight: F.cross_entropy(x, t, *weight, **options)


X, T = f(300, 100), classes(100, 300)
CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "cross entropy": (entropy(), [X, T]),
    "cross entropy, sum": (entropy(reduction="sum"), [X, T]),
    "cross entropy, none": (entropy(reduction="none"), [X, T]),
    "cross entropy, another class ignored": (entropy(ignore_index=3), [X, np.abs(T) % 100]),
    "cross entropy, smoothed": (entropy(label_smoothing=0.1), [X, T]),
    "cross entropy, weighted": (entropy(), [X, T, chances(100)]),
    "cross entropy, weighted and smoothed": (entropy(label_smoothing=0.2), [X, T, chances(100)]),
    "cross entropy, probabilities": (entropy(), [X, chances(300, 100)]),
    "cross entropy, probabilities, sum": (entropy(reduction="sum"), [X, chances(300, 100)]),
    "cross entropy, probabilities, smoothed": (entropy(label_smoothing=0.1), [X, chances(300, 100), f(100)]),
    "cross entropy of one": (entropy(), [f(1, 100), np.asarray([4])]),
    "cross entropy of short rows": (entropy(), [f(300, 5), classes(5, 300)]),
    "cross entropy of many rows": (entropy(), [f(30_000, 40), classes(40, 30_000)]),
    "cross entropy of images": (entropy(), [f(4, 7, 16, 16), classes(7, 4, 16, 16)]),
    "log_softmax, then nll": (lambda x, t: F.nll_loss(tb.log_softmax(x, axis=-1), t), [X, T]),
    "bce": (F.binary_cross_entropy, [chances(300, 100), chances(300, 100)]),
    "bce of logits": (F.binary_cross_entropy_with_logits, [X, chances(300, 100)]),
    "mse": (F.mse_loss, [X, f(300, 100)]),
    "mse of many": (F.mse_loss, [f(700, 1000), f(700, 1000)]),
    "group norm": (lambda x, w, b: F.group_norm(x, 4, w, b), [f(3, 16, 14, 14), f(16), f(16)]),
    "group norm of vectors": (lambda x, w, b: F.group_norm(x, 2, w, b), [f(30, 160), f(160), f(160)]),
    "softmax of what a mask leaves": (
        lambda x, m: tb.softmax(tb.where(m, x, float("-inf")), axis=-1), [f(2, 4, 60, 60), f(60, 60) > -1]
    ),
    "softmax of scores and a mask": (
        lambda x, m: tb.softmax(x * 0.125 + m, axis=-1), [f(2, 4, 60, 60), f(60, 60)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_one_kernel_and_right(name: str) -> None:
    function, arrays = CASES[name]
    program = check(function, *arrays, tolerance=1e-4)
    assert len(steps_by_name(program)) == 1, str(program)


def with_loss(x: Any, t: Any) -> Any:
    x.requires_grad_()
    loss = F.cross_entropy(x, t)
    loss.backward()
    return loss, x.grad


def test_the_loss_and_its_gradient_are_one_kernel_beside_the_count() -> None:
    program = check(with_loss, X, T, tolerance=1e-4)
    assert steps_by_name(program) == ["tb_sum", "tb_rows_subtract_sum_1"], str(program)


def test_the_gradient_has_no_walk_of_its_own_for_the_class_and_is_in_vectors() -> None:
    specs = (Spec((512, 1000), dt.float32), Spec((512,), dt.int64))
    graph, program = program_of(record(with_loss, *specs), cpu(half=True, lanes=8).target)
    assert [n.op for n in graph].count("sum") == 3, "of the powers, the losses and the targets that count"
    text = str(list(program.kernels())[-1])
    assert "ramp()" in text, text


def test_logits_are_kept_once() -> None:
    def step(h: Any, w: Any, t: Any) -> Any:
        for x in (h, w):
            x.requires_grad_()
        loss = F.cross_entropy(h @ w, t)
        loss.backward()
        return loss, h.grad, w.grad

    arrays = [f(256, 64), f(64, 1001), classes(1001, 256)]
    program = check(step, *arrays, tolerance=1e-3)
    assert [size for size, _ in program.sizes.values() if size >= 256 * 1001] == [256 * 1001], str(program)


def test_it_starts_again_from_nothing() -> None:
    compiled = tb.compile(entropy())
    for _ in range(3):
        x = tb.asarray(f(5000, 60))
        t = tb.asarray(RNG.integers(0, 60, 5000))
        np.testing.assert_allclose(compiled(x, t).item(), F.cross_entropy(x, t).item(), rtol=1e-5)


def test_a_class_that_is_not_there_leaves_no_count_behind() -> None:
    compiled = tb.compile(entropy())
    x, t = tb.asarray(f(5000, 60)), RNG.integers(0, 60, 5000)
    wrong = t.copy()
    wrong[17] = 60
    compiled(x, tb.asarray(t))
    for _ in range(2):
        with pytest.raises(tb.errors.IndexingError):
            compiled(x, tb.asarray(wrong)).item()
        found = compiled(x, tb.asarray(t)).item()
        np.testing.assert_allclose(found, F.cross_entropy(x, tb.asarray(t)).item(), rtol=1e-5)


def test_devices_whose_items_do_not_see_each_other_take_two_kernels() -> None:
    function, arrays = CASES["cross entropy"]
    graph = record(function, *(Spec(a.shape, dt.dtype(str(a.dtype))) for a in arrays))
    for target in (THIN, replace(CPU, last_task_epilogue=False)):
        _, program = program_of(graph, target)
        assert len(steps_by_name(program)) > 1
    _, program = program_of(graph)
    (kernel,) = program.kernels()
    assert isinstance(verify(kernel).body[-1], LastTaskEpilogue)
    assert "last of n0:" in str(kernel)
    for own in (cuda(100), metal()):
        with pytest.raises(TensorbusError, match="last"):
            render(kernel, own)


def test_what_is_read_meanwhile_is_no_end() -> None:
    """A sum that something between needs stays a step of its own."""
    rows = check(lambda x: (tb.softmax(x, axis=-1).sum(axis=-1) * 2).sum() + x, X, tolerance=1e-4)
    assert all(len(steps_of(item)) == 1 for item in rows.steps)


def test_gradients_of_losses() -> None:
    for name in ("mse", "bce of logits"):
        function, arrays = CASES[name]
        check(with_gradients(function, 1), *arrays, np.asarray(1.5, "f4"), tolerance=1e-4)
