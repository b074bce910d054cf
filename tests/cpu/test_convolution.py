"""Convolution in compiled tiles against its definition: every way that windows, tiles and phases can lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn
from tensorbus.backend_api import Call, dtypes
from tensorbus_conformance.references.models import REFERENCES
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.convolution import kernels_convolution as convolution
from tensorbus_cpu.convolution import tiled_functions

pytestmark = pytest.mark.skipif(NATIVE.compiler() is None, reason="there is no C compiler")

_CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "several blocks of channels": ((2, 90, 9, 14), (10, 90, 3, 3), {"padding": (1, 1)}),
    "a tile of each edge": ((1, 2, 41, 300), (3, 2, 3, 5), {"padding": (1, 2)}),
    "rows shorter than a vector": ((3, 130, 3, 4), (20, 130, 3, 3), {"padding": (1, 1)}),
    "no windows": ((2, 70, 11, 13), (50, 70, 1, 1), {}),
    "steps": ((2, 5, 23, 30), (7, 5, 3, 3), {"stride": (2, 3), "padding": (1, 0)}),
    "steps beyond the window": ((2, 3, 20, 21), (4, 3, 2, 1), {"stride": (4, 3)}),
    "dilated steps": (
        (1, 4, 19, 26),
        (6, 4, 3, 3),
        {"stride": (3, 2), "dilation": (2, 3), "padding": (3, 3)},
    ),
    "one channel a group": ((2, 12, 17, 19), (12, 1, 3, 3), {"padding": (1, 1), "groups": 12}),
    "planes": ((2, 3, 13, 6), (3, 1, 3, 5), {"padding": (1, 2), "groups": 3}),
    "planes in bands": ((1, 1, 70, 500), (1, 1, 3, 2), {"padding": (2, 0)}),
    "planes by steps of three": (
        (2, 3, 20, 31),
        (3, 1, 2, 4),
        {"stride": (1, 3), "padding": (0, 2), "groups": 3},
    ),
    "planes by steps": ((2, 5, 17, 19), (5, 1, 3, 3), {"stride": (2, 2), "padding": (1, 1), "groups": 5}),
    "planes by steps of pairs": (
        (3, 4, 16, 32),
        (4, 1, 4, 2),
        {"stride": (3, 2), "padding": (2, 1), "groups": 4},
    ),
    "planes by dilated steps": (
        (1, 3, 21, 26),
        (3, 1, 3, 4),
        {"stride": (2, 2), "dilation": (2, 3), "padding": (1, 5), "groups": 3},
    ),
    "planes in bands by steps": ((1, 1, 140, 500), (1, 1, 3, 2), {"stride": (1, 2), "padding": (1, 0)}),
    "lines by steps": ((2, 3, 900), (3, 1, 6), {"stride": (2,), "padding": (3,), "groups": 3}),
    "groups": ((2, 12, 9, 10), (8, 3, 3, 3), {"padding": (1, 1), "groups": 4}),
    "one axis": ((2, 3, 700), (5, 3, 9), {"stride": (2,), "padding": (4,)}),
    "three axes": ((1, 4, 6, 7, 9), (5, 4, 3, 2, 3), {"stride": (2, 1, 2), "padding": (1, 0, 1)}),
    "a large window": ((1, 2, 40, 40), (3, 2, 19, 19), {"padding": (9, 9)}),
    "more padding than window": ((1, 2, 5, 6), (3, 2, 2, 2), {"padding": (3, 4)}),
}


def _attrs(rank: int, x: dict[str, Any]) -> dict[str, Any]:
    return {"stride": (1,) * rank, "padding": (0,) * rank, "dilation": (1,) * rank, "groups": 1, **x}


def _call(op: str, operands: tuple[Any, Any], out: Any, attrs: dict[str, Any]) -> Any:
    """Run a kernel of the backend, which must serve the call."""
    kind = dtypes.dtype(operands[0].dtype.name)
    call = Call(
        op=op, dtypes=(kind, kind), shapes=tuple(v.shape for v in operands), attrs=attrs, out_dtype=kind,
        out_shape=out, index=0,
    )  # fmt: skip
    assert convolution.takes_windows(call) is True
    return convolution.PREPARE[op](call)(*operands)


def _close(actual: Any, op: str, operands: tuple[Any, Any], attrs: dict[str, Any]) -> None:
    wide = tuple(v.astype(np.float64) for v in operands)
    right = REFERENCES[op].function(*wide, **attrs)
    size = REFERENCES[op].function(*(np.abs(v) for v in wide), **attrs)
    assert actual.dtype == operands[0].dtype
    assert actual.shape == right.shape
    assert (np.abs(actual - right) <= 32 * np.finfo(actual.dtype).eps * size).all()


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", _CASES)
def test_convolution_and_both_gradients_are_their_definitions(case: str, dtype: str) -> None:
    x_shape, w_shape, operand = _CASES[case]
    attrs, rng = _attrs(len(x_shape) - 2, operand), np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    places = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(
            x_shape[2:], w_shape[2:], attrs["stride"], attrs["padding"], attrs["dilation"], strict=True
        )
    )
    out_shape = (x_shape[0], w_shape[0], *places)
    _close(_call("conv", (x, weight), out_shape, attrs), "conv", (x, weight), attrs)
    grad = rng.standard_normal(out_shape).astype(dtype)
    kernel = {"kernel": w_shape[2:], **attrs}
    _close(_call("conv_weight", (x, grad), w_shape, kernel), "conv_weight", (x, grad), kernel)
    rest = tuple(
        n - ((m - 1) * s + d * (k - 1) + 1 - 2 * p)
        for n, m, k, s, p, d in zip(
            x_shape[2:],
            places,
            w_shape[2:],
            attrs["stride"],
            attrs["padding"],
            attrs["dilation"],
            strict=True,
        )
    )
    turned = {"output_padding": rest, **attrs}
    _close(_call("conv_transpose", (grad, weight), x_shape, turned), "conv_transpose", (grad, weight), turned)


def test_operands_may_lie_in_any_order() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((9, 10, 2, 5), dtype=np.float32).transpose(2, 3, 0, 1)
    weight = rng.standard_normal((6, 5, 3, 6), dtype=np.float32)[..., ::2]
    attrs = _attrs(2, {"padding": (1, 1)})
    _close(_call("conv", (x, weight), (2, 6, 9, 10), attrs), "conv", (x, weight), attrs)


@pytest.mark.parametrize("rows", [1, 3])
def test_infinities_stay_where_windows_meet_them(rows: int) -> None:
    x, grad = np.ones((1, 1, 5, 11), np.float32), np.ones((1, rows, 3, 9), np.float32)
    x[..., 2, 10] = np.inf
    kernel = {"kernel": (3, 3), **_attrs(2, {})}
    result = _call("conv_weight", (x, grad), (rows, 1, 3, 3), kernel)
    assert np.isinf(result[..., 2]).all()
    assert (result[..., :2] == 27).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_results_do_not_depend_on_threads(threads: int) -> None:
    rng = np.random.default_rng(2)
    x, weight, grad = (
        tb.asarray(rng.standard_normal(shape, dtype=np.float32), device="cpu")
        for shape in ((4, 24, 20, 20), (30, 24, 3, 3), (4, 30, 20, 20))
    )

    def gradients() -> list[Any]:
        a, b = x.detach().requires_grad_(), weight.detach().requires_grad_()
        out = tb.conv2d(a, b, padding=1)
        out.backward(grad)
        return [out.detach().numpy(), a.grad.numpy(), b.grad.numpy()]

    right, before = gradients(), tb.get_num_threads()
    try:
        tb.set_num_threads(threads)
        actual = gradients()
    finally:
        tb.set_num_threads(before)
    for one, other in zip(actual, right, strict=True):
        np.testing.assert_array_equal(one, other)


def test_windows_beyond_the_cache_are_left_to_patches() -> None:
    call = Call(
        op="conv", dtypes=(dtypes.float32,) * 2, shapes=((1, 1, 40, 40), (1, 1, 20, 20)), attrs=_attrs(2, {}),
        out_dtype=dtypes.float32, out_shape=(1, 1, 21, 21), index=0,
    )  # fmt: skip
    assert "cache" in str(convolution.takes_windows(call))
    x, weight = tb.ones((1, 1, 40, 40), device="cpu"), tb.ones((1, 1, 20, 20), device="cpu")
    assert (tb.conv2d(x, weight).numpy() == 400).all()


def test_of_the_tiles_only_what_is_called_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[tuple[Any, ...]] = []
    part_of = tiled_functions._part
    monkeypatch.setattr(tiled_functions, "_part", lambda *key: parts.append(key) or part_of(*key))
    with tb.device("cpu"):
        planes = nn.Conv2d(5, 5, 3, groups=5, bias=False)
        planes(tb.ones((1, 5, 47, 53)))
        assert {part for *_, part in parts} == {"PACK", "PLANES"}  # the first for the length of vectors
        nn.Conv2d(5, 7, 3, bias=False)(tb.ones((1, 5, 47, 53)))
        assert {part for *_, part in parts} == {"PACK", "PLANES", "CONVOLVE"}
