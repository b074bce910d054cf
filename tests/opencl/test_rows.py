"""What normalizes rows is one kernel; reductions in vectors, in panels and by blocks agree with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.dtypes import definition as dt
from tensorbus.kernels import open_shapes
from tensorbus.ops.movement.movement import pad

from error_bounds import assert_within, gamma, stored
from opencl_bench import Bench, numpy_dtype

RNG = np.random.default_rng(0)


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def standardized(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


OPS: dict[str, tuple[dict[str, Any], Any]] = {
    "softmax": ({"axis": -1}, softmax), "log_softmax": ({"axis": -1}, lambda x: np.log(softmax(x))),
    "standardize": ({"rank": 1, "eps": 1e-5}, standardized),
}  # fmt: skip


def launches(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of each kernel is added that a new call prepares."""
    compiler = bench.runtime.compiler
    names: list[str] = []
    prepare = compiler.prepare

    def noting(source: str, launch: Any, index: int) -> Any:
        names.append(launch.kernel.name)
        return prepare(source, launch, index)

    monkeypatch.setattr(compiler, "prepare", noting)
    monkeypatch.setattr(open_shapes, "SHAPES_BEFORE_PLAN", 99)
    return names


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", OPS)
def test_one_kernel_normalizes_rows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, op: str, kind: str
) -> None:
    attrs, reference = OPS[op]
    wide = "float64" if kind == "float64" else "float32"
    for shape in ((64, 33), (5, 7, 100), (40, 1000), (17, 4097)):
        x = RNG.normal(size=shape).astype(numpy_dtype(dt.dtype(kind)))
        value = bench.put(x, dt.dtype(kind))
        names = launches(bench, monkeypatch)
        got = bench.get(bench.prepare(op, (value,), **attrs)(value))
        wanted = reference(x.astype("f8"))
        size = np.abs(wanted)  # and 1, of which a logarithm is taken, or about which the means are
        bound = 2 * gamma(shape[-1] + 8, wide) * (size + (op != "softmax"))
        assert_within(got, wanted, bound + stored(size, kind) * (kind in ("float16", "bfloat16")))
        if bench.runtime.unit(0).dialect.target.row_per_task:
            assert len(names) == 1, f"{op} over {shape} took {names}"


def test_rows_of_special_values() -> None:
    x = np.zeros((5, 40), "f4")
    x[0], x[1, 3], x[2, 5], x[3, ::2] = -np.inf, np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        wanted = softmax(x.astype("f8"))
    actual = tb.softmax(tb.asarray(x, device="opencl"), axis=1).numpy()
    assert_within(actual, wanted, gamma(1, "float32") / 20)  # shares of ones, whose sum is exact


def test_one_source_serves_every_length(bench: Bench) -> None:
    """A length is a parameter, also where it comes as the factor of a mean."""
    for op, (attrs, _) in OPS.items():
        built = -1
        for length in (40, 77, 90):
            value = bench.put(RNG.normal(size=(20, length)).astype("f4"))
            bench.prepare(op, (value,), **attrs)(value)
            loaded = bench.runtime.compiler.loaded.loads
            assert built in (-1, loaded), f"{op} was compiled again for length {length}"
            built = loaded


ONE = """negative abs square reciprocal sqrt rsqrt exp expm1 log log1p log2 log10 asin acos atan
    sinh cosh tanh asinh acosh atanh erf floor ceil trunc round""".split()
TWO = "add subtract multiply divide maximum minimum atan2 power".split()


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("op", [*ONE, *TWO])
def test_long_arrays_give_what_short_ones_give(bench: Bench, op: str, kind: str) -> None:
    """Long arrays are walked in vectors; another way of writing a function may cost a last digit."""
    special = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-3, 30.0, np.inf, -np.inf, np.nan, 1e-30]
    x = np.concatenate([np.tile(special, 40), RNG.normal(size=4900) * 3]).astype(kind)
    operands = (x,) if op in ONE else (x, np.roll(x, 7))
    got = bench.run(op, *operands)
    pieces = [bench.run(op, *(part[k : k + 200] for part in operands)) for k in range(0, len(x), 200)]
    wanted = np.concatenate(pieces)
    # The digits that power loses are those of the exponent's logarithm.
    size = np.abs(np.where(np.isfinite(wanted), wanted, 0)).astype("f8")
    exponent = np.abs(np.log(np.where(size == 0, 1, size))) if op == "power" else 0
    relative = gamma(4, kind) * (1 + exponent)
    assert_within(got, wanted, relative * size + float(np.finfo("f4").tiny))  # below which may be zero
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(wanted[wanted == 0]))


def test_choices_in_long_arrays() -> None:
    x = np.tile([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -2.5, 700.0], 300)
    for kind in ("float32", "float64"):
        a = x.astype(kind)
        operand = tb.asarray(a, device="opencl")
        with np.errstate(all="ignore"):
            for actual, exact in (
                (tb.logaddexp(operand, operand), x + np.log(2)), (tb.sigmoid(operand), 1 / (1 + np.exp(-x))),
            ):  # fmt: skip
                size = np.abs(np.where(np.isfinite(exact), exact, 0))
                tiny = float(np.finfo("f4").tiny)  # below which may be zero
                assert_within(actual.numpy(), exact, gamma(2, kind) * size + tiny)
        padded = pad(operand, (3,), (2,), -1.0).numpy()
        np.testing.assert_array_equal(padded, np.pad(a, (3, 2), constant_values=-1))


SHAPES = [(70000,), (40, 50), (600, 2000), (5000, 64), (3, 1500, 130), (130, 3, 700), (33, 1, 70)]


@pytest.mark.full
@pytest.mark.parametrize("op", ["sum", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("special", [None, np.nan, -np.inf, np.inf])
def test_reductions_over_every_axis(op: str, special: float | None) -> None:
    for shape in SHAPES:
        x = RNG.integers(-9, 9, shape).astype("f4")
        if special is not None:
            x.reshape(-1)[RNG.integers(0, x.size, 3)] = special
        for turned in (False, True):
            operand, same = tb.asarray(x, device="opencl"), x
            if turned:
                operand, same = tb.permute_dims(operand, tuple(range(x.ndim))[::-1]), x.T
            for axis in (None, *range(x.ndim)):
                with np.errstate(all="ignore"):
                    wanted = getattr(np, op)(same, axis=axis)
                np.testing.assert_array_equal(getattr(tb, op)(operand, axis=axis).numpy(), wanted)


def test_rows_of_one_infinity_have_their_extreme_in_the_first_place() -> None:
    x = tb.full((3, 2000), -float("inf"), device="opencl")
    assert tb.argmax(x, axis=1).tolist() == [0, 0, 0]
    assert tb.argmax(x, axis=0).tolist() == [0] * 2000
    assert tb.argmax(x).item() == 0


@pytest.mark.parametrize("kind", ["bool", "int8", "float16", "float32", "complex128"])
def test_transposes(kind: str) -> None:
    for shape in ((16, 16), (64, 64), (17, 33), (3, 40, 50), (40, 3, 50), (9, 200)):
        x = (RNG.normal(size=shape) * 5).astype(kind)
        operand = tb.asarray(x, device="opencl")
        for axes in ((1, 0, 2), (2, 1, 0), (1, 2, 0)) if len(shape) == 3 else ((1, 0),):
            turned = x.transpose(axes)
            flat = tb.reshape(tb.permute_dims(operand, axes), (-1,)).numpy()
            np.testing.assert_array_equal(flat, turned.reshape(-1))
