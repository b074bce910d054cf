"""Fusion groups that are scheduled once: equal ones share a kernel, others that only look equal do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused import check, program_of, record, spec
from tensorbus.lowering.fusion import kernel_cache as repeated
from tensorbus.lowering.ir.kernel_task import KernelLaunch
from tensorbus.lowering.program.program import steps_of

RNG = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("f4")


def layers(count: int) -> Callable[..., Any]:
    def model(x: Any, *weights: Any) -> Any:
        for w in weights[:count]:
            x = x + tb.softmax(tb.exp(x * 0.5) @ w, axis=1)
        return x

    return model


def launches(function: Callable[..., Any], *arrays: Any) -> list[KernelLaunch]:
    _, program = program_of(record(function, *[spec(*x.shape) for x in arrays]))
    return [step for item in program.steps for step in steps_of(item)]


def test_layers_share_their_kernels() -> None:
    few, many = (launches(layers(n), f(64, 64), *[f(64, 64) for _ in range(n)]) for n in (3, 6))
    assert len(many) == len(few) + 3
    assert len({id(step.launch.kernel) for step in many}) == 3


@pytest.mark.parametrize("count", [2, 4])
def test_layers_are_right(count: int) -> None:
    check(layers(count), f(64, 64), *[f(64, 64) / 8 for _ in range(count)])


def test_programs_that_differ_in_what_is_the_same_buffer_are_right() -> None:
    x, y, z = f(7, 40), f(7, 40), f(7, 40)
    for function, given in (
        (lambda a, b: (tb.exp(a) * b).sum(axis=1), [x, y]),
        (lambda a, b: (tb.exp(a) * a).sum(axis=1), [x, y]),
        (lambda a, b, c: ((tb.exp(a) * b).sum(axis=1), (tb.exp(a) * c).sum(axis=1)), [x, y, z]),
        (lambda a, b, c: ((tb.exp(a) * b).sum(axis=1), (tb.exp(b) * c).sum(axis=1)), [x, y, z]),
    ):
        check(function, *given)


def test_what_was_scheduled_once_is_found_again_in_another_program() -> None:
    (first,) = launches(lambda a, b: tb.tanh(a) * b + 1.25, f(5, 6), f(5, 6))
    other = launches(lambda c, a, b: (c.sum(), tb.tanh(a) * b + 1.25), f(9), f(5, 6), f(5, 6))
    assert any(step.launch.kernel is first.launch.kernel for step in other)


def test_few_schedules_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "MAX_SCHEDULES", 2)
    for n in range(3, 8):
        launches(lambda a: tb.exp(a) + 1, f(n))
    assert len(repeated._known) <= 2
