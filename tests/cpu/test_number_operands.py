"""Python's numbers beside small arrays: kept as arrays, and still each number itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cpu.eager.kernels_elementwise import Numbers


def put(*values: float, dtype: Any = None) -> tb.Tensor:
    return tb.asarray(list(values), dtype=dtype, device="cpu")


@pytest.mark.parametrize("first", [0.0, -0.0])
def test_zeros_keep_their_sign(first: float) -> None:
    x = put(1.0, -1.0)
    for zero in (first, -first, first):
        sign = math.copysign(1.0, zero)
        assert np.copysign(1, (x * zero).numpy()).tolist() == [sign, -sign]
        assert (1 / (zero * x)).tolist() == [sign * math.inf, -sign * math.inf]


def test_nan_and_infinities() -> None:
    x = put(1.0, -1.0)
    for number in (math.nan, math.inf, -math.inf, math.nan, 1e300):
        with np.errstate(all="ignore"):
            wanted = np.asarray([1.0, -1.0], np.float32) * np.float32(number)
        np.testing.assert_array_equal((x * number).numpy(), wanted)


def test_a_number_takes_the_dtype_of_the_call() -> None:
    """The same number beside every dtype, on either side."""
    for dtype in ("int8", "int64", "float16", "bfloat16", "float32", "float64", "complex64"):
        x = put(4, 6, dtype=getattr(tb, dtype))
        for _ in range(2):
            assert (x + 2).tolist() == [6, 8]
            assert (2 - x).tolist() == [-2, -4]
            assert (x + 2).dtype is x.dtype
    x = put(1, 2, dtype=tb.float32)
    for number in (0.1, 1 / 3, 0.1):
        np.testing.assert_array_equal((x + number).numpy(), x.numpy() + np.float32(number))
        assert (x < number).tolist() == [False, False]


def test_a_whole_number_is_not_a_truth_value() -> None:
    x = put(1, 0, dtype=tb.bool)
    assert (x == True).tolist() == [True, False]  # noqa: E712
    assert (put(1, 0) == 1).tolist() == [True, False]
    assert (put(1.0, 0.0) == 1.0).tolist() == [True, False]


def test_results_of_no_dimensions_stay_values() -> None:
    x = tb.asarray(2.0, device="cpu")
    for out in (x * 3.0, 3.0 * x, x * x):
        assert out.shape == ()
        assert out.dtype is tb.float32
        assert out.numpy().shape == ()


def test_many_numbers_do_not_pile_up() -> None:
    numbers = Numbers(tb.float32)
    results = [float(numbers[k / 7]) for k in range(5000)]
    np.testing.assert_array_equal(results, (np.arange(5000) / 7).astype(np.float32))
    assert len(numbers) <= 1024
    for number in (0.0, -0.0, math.nan, 0j, 1j):
        numbers[number]
    assert not any(key == 0 or key != key or type(key) is complex for key in numbers)
