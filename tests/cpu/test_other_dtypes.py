"""Programs with dtypes that C lacks: their ops are eager kernels, everything else is code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.compiler.programs import program_cache as executables

from error_bounds import assert_within, gamma

RNG = np.random.default_rng(1)


def steps(function: Any, *arguments: Any) -> list[str]:
    """Return what a compiled function's program does, after it was compared with the function."""
    executables.clear()
    compiled = tb.compile(function)
    for _ in range(3):
        actual = compiled(*arguments)
    right = function(*arguments)
    for ours, expected in zip(actual, right, strict=True):
        assert ours.dtype is expected.dtype
        bound = gamma(16, "float32") * abs(expected.numpy()).max(initial=0)  # sums of eight, and ops before
        assert_within(ours.numpy(), expected.numpy(), bound)
    (program,) = executables._programs.values()
    return [part.name.partition(" ")[2] for part in program.executable.parts()]


def test_only_the_ops_concerned_are_calls() -> None:
    def f(x: Any, z: Any) -> Any:
        y = tb.exp(x) * 2 + 1
        c = z * (1 + 2j) + y
        return tb.abs(c) + y, c, tb.real(c).sum(axis=0)

    z = tb.asarray((RNG.random((5, 8)) + 1j * RNG.random((5, 8))).astype("c8"))
    kernels = steps(f, tb.rand(5, 8), z)
    calls = sorted(name for name in kernels if name.startswith("call"))
    assert calls == [
        "call abs", "call add", "call cast", "call full", "call multiply", "call real",
    ]  # fmt: skip
    assert sum(name.startswith("tb_") for name in kernels) == 3


def test_a_number_of_each_run_reaches_a_complex_op() -> None:
    compiled = tb.compile(lambda z, s: z * s + 1, dynamic=None)
    z = tb.asarray(np.array([1 + 1j, 2 - 3j], "c8"))
    for value in (0.5, 2.0, 1 - 2j, 3.5):
        want = z.numpy() * value + 1
        assert_within(compiled(z, value).numpy(), want, gamma(4, "float32") * (abs(z.numpy() * value) + 1))


def test_views_and_layouts_of_other_dtypes() -> None:
    def f(z: Any, x: Any) -> Any:
        return tb.flip(z, axis=0).reshape(-1), tb.permute_dims(z, (1, 0)) * 2, x * 2 + 1

    z = tb.asarray((RNG.random((3, 4)) + 1j).astype("c16"))
    kernels = steps(f, tb.permute_dims(z, (1, 0)), tb.rand(7))
    assert any(name.startswith("tb_") for name in kernels)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_small_floats_are_stored_between_code(dtype: str) -> None:
    def f(x: Any) -> Any:
        small = tb.cast(tb.tanh(x) * 0.5, getattr(tb, dtype))
        return (tb.cast(small, tb.float32) + 1,)

    kernels = steps(f, tb.rand(40))
    assert "call cast" in kernels
    assert any(name.startswith("tb_") for name in kernels)


def test_a_transform_stays_whole() -> None:
    kernels = steps(lambda x: (tb.abs(tb.fft.fft(x)) * 2,), tb.rand(4, 16))
    assert "call fft" in kernels
