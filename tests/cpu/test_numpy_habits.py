"""What who comes from NumPy tries first: an error says what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb


@pytest.mark.parametrize("dtype", [np.float64, np.dtype("float64")])
def test_dtypes_of_numpy_are_named(dtype: Any) -> None:
    with pytest.raises(tb.DtypeError, match="Write 'float64' for it"):
        tb.zeros((2,), dtype=dtype)
    with pytest.raises(tb.DtypeError, match=r"no dtype is called <class 'numpy\.str_'>\. There are: bool"):
        tb.zeros((2,), dtype=np.str_)  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [np.sum, np.mean, np.max, np.any])
def test_reductions_of_numpy_name_the_tensors_own(function: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"takes x.numpy\(\); for a tensor there is tensorbus\."):
        function(tb.ones((3,), device="cpu"))


def test_other_misfits_do_not_speak_of_numpy() -> None:
    with pytest.raises(TypeError, match=r"sum\(\) got an unexpected keyword argument 'where'") as caught:
        tb.sum(tb.ones((3,), device="cpu"), where=0)
    assert "NumPy" not in str(caught.value)
