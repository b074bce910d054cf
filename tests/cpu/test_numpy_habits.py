"""What who comes from NumPy tries first: an error says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb

from error_bounds import assert_alike


@pytest.mark.parametrize("dtype", [np.float64, np.dtype("float64")])
def test_dtypes_of_numpy_are_named(dtype: Any) -> None:
    with pytest.raises(tb.DtypeError, match="Write 'float64' for it"):
        tb.zeros((2,), dtype=dtype)
    with pytest.raises(tb.DtypeError, match=r"no dtype is called <class 'numpy\.str_'>\. There are: bool"):
        tb.zeros((2,), dtype=np.str_)


OF_ARRAYS: dict[str, Callable[[Any], Any]] = {
    "sum": np.sum, "mean": lambda x: np.mean(x, axis=0), "prod": lambda x: np.prod(x, 1, keepdims=True),
    "max": np.max, "min": lambda x: np.min(x, axis=1), "any": np.any, "all": np.all, "argmax": np.argmax,
    "std": np.std, "var": lambda x: np.var(x, axis=0, ddof=1), "cumsum": np.cumsum,
    "cumprod": lambda x: np.cumprod(x, 1), "clip": lambda x: np.clip(x, 1.5, 3.0), "round": np.round,
}  # fmt: skip


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_functions_of_numpy_that_call_methods_give_tensors(name: str) -> None:
    data = np.array([[1.25, 2.0, 0.0], [3.75, -1.0, 5.5]])
    result = OF_ARRAYS[name](tb.asarray(data, device="cpu"))
    expected = np.asarray(OF_ARRAYS[name](data))
    assert type(result) is tb.Tensor
    assert (result.shape, result.dtype.name) == (expected.shape, expected.dtype.name)
    assert_alike(result.numpy(), expected, roundings=data.size)


def test_memory_for_the_result_is_not_taken() -> None:
    with pytest.raises(TypeError, match=r"takes x.numpy\(\); for a tensor there is tensorbus\.sum"):
        np.sum(tb.ones((3,), device="cpu"), out=np.zeros(()))
    with pytest.raises(TypeError, match="got both 'correction' and 'ddof', which name one argument"):
        tb.std(tb.ones((3,), device="cpu"), correction=1, ddof=1)
    with pytest.raises(tb.ArgumentError, match="std: 'unbiased' must be True or False, got"):
        tb.ones((3,), device="cpu").std(unbiased="no")


def test_other_misfits_do_not_speak_of_numpy() -> None:
    with pytest.raises(TypeError, match=r"sum\(\) got an unexpected keyword argument 'where'") as caught:
        tb.sum(tb.ones((3,), device="cpu"), where=0)
    assert "NumPy" not in str(caught.value)
