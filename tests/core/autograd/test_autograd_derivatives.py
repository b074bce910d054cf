"""Every derivative, and the derivative of every derivative, against finite differences in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus.ops.definition import Spec, table
from tensorbus.ops.movement import windows

from error_bounds import assert_alike, assert_within, of_difference
from function_derivatives import FUNCTIONS
from linalg_derivatives import REAL as LINALG
from ordering_derivatives import ORDERING

Array = np.ndarray[Any, Any]
Function = Callable[..., Tensor]
STEP, THIRD = 1e-6, 1000.0
"""Of differences, and what bounds the third derivative of what they are taken of."""
OPERATIONS, CONDITION = 64, 10
"""Roundings of a value, a sum of a few dozen; what linear systems make more of them."""


def array(low: float, high: float, *shape: int, seed: int = 0) -> Array:
    """Return numbers in [low, high], far apart from each other so that no tie or edge lies within a step."""
    size = int(np.prod(shape))
    spread = (np.arange(size) + 0.37) / max(size, 1)
    return np.random.default_rng(seed).permutation(low + (high - low) * spread).reshape(shape)


def op(name: str, **attrs: Any) -> Function:
    return lambda *xs: table.function(name)(*xs, **attrs)


R, P, U = (-2.0, 2.0), (0.3, 2.0), (-0.9, 0.9)
ONE: dict[str, tuple[float, float]] = {
    "negative": R, "abs": R, "sign": R, "floor": R, "ceil": R, "trunc": R, "round": R, "sqrt": P, "rsqrt": P,
    "square": R, "reciprocal": P, "exp": R, "expm1": R, "log": P, "log1p": P, "log2": P, "log10": P, "sin": R,
    "cos": R, "tan": U,
    "asin": U, "acos": U, "atan": R, "sinh": R, "cosh": R, "tanh": R, "asinh": R, "acosh": (1.2, 3.0),
    "atanh": U, "erf": R,
    "sigmoid": R, "relu": R, "silu": R, "softplus": R, "gelu_erf": R, "gelu_tanh": R,
    "erfc": R, "erfinv": U, "lgamma": P, "digamma": P, "exp2": R, "cbrt": P, "deg2rad": R, "rad2deg": R,
    "frac": (0.1, 0.9), "sinc": R, "logit": (0.1, 0.9), "logsigmoid": R, "softsign": R, "tanhshrink": R,
    "mish": R, "hardsigmoid": R, "hardswish": R, "angle": R,
}  # fmt: skip
TWO: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "add": (R, R),
    "subtract": (R, R),
    "multiply": (R, R),
    "divide": (R, P),
    "floor_divide": (R, P),
    "remainder": (R, P),
    "maximum": (R, R), "minimum": (R, R), "power": (P, R), "atan2": (P, R), "logaddexp": (R, R),
    "copysign": (R, R), "nextafter": (R, R), "hypot": (R, P), "xlogy": (P, P), "fmod": (R, P),
    "heaviside": (R, R), "logaddexp2": (R, R), "elu": (R, P), "celu": (R, P), "leaky_relu": (R, P),
    "clamp_min": (R, R), "clamp_max": (R, R), "softshrink": (R, P), "hardshrink": (R, P),
}  # fmt: skip


def _elementwise() -> dict[str, tuple[Function, list[Array]]]:
    results: dict[str, tuple[Function, list[Array]]] = {}
    for name, domain in ONE.items():
        results[name] = (op(name), [array(*domain, 2, 3)])
    for name, (first, second) in TWO.items():
        f = op(name)
        for a, b in (((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((2, 2), ())):
            results[f"{name} {a} {b}"] = (f, [array(*first, *a), array(*second, *b, seed=1)])
        results[f"{name} scalar right"] = (lambda x, f=f: f(x, 1.3), [array(*first, 3)])
        results[f"{name} scalar left"] = (lambda y, f=f: f(1.3, y), [array(*second, 3)])
        results[f"{name} itself"] = (lambda x, f=f: f(x, x * x), [array(*P, 3)])
    return results


x23, x234, m = array(*R, 2, 3), array(*R, 2, 3, 4), array(*R, 3, 4, seed=2)
zeros = array(*R, 2, 3)
zeros[0, 1] = zeros[1, 0] = zeros[1, 2] = 0.0
at = tb.asarray([[0, 1, 1], [2, 0, 1]], device="cpu")
mask = tb.asarray([[True, False, True], [False, True, True]], device="cpu")
labels = tb.asarray([2, 0], device="cpu")
image, kernel = array(*R, 2, 4, 5, 4), array(*R, 4, 2, 2, 3, seed=3)


def _changed(x: Tensor, v: Tensor, key: Any) -> Tensor:
    y = x * 1
    y[key] = v
    return y


CASES: dict[str, tuple[Function, list[Array]]] = {
    **_elementwise(),
    "power cube": (lambda x: x**3, [x23]), "power of nothing": (lambda x: x**0, [x23]),
    "power of whole exponents": (lambda x: x ** tb.asarray([2.0, 3.0, 0.0], device="cpu"), [x23]),
    "where": (lambda x, y: tb.where(mask, x, y), [x23, array(*R, 3, seed=4)]),
    "where scalar": (lambda x: tb.where(mask, x, 0.5), [x23]),
    "cast": (lambda x: x.to("float64"), [x23]),
    "broadcast_to": (op("broadcast_to", shape=(4, 2, 3)), [array(*R, 2, 1)]),
    "reshape": (op("reshape", shape=(3, 2)), [x23]),
    "permute_dims": (op("permute_dims", axes=(2, 0, 1)), [x234]), "flip": (op("flip", axis=(0, 2)), [x234]),
    "slice": (op("slice", start=(1, 2), size=(1, 2), step=(1, -2)), [x23]),
    "slice_update": (op("slice_update", start=(0, 2), step=(1, -2)), [x23, array(*R, 2, 2, seed=5)]),
    "pad": (op("pad", low=(1, 0), high=(0, 2), value=3.0), [x23]),
    "concat": (lambda *xs: tb.concat(xs, axis=1), [x23, array(*R, 2, 1), array(*R, 2, 0)]),
    "diagonal": (op("diagonal", offset=1), [x234]),
    "view_as_complex of pairs": (lambda x: tb.real(tb.exp(tb.view_as_complex(x))), [array(*R, 3, 2)]),
    "windows": (op("windows", size=(2, 2), stride=(1, 2), dilation=(2, 1)), [x234]),
    "fold": (lambda x: windows.fold(x, (3, 4), (1, 2), (2, 1)), [array(*R, 2, 1, 2, 2, 2)]),
    "sum": (op("sum", axis=(0, 2)), [x234]), "sum keepdims": (op("sum", axis=1, keepdims=True), [x234]),
    "prod": (op("prod", axis=1), [x234]),
    "prod of zeros": (op("prod", axis=1), [zeros]),
    "prod of all": (op("prod"), [zeros]),
    "max": (op("max", axis=1), [x234]), "min": (op("min", axis=(0, 1)), [x234]),
    "mean": (op("mean", axis=(0, 2), keepdims=True), [x234]),
    "cumulative_sum": (op("cumulative_sum", axis=1), [x234]),
    "gather": (lambda x: tb.gather(x, at, at), [m]),
    "scatter": (lambda x, v: tb.scatter(x, v, at), [m, array(*R, 2, 3, 4, seed=6)]),
    "scatter add": (lambda x, v: tb.scatter(x, v, at, mode="add"), [m, array(*R, 2, 3, 4, seed=6)]),
    "matmul": (op("matmul"), [array(*R, 2, 1, 2, 3), array(*R, 2, 3, 2, seed=7)]),
    "matmul of vectors": (tb.matmul, [array(*R, 3), array(*R, 3, seed=8)]),
    "softmax": (op("softmax", axis=0), [x23]), "log_softmax": (op("log_softmax", axis=-1), [x23]),
    "logsumexp": (lambda x: tb.logsumexp(x, axis=1), [x23]),
    "var": (lambda x: tb.var(x, axis=1, correction=1), [x23]),
    "std": (lambda x: tb.std(x), [x23]), "clip": (lambda x: tb.clip(x, -0.7, 1.1), [x23]),
    "conv": (
        op("conv", stride=(2, 1), padding=(1, 0), dilation=(1, 1), groups=2),
        [image[:1, :, :3, :3], kernel[:2, :, :, :2]],
    ),
    "conv_weight": (
        op("conv_weight", kernel=(2, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 1), groups=2),
        [image[:1, :, :3, :3], array(*R, 1, 4, 2, 2, seed=7)],
    ),
    "max_pool": (op("max_pool", kernel_size=2, stride=1, padding=1), [image[0, :1, :3, :3]]),
    "avg_pool2d": (lambda x: tb.avg_pool2d(x, 2, 1, 1), [image[:1, :1, :3, :3]]),
    "standardize": (op("standardize", rank=2), [x234]),
    "layer_norm": (lambda x, w, b: tb.layer_norm(x, 3, w, b), [x23, array(*R, 3), array(*R, 3)]),
    "batch_norm": (
        lambda x: tb.nn.functional.batch_norm(x, None, None, training=True), [array(*R, 3, 2, 2)],
    ),
    "to_unit_rms": (op("to_unit_rms", rank=2), [x234]),
    "conv_transpose": (
        op("conv_transpose", stride=(2, 1), padding=(1, 0), output_padding=(0, 1), dilation=(1, 2), groups=2),
        [image[:1, :, :2, :3], array(*R, 4, 1, 2, 2)],
    ),
    "conv_transpose with room": (
        op("conv_transpose", stride=1, padding=1, output_padding=1, dilation=2),
        [array(*R, 1, 1, 4), array(*R, 1, 2, 2)],
    ),
    "affine": (
        table.function("affine"),
        [array(*R, 2, 3, 4), array(*R, 4, 5, seed=1), array(*R, 5, seed=2), array(*R, 3, 1, seed=3)],
    ),
    "affine with an end": (
        lambda *xs: table.function("affine")(*xs, ends="gelu_tanh"),
        [array(*R, 2, 3, 4), array(*R, 4, 5, seed=1), array(*R, 5, seed=2)],
    ),
    "attention_gradients": (
        lambda *xs: tb.concat(
            [g.reshape(-1) for g in table.function("attention_gradients")(*xs, is_causal=True, scale=0.4)]
        ),
        [array(*R, 3, 2, seed=k) for k in range(5)],
    ),
    "scaled_dot_product_attention shared": (
        op("scaled_dot_product_attention", enable_gqa=True, is_causal=True),
        [array(*R, 1, 4, 2, 2), array(*R, 2, 2, 3, 2, seed=1), array(*R, 2, 2, 3, 1, seed=2)],
    ),
    "scaled_dot_product_attention with a mask": (
        op("scaled_dot_product_attention"),
        [array(*R, 2, 3, 2), array(*R, 2, 2, 2, seed=1), array(*R, 2, 2, 2, seed=2), array(*R, 3, 2, seed=3)],
    ),
    "scaled_dot_product_attention": (
        op("scaled_dot_product_attention"),
        [array(*R, 2, 3), array(*R, 2, 3, seed=5), array(*R, 2, 2, seed=6)],
    ),
    "bernoulli_loss": (op("bernoulli_loss"), [array(0.1, 0.9, 3), array(0.1, 0.9, 3, seed=5)]),
    "cross_entropy": (lambda x: tb.cross_entropy(x, labels, label_smoothing=0.1), [x23]),
    "lerp": (op("lerp"), [x23, array(*R, 3, seed=5), array(*P, 2, 1, seed=6)]),
    "hardtanh": (op("hardtanh"), [x23, array(-2, -1, 3, seed=5), array(1, 2, 3, seed=6)]),
    "complex": (lambda x, y: tb.real(tb.exp(tb.complex(x, y))), [x23, array(*R, 3, seed=5)]),
    "lgamma negative": (tb.lgamma, [array(-2.9, -2.1, 3)]),
    "digamma negative": (tb.digamma, [array(-2.9, -2.1, 3)]),
    "glu": (tb.nn.functional.glu, [array(*R, 2, 4)]), "selu": (tb.nn.functional.selu, [x23]),
    "prelu": (tb.nn.functional.prelu, [x234, array(*P, 3)]),
    "softplus beta": (lambda x: tb.nn.functional.softplus(x, 2.0, 3.0), [x23]),
    "mse_loss": (tb.mse_loss, [x23, array(*R, 3)]), "nll_loss": (lambda x: tb.nll_loss(x, labels), [x23]),
    "tensordot": (lambda x, y: tb.tensordot(x, y, axes=1), [x23, m]), "tril": (tb.tril, [x23]),
    "getitem": (lambda x: x[:, None, at, 1], [x234]), "getitem mask": (lambda x: x[mask], [x234]),
    "setitem": (lambda x, v: _changed(x, v, (slice(None), [0, 2, 0])), [x23, array(*R, 2, 3, seed=9)]),
    "setitem slice": (lambda x, v: _changed(x, v, (0, slice(None, None, -2))), [x23, array(*R, 1)]),
    **FUNCTIONS,
    **LINALG,
    **ORDERING,
}  # fmt: skip


def weights(shape: Sequence[int], seed: int) -> Tensor:
    return tb.asarray(array(-1, 1, *shape, seed=seed), device="cpu")


def leaves(arrays: Sequence[Array]) -> list[Tensor]:
    return [tb.asarray(a, device="cpu").requires_grad_() for a in arrays]


def scalar(f: Function, xs: Sequence[Tensor]) -> Tensor:
    out = f(*xs)
    return (out * weights(out.shape, 11)).sum()


def slope(f: Function, xs: Sequence[Tensor], create_graph: bool = False) -> list[Tensor]:
    grads = tb.grad(scalar(f, xs), xs, create_graph=create_graph, allow_unused=True)
    return [tb.zeros_like(x) if g is None else g for x, g in zip(xs, grads, strict=True)]


def numeric(value: Callable[[list[Array]], float], arrays: Sequence[Array]) -> list[Array]:
    results = []
    for k, a in enumerate(arrays):
        out = np.zeros_like(a)
        for at in np.ndindex(*a.shape):
            ends = []
            for sign in (1, -1):
                moved = [b.copy() for b in arrays]
                moved[k][at] += sign * STEP
                ends.append(value(moved))
            out[at] = (ends[0] - ends[1]) / (2 * STEP)
        results.append(out)
    return results


def close(actual: Sequence[Tensor], expected: Sequence[Array], terms: float) -> None:
    """Check derivatives against differences of sums whose terms are so large together."""
    for g, e in zip(actual, expected, strict=True):
        assert g.dtype is tb.float64
        assert_within(g.numpy(), e, of_difference(terms, STEP, THIRD, operations=OPERATIONS))


def terms(name: str, outs: Sequence[Tensor], seed: int) -> float:
    size = float(sum((out * weights(out.shape, seed)).abs().sum() for out in outs))
    return CONDITION * size if name in LINALG else size


@pytest.mark.parametrize("name", CASES)
def test_first_derivative(name: str) -> None:
    f, arrays = CASES[name]
    expected = numeric(lambda moved: float(scalar(f, [tb.asarray(a, device="cpu") for a in moved])), arrays)
    close(slope(f, leaves(arrays)), expected, terms(name, [f(*leaves(arrays))], 11))


def _second(f: Function, xs: Sequence[Tensor]) -> Tensor:
    first = slope(f, xs, create_graph=True)
    return sum(((g * weights(g.shape, 12)).sum() for g in first), tb.zeros((), dtype="float64", device="cpu"))


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_second_derivative(name: str) -> None:
    f, arrays = CASES[name]
    xs = leaves(arrays)
    total = _second(f, xs)
    expected = numeric(lambda moved: float(_second(f, leaves(moved))), arrays)
    actual = tb.grad(total, xs, allow_unused=True) if total.requires_grad else [None] * len(xs)
    slopes = [tb.zeros_like(x) if g is None else g for x, g in zip(xs, actual, strict=True)]
    close(slopes, expected, terms(name, slope(f, xs), 12))


def test_every_derivative_has_a_case() -> None:
    """Elementwise ops need none: the kit examines their derivatives over their ``domain``."""
    differentiable = {
        o.name
        for o in table
        if o.family != "elementwise" and any(d.is_floating for d in o.dtypes) and (o.vjp or o.decompose)
    }
    elsewhere = {"transfer", "random_bits", "searchsorted", "scaled_matmul", "argsort_part"}
    # test_flex_attention has these, with what their functions capture.
    elsewhere |= {"flex_attention", "flex_attention_gradients", "flex_attention_captured_gradients"}
    assert differentiable - {name.split()[0] for name in CASES} - elsewhere == set()


@pytest.mark.parametrize("name", [o.name for o in table if o.decompose and o.vjp and o.name in CASES])
def test_own_derivative_is_that_of_the_decomposition(name: str) -> None:
    f, arrays = CASES[name]
    o, seen = table[name], []

    def decomposed(*xs: Tensor) -> Tensor:
        operands, attrs = o.arguments(*xs, **ATTRS.get(name, {}))
        if o.normalize is not None:
            attrs = o.normalize(tuple(Spec(x.shape, x.dtype) for x in operands), **attrs)
        assert o.decompose is not None
        seen.append(name)
        return o.decompose(*operands, **attrs)

    assert_alike(slope(decomposed, leaves(arrays)), slope(f, leaves(arrays)), OPERATIONS)
    assert seen


ATTRS: dict[str, dict[str, Any]] = {
    "logsumexp": {"axis": 1}, "diagonal": {"offset": 1},
    "cumulative_max": {"axis": 1}, "cumulative_min": {"axis": 0},
    "softmax": {"axis": 0}, "log_softmax": {"axis": -1}, "mean": {"axis": (0, 2),
    "keepdims": True}, "standardize": {"rank": 2},
    "conv": {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 1), "groups": 2},
    "conv_weight": {
        "kernel": (2, 2), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 1), "groups": 2
    },
    "max_pool": {"kernel_size": 2, "stride": 1, "padding": 1}, "to_unit_rms": {"rank": 2},
    "conv_transpose": {
        "stride": (2, 1), "padding": (1, 0), "output_padding": (0, 1), "dilation": (1, 2), "groups": 2
    },
    "fold": {"shape": (3, 4), "stride": (1, 2), "dilation": (2, 1)}, "vector_norm": {"axis": 0},
}  # fmt: skip
