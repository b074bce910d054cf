"""Casting: floats become integers by truncation, saturating; NaN gives 0."""

from __future__ import annotations

import pytest
import tensorbus as tb
from tensorbus.dtypes import definition as dt

from installed import lacks


@pytest.mark.parametrize("target", [d.name for d in dt.INTEGER])
@pytest.mark.parametrize("source", [d.name for d in dt.FLOATING])
def test_saturation(device: str, source: str, target: str) -> None:
    if lacks(device, dt.BY_NAME[source]) or lacks(device, dt.BY_NAME[target]):
        return
    low, high = dt.integer_range(dt.BY_NAME[target])
    x = tb.asarray([float("nan"), -0.0, -0.5, 0.75, 1.5, -1.5, 448.0, -448.0], dtype=source, device=device)
    assert x.to(target).tolist() == [0, 0, 0, 0, 1, max(low, -1), min(high, 448), max(low, -448)]
    if source != "float8_e4m3fn":  # has no infinities
        infinite = tb.asarray([float("inf"), float("-inf")], dtype=source, device=device)
        assert infinite.to(target).tolist() == [high, low]


def test_complex_does_not_become_real(device: str) -> None:
    if lacks(device, dt.complex64):
        return
    x = tb.asarray([1 + 2j], device=device)
    with pytest.raises(tb.DtypeError, match="complex64 does not fit in float32"):
        x.to("float32")
    assert x.to("bool").tolist() == [True]


@pytest.mark.parametrize("target", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_integer_has_no_zero_below_zero(device: str, dtype: str, target: str) -> None:
    if lacks(device, dt.BY_NAME[dtype]) or lacks(device, dt.BY_NAME[target]):
        return
    x = tb.asarray([-0.0, -0.5, 0.5, -3.7] * 200, dtype=dtype, device=device)

    def whole(x: tb.Tensor) -> list[tb.Tensor]:
        return [
            tb.signbit(part.to(target).to(dtype))
            for part in (tb.fmod(x, 1), tb.where(x > 0, 0.5, -0.5).to(dtype))
        ]

    for signs in tb.compile(whole)(x):
        assert not tb.any(signs)
