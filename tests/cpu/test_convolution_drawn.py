"""Convolutions of drawn geometry against their definition: lines, steps, groups and rows of any number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensorbus.backend_api import Call, dtypes
from tensorbus_conformance.references.models import REFERENCES
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.convolution import kernels_convolution as convolution

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(NATIVE.compiler() is None, reason="there is no C compiler"),
]


def _drawn(seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """Return shapes of images and weights, and attributes, so that there is at least one result."""
    rng = np.random.default_rng(seed)
    rank, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 6]))
    channels, rows = int(rng.choice([1, 2, 7, 33])), int(rng.choice([1, 2, 6, 13, 18]))
    kernel = tuple(int(k) for k in rng.integers(1, 5, rank))
    stride = tuple(int(s) for s in rng.choice([1, 1, 2, 3], rank))
    dilation = tuple(int(d) for d in rng.choice([1, 1, 2], rank))
    padding = tuple(int(p) for p in rng.integers(0, 3, rank))
    most = {1: 200, 2: 40, 3: 14}[rank]
    space = tuple(d * (k - 1) + 1 + int(rng.integers(0, most)) for d, k in zip(dilation, kernel, strict=True))
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return (2, channels * groups, *space), (rows * groups, channels, *kernel), attrs


def _close(op: str, operands: tuple[Any, Any], out: Any, attrs: dict[str, Any]) -> None:
    kind = dtypes.dtype(operands[0].dtype.name)
    call = Call(
        op=op, dtypes=(kind, kind), shapes=tuple(v.shape for v in operands), attrs=attrs, out_dtype=kind,
        out_shape=out, index=0,
    )  # fmt: skip
    if convolution.takes_windows(call) is not True:
        assert op == "conv_transpose"
        assert np.prod(attrs["stride"]) > 16
        return
    actual = convolution.PREPARE[op](call)(*operands)
    wide = tuple(v.astype(np.float64) for v in operands)
    right = REFERENCES[op].function(*wide, **attrs)
    size = REFERENCES[op].function(*(np.abs(v) for v in wide), **attrs)
    assert actual.shape == right.shape
    assert (np.abs(actual - right) <= 32 * np.finfo(actual.dtype).eps * size).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(40))
def test_a_drawn_convolution_and_its_gradients(seed: int, dtype: str) -> None:
    x_shape, w_shape, attrs = _drawn(seed)
    rng = np.random.default_rng(seed)
    x, weight = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    operands = (attrs[key] for key in ("stride", "padding", "dilation"))
    axes = list(zip(x_shape[2:], w_shape[2:], *operands, strict=True))
    lengths, steps = [n + 2 * p - d * (k - 1) - 1 for n, k, _, p, d in axes], attrs["stride"]
    shape = (2, w_shape[0], *(n // s + 1 for n, s in zip(lengths, steps, strict=True)))
    rest = [n % s for n, s in zip(lengths, steps, strict=True)]
    _close("conv", (x, weight), shape, attrs)
    grad = rng.standard_normal(shape).astype(dtype)
    _close("conv_weight", (x, grad), w_shape, {"kernel": w_shape[2:], **attrs})
    _close("conv_transpose", (grad, weight), x_shape, {"output_padding": tuple(rest), **attrs})
