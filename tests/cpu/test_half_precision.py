"""Half precision in vectors: every conversion to the bit, chains that round after each op, rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from fused import program_of, record, steps_by_name
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.codegen.render import kernel_parts
from tensorbus.lowering.ir.loop_ir import Const, Let, LoopKernel, Var
from tensorbus.lowering.ir.verify import verify
from tensorbus.ops.definition import Spec
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.dialect import dialect

from error_bounds import assert_alike, assert_within, gamma, stored
from generated_c import execute

RNG = np.random.default_rng(11)
KINDS: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LARGE = (1 << 16) + 5
"""Enough for vectors of our own, and some elements that fill none."""


def run(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    compiler = NATIVE.compiler()
    if not hasattr(os, "fork"):
        pytest.skip("C is compiled on Unix only")
    assert compiler is not None, "no C compiler"
    specs = [Spec(a.shape, dt.dtype(str(a.dtype))) for a in arrays]
    graph, program = program_of(record(function, *specs), compiler.dialect(0).target)
    for kernel in program.kernels():
        verify(kernel)
    stored = [a if a.dtype != ml_dtypes.bfloat16 else a.view("u2") for a in arrays]
    result = execute(program, graph, stored)
    return [
        m.view(ml_dtypes.bfloat16) if node.spec.dtype is dt.bfloat16 else m
        for m, node in zip(result, graph.outputs, strict=True)
    ]


def same_bits(got: Any, wanted: Any) -> None:
    """Equal to the bit, but for what is no number."""
    assert got.dtype == wanted.dtype
    number = ~np.isnan(wanted.astype("f4"))
    np.testing.assert_array_equal(np.isnan(got.astype("f4")), ~number)
    whole = f"u{got.dtype.itemsize}"
    np.testing.assert_array_equal(got.view(whole)[number], wanted.view(whole)[number])


def near_singles(kind: Any) -> Any:
    """All numbers of a narrow dtype, what lies in the middle of two, and a little to both sides of it."""
    every = np.arange(1 << 16, dtype="u2").view(kind).astype("f4")
    bits = every.view("u4")
    half = np.uint32(1 << (12 if kind is np.float16 else 15))
    middles = bits + half  # of numbers that are normal in the dtype
    with np.errstate(all="ignore"):
        small = (every.astype("f8") + 2.0**-25 * np.sign(every)).astype("f4")
    special = np.asarray([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001, 0x7FC00000, 1, 0x80000001], "u4")
    results = [bits, middles, middles - np.uint32(1), middles + np.uint32(1), small.view("u4"), special]
    return np.concatenate(results).view("f4")


@pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_conversions_are_exact(name: str, vectors: bool) -> None:
    kind, dtype = KINDS[name], dt.dtype(name)
    count = LARGE if vectors else 60_000  # which compilers make the vectors of
    x = near_singles(kind)
    for start in range(0, len(x), count):
        part = x[start : start + count]
        (narrow,) = run(lambda v: tb.astype(v, dtype), part)
        same_bits(narrow, part.astype(kind))
    every = np.arange(1 << 16, dtype="u2").view(kind)
    (wide,) = run(lambda v: tb.astype(v, dt.float32), every)
    same_bits(wide, every.astype("f4"))


def chain(x: Any, y: Any) -> Any:
    z = tb.maximum(x * y + x, y) - tb.sqrt(tb.abs(x))
    return tb.where(z < x, z / (y * y + 1), -z)


def mixed(x: Any, y: Any) -> Any:
    wide = tb.astype(x, dt.float32) * 1.7 + tb.astype(y, dt.float32)
    return tb.astype(wide, x.dtype) * y, wide


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("function", [chain, mixed])
@pytest.mark.parametrize("name", KINDS)
def test_each_op_rounds_as_eagerly(name: str, function: Callable[..., Any]) -> None:
    kind = KINDS[name]
    x, y = (RNG.normal(size=LARGE).astype(kind) * kind(2.0) for _ in range(2))
    x[:4] = np.asarray([np.nan, np.inf, -np.inf, -0.0]).astype(kind)
    y[2:6] = np.asarray([np.inf, np.nan, np.inf, -np.inf]).astype(kind)
    result = function(tb.asarray(x), tb.asarray(y))
    for got, wanted in zip(
        run(function, x, y), result if isinstance(result, tuple) else (result,), strict=True
    ):
        same_bits(got, wanted.numpy())


FUNCTIONS = "exp tanh erf sqrt rsqrt reciprocal floor round abs negative square".split()


@pytest.mark.filterwarnings("ignore:.*encountered in")
@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize("name", KINDS)
def test_what_is_no_number_stays_none(name: str, op: str) -> None:
    """Also where it is rounded in between: nothing may be carried into its sign or its exponent."""
    every = np.arange(1 << 16, dtype="u2").view(KINDS[name])
    x = np.concatenate([every, every])

    def twice(v: Any) -> Any:
        result = getattr(tb, op)(v)
        return result, result + v

    wanted = twice(tb.asarray(x))
    for got, expected in zip(run(twice, x), wanted, strict=True):
        np.testing.assert_array_equal(np.isnan(got.astype("f4")), np.isnan(expected.numpy().astype("f4")))


ROWS: dict[str, tuple[Callable[..., Any], tuple[int, int]]] = {
    "softmax": (lambda x: tb.softmax(x, axis=-1), (300, 1003)),
    "softmax that goes past the caches": (lambda x: tb.softmax(x, axis=-1), (4100, 4096)),
    "layer norm": (lambda x: tb.layer_norm(x, 1003), (300, 1003)),
    "sums": (lambda x: tb.sum(x, axis=-1), (300, 1003)),
    "maxima": (lambda x: (tb.max(x, axis=-1), x + 1), (300, 1003)),
    "all": (lambda x: tb.sum(x), (300, 1003)),
    "places": (lambda x: tb.argmax(x, axis=-1), (300, 1003)),
}


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.parametrize("name", KINDS)
def test_rows_are_those_of_single_precision_rounded(name: str, case: str) -> None:
    function, shape = ROWS[case]
    x = RNG.normal(size=shape).astype(KINDS[name])
    result = function(tb.asarray(x.astype("f4")))
    for got, single in zip(run(function, x), result if isinstance(result, tuple) else (result,), strict=True):
        wanted = single.numpy()
        if got.dtype == np.int64:
            np.testing.assert_array_equal(got, wanted)
            continue
        top = 2 * gamma(shape[1], "float32") * np.abs(wanted).max()
        assert_within(got, wanted, top + stored(abs(wanted.astype("f8")) + top, name))


def in_double(x: Any) -> Any:
    return tb.astype(x, dt.float64)


DOUBLES: dict[str, Callable[..., Any]] = {
    "maxima": lambda x, y: tb.max(in_double(x), axis=-1),
    "all": lambda x, y: tb.sum(in_double(x)),
    "softmax": lambda x, y: tb.softmax(in_double(x), axis=-1),
    "places": lambda x, y: tb.argmax(in_double(x), axis=-1),
    "with others": lambda x, y: (tb.sum(x * y, axis=-1), tb.where(y > 0, in_double(x), y)),
    "beside functions": lambda x, y: (tb.sum(tb.exp(tb.astype(x, dt.float32)), axis=-1), in_double(x) + y),
}


@pytest.mark.parametrize("case", DOUBLES)
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.full
def test_rows_in_double_precision(name: str, case: str) -> None:
    """The vectors of halves are ones of float32, of which double precision has none."""
    x, y = RNG.normal(size=(300, 1003)).astype(KINDS[name]), RNG.normal(size=(300, 1003))
    result = DOUBLES[case](tb.asarray(x), tb.asarray(y))
    expected = result if isinstance(result, tuple) else (result,)
    for got, right in zip(run(DOUBLES[case], x, y), expected, strict=True):
        wanted = right.numpy()
        assert got.dtype == wanted.dtype
        assert_alike(got, wanted, x.size if case == "all" else 1003 + 8)


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("name", KINDS)
def test_the_generated_code_has_them_in_vectors(name: str, lanes: int) -> None:
    own = dialect(half=True, lanes=lanes)
    dtype = dt.dtype(name)
    operand = Spec((1 << 12, 1 << 12), dtype)
    for function in (
        lambda x: tb.tanh(x) * x + x,
        lambda x: tb.softmax(x, axis=-1),
        lambda x: tb.sum(x, axis=-1),
    ):
        _, program = program_of(record(function, operand), own.target)
        assert len(steps_by_name(program)) == 1
        (kernel,) = program.kernels()
        helpers, text = kernel_parts(kernel, own)
        short = {"float16": "half", "bfloat16": "bfloat"}[name]
        assert any(f"tb_load_{short}_{lanes}" in source for source in helpers)
        assert f"tb_load_{short}_{lanes}(" in text


def written(value: float, dtype: dt.DType) -> str:
    """Return how a kernel has a number."""
    numbers = (Let(Var("number", dtype), Const(value, dtype)),)
    lines = kernel_parts(LoopKernel("tb_number", (), (), numbers), dialect(half=True, lanes=0))[
        1
    ].splitlines()
    return next(line.partition(" = ")[2] for line in lines if "number =" in line)


@pytest.mark.parametrize("name", KINDS)
def test_numbers_are_rounded_where_kernels_are_written(name: str) -> None:
    """As a cast from float32 rounds them, to the bit."""
    ties = [1.00048828125, 1.00146484375, 1.00390625, 1.01171875, 3e-8, 6e-8, 1e-40, 65519.9, 65520.0, 3.4e38]
    drawn = RNG.standard_normal(50) * 10.0 ** RNG.integers(-9, 5, 50)
    for value in (0.1, -0.0, 1e300, -1e300, *ties, *drawn.tolist()):
        with np.errstate(over="ignore"):
            held = float(np.float32(value).astype(KINDS[name]))
        assert written(value, dt.dtype(name)) == written(held, dt.float32)
