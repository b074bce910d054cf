"""Kernels whose vectors are written out: each op beside NumPy, the ends of rows, and special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.backend_interface.compilation import CompileRequest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.dtypes import definition as dt
from tensorbus.ops.definition import Spec, table
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.native.cpu_features import ask

from error_bounds import assert_within, gamma, unit

TOOLS = NATIVE.compiler()
LANES = 0 if TOOLS is None else TOOLS.lanes
ODD = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, 0.5, 1.5, 2.5, -0.5, -1.5)
EPS = float(np.finfo(np.float32).eps)
UNARY: dict[str, tuple[Callable[[Any], Any], float]] = {
    "negative": (np.negative, 0), "abs": (np.abs, 0), "square": (np.square, 1), "sqrt": (np.sqrt, 1),
    "reciprocal": (np.reciprocal, 1), "rsqrt": (lambda x: 1 / np.sqrt(x), 2), "exp": (np.exp, 1),
    "tanh": (np.tanh, 3), "erf": (np.vectorize(math.erf), 3), "floor": (np.floor, 0), "ceil": (np.ceil, 0),
    "trunc": (np.trunc, 0), "round": (np.rint, 0),
}  # fmt: skip


@pytest.fixture(autouse=True, params=[n for n in (8, 16) if n <= LANES] or [0])
def lanes(request: Any, monkeypatch: Any, tmp_path: Any) -> Any:
    """Write vectors whatever the size, of as many lanes as this processor has, and of fewer."""
    if TOOLS is not None:
        monkeypatch.setitem(vars(TOOLS), "lanes", request.param)
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))
    return request.param


def input_node(k: int, *shape: int) -> Node:
    return Node(op="input", attrs={"index": k}, spec=Spec(shape, dt.float32))


def apply(name: str, *inputs: Node, **attrs: Any) -> Node:
    return Node(
        op=name, inputs=inputs, attrs=attrs, spec=table[name].specs(tuple(x.spec for x in inputs), attrs)[0]
    )


def compiled(inputs: tuple[Node, ...], *results: Node) -> Any:
    lowering = plugins.backend("cpu").lowering()
    assert lowering is not None
    graph, chosen = (
        Graph(inputs=inputs, outputs=results),
        {"vector_function_min_elements": 1, "nontemporal_min_bytes": 1},
    )
    compiled = lowering.compile(CompileRequest(graph=graph, index=0, replaces={}, chosen=chosen))
    own = next(text for name, text in compiled.stages().items() if name == "code").partition("tb_slot;")[2]
    assert TOOLS is None or (f"const tb_float_{TOOLS.lanes} " in own) == (TOOLS.lanes > 0)
    return compiled


def numbers(size: int) -> Any:
    rng = np.random.default_rng(5)
    result = rng.standard_normal(size).astype(np.float32) * np.float32(10.0) ** rng.integers(-3, 3, size)
    result = result.astype(np.float32)
    result[: len(ODD)] = ODD
    result[-len(ODD) :] = ODD
    return result


def check(got: Any, want: Any, epsilons: float) -> None:
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
    odd = ~np.isfinite(rounded)
    np.testing.assert_array_equal(got[odd], rounded[odd])
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    error = np.abs(got[~odd].astype(np.float64) - want[~odd])
    assert (error <= epsilons * EPS * np.abs(want[~odd]) + (1.5e-45 if epsilons else 0)).all()


@pytest.mark.parametrize("op", sorted(UNARY))
def test_functions_of_one(op: str) -> None:
    x, a = input_node(0, 2053), numbers(2053)
    function, epsilons = UNARY[op]
    (got,) = compiled((x,), apply(op, x))([a])
    with np.errstate(all="ignore"):
        check(got, function(a.astype(np.float64)), epsilons)


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
def test_functions_of_two(op: str) -> None:
    x, y = input_node(0, 2053), input_node(1, 2053)
    a = numbers(2053)
    b = np.roll(a, 7)
    (got,) = compiled((x, y), apply(op, x, y))([a, b])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, getattr(np, op)(a, b))


@pytest.mark.parametrize("op", ["less", "greater_equal", "equal", "not_equal", "isnan", "isinf", "isfinite"])
def test_choices(op: str) -> None:
    x, y = input_node(0, 2053), input_node(1, 2053)
    a = numbers(2053)
    b = np.where(np.arange(2053) % 3 == 0, a, np.roll(a, 5)).astype(np.float32)
    two = not op.startswith("is")
    condition = apply(op, x, y) if two else apply(op, x)
    (got,) = compiled((x, y), apply("where", condition, apply("negative", x), y))([a, b])
    chosen = getattr(np, op)(a, b) if two else getattr(np, op)(a)
    np.testing.assert_array_equal(got, np.where(chosen, -a, b))


@pytest.mark.parametrize("shape", [(5, 512), (3, 2053), (2, 4096), (1, 5001)])
def test_softmax_of_rows(shape: tuple[int, int]) -> None:
    x = input_node(0, *shape)
    top = apply("max", x, axis=(1,), keepdims=True)
    e = apply("exp", apply("subtract", x, top))
    (got,) = compiled((x,), apply("divide", e, apply("sum", e, axis=(1,), keepdims=True, dtype=dt.float32)))(
        [a := np.random.default_rng(3).standard_normal(shape).astype(np.float32) * 20]
    )
    want = np.exp(a.astype(np.float64) - a.max(axis=1, keepdims=True))
    want /= want.sum(axis=1, keepdims=True)
    # A difference from the top that is rounded moves its exponential as far, and nothing is below the least.
    relative = unit("float32") * (a.max(axis=1, keepdims=True) - a) + gamma(shape[1], "float32")
    assert_within(got, want, relative * want + 2.0**-146)


def test_a_row_with_nan_is_nan_alone() -> None:
    x = input_node(0, 3, 520)
    top = apply("max", x, axis=(1,), keepdims=True)
    e = apply("exp", apply("subtract", x, top))
    run = compiled((x,), apply("divide", e, apply("sum", e, axis=(1,), keepdims=True, dtype=dt.float32)))
    a = np.zeros((3, 520), np.float32)
    a[1, 517] = np.nan
    (got,) = run([a])
    assert np.isnan(got[1]).all()
    assert_within(
        got[[0, 2]], np.full((2, 520), 1 / 520), gamma(1, "float32") / 520
    )  # a sum of ones is exact


@pytest.mark.skipif(LANES == 0, reason="this compiler has no vectors")
def test_a_compiler_without_the_names_has_no_vectors(tmp_path: Any) -> None:
    """Later compilers may name instructions otherwise: then loops are plain, and nothing fails."""
    assert TOOLS is not None
    assert f"wide{LANES}" in ask(TOOLS.command)
    own = tmp_path / "gcc"
    own.write_text(f'#!/bin/sh\ncase "$*" in *implicit*) exit 1;; esac\nexec {TOOLS.command[0]} "$@"\n')
    own.chmod(0o755)
    assert "gnu" in ask([str(own)])
    assert "wide" not in ask([str(own)])


def test_a_zero_keeps_its_sign_in_all_lanes() -> None:
    x, rows = input_node(0, 3, 2048), input_node(1, 3, 1)
    zero = Node(op="constant", attrs={"value": -0.0}, spec=Spec((), dt.float32))
    chosen = apply("where", apply("less", x, rows), rows, x)
    run = compiled((x, rows), apply("multiply", x, zero), chosen)
    a, b = np.full((3, 2048), -1, np.float32), np.full((3, 1), -0.0, np.float32)
    product, taken = run([a, b])
    assert not np.signbit(product).any()
    assert np.signbit(taken).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rows_of_halves_that_are_kept_near(dtype: str) -> None:
    def normalized(x: tb.Tensor) -> tuple[tb.Tensor, tb.Tensor]:
        return tb.nn.functional.layer_norm(tb.tanh(x), (x.shape[-1],)), x.to("float32") * 2

    x = tb.asarray(np.random.default_rng(7).standard_normal((3, 65)).astype(np.float32)).to(dtype)
    for got, want in zip(tb.compile(normalized)(x), normalized(x), strict=True):
        # What is stored between is rounded on one side only.
        assert_within(
            got.to("float32").numpy(), exact := want.to("float32").numpy(), 2 * unit(dtype) * abs(exact).max()
        )
