"""Floats of 16 bits on cuda: quotients by reciprocals, the largest of two, and what is rounded already."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from tensorbus.dtypes import definition as dt
from tensorbus_cuda import device as cuda

from cuda_host import CANNOT

CUDA = "cuda"
needs_card = pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}")
EVERY = np.arange(1 << 16, dtype=np.uint16)
"""The bits of all floats of 16."""
SPECIAL = [0, 1, 0x7F, 0x80, 0x1FFF, 0x3F80, 0x3FC0, 0x4040, 0x7E81, 0x7F00, 0x7F7F, 0x7F80, 0x7FC0]


def divisors(count: int) -> Any:
    drawn = np.random.default_rng(0).integers(0, 1 << 16, count).astype(np.uint16)
    return np.concatenate([np.array([*SPECIAL, *(x | 0x8000 for x in SPECIAL)], np.uint16), drawn])


def quotients(a: Any, b: Any) -> Any:
    x, y = (v.view(ml_dtypes.bfloat16).astype(np.float32) for v in (a[:, None], b[None]))
    with np.errstate(all="ignore"):
        return (x / y).astype(ml_dtypes.bfloat16)


def assert_same(actual: Any, wanted: Any) -> None:
    """The same bits, but for NaN, which has many."""
    nan = np.isnan(wanted.astype(np.float32))
    assert (np.isnan(actual.astype(np.float32)) == nan).all()
    assert (actual.view(np.uint16) == wanted.view(np.uint16))[~nan].all()


@pytest.mark.skipif(CANNOT, reason="CUDA C++ runs on the host on Linux, by a C++ compiler")
@pytest.mark.usefixtures("cupy_or_names")
def test_quotients_of_bfloat16_on_the_host() -> None:
    from test_host import ran

    b = divisors(8)
    (result,) = ran(lambda x, y: x / y, EVERY[:, None], b[None], dtypes=(dt.bfloat16, dt.bfloat16))
    assert_same(result.view(ml_dtypes.bfloat16), quotients(EVERY, b))


@pytest.mark.cuda
@needs_card
def test_quotients_of_bfloat16() -> None:
    b = divisors(2000)
    x, y = (tb.asarray(v.view(ml_dtypes.bfloat16), device=CUDA) for v in (EVERY[:, None], b[None]))
    wanted = quotients(EVERY, b)
    assert_same((x / y).numpy(), wanted)
    assert_same(tb.compile(lambda x, y: x / y)(x, y).numpy(), wanted)


@pytest.mark.cuda
@needs_card
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_the_largest_keeps_nan_and_signs(name: str) -> None:
    values = np.array([np.nan, -np.inf, -1.5, -0.0, 0.0, 2.5, np.inf])
    x = tb.asarray(values, device=CUDA).to(name)
    for op, known in ((tb.maximum, np.maximum), (tb.minimum, np.minimum)):
        actual = op(x[:, None], x[None]).to("float64").numpy()
        np.testing.assert_array_equal(actual, known(values[:, None], values[None]))
    assert np.isnan(tb.max(x).item())
    assert tb.min(x[1:]).item() == -np.inf


@pytest.mark.cuda
@needs_card
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_what_is_rounded_on_the_way_is_what_each_op_gives(name: str) -> None:
    kind = np.float16 if name == "float16" else ml_dtypes.bfloat16
    x = EVERY.view(kind)
    x = x[np.isfinite(x.astype(np.float32))]
    step = tb.compile(lambda x: ((x * 3 + 1) * x, x * 3 + 1))
    with np.errstate(all="ignore"):
        first = (x.astype(np.float32) * 3).astype(kind)
        second = (first.astype(np.float32) + 1).astype(kind)
        third = (second.astype(np.float32) * x.astype(np.float32)).astype(kind)
    operand = tb.asarray(x, device=CUDA)
    for value in (step(operand), ((operand * 3 + 1) * operand, operand * 3 + 1)):
        assert_same(value[0].numpy(), third)
        assert_same(value[1].numpy(), second)
