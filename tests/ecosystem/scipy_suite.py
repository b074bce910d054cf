"""SciPy's own tests of array API libraries, run with tensors: a plugin of pytest.

    SCIPY_ARRAY_API='["numpy"]' pytest --pyargs scipy -p scipy_suite -m array_api_backends -n auto

with this folder on ``PYTHONPATH``. SciPy's tests take a namespace ``xp`` from a list of known libraries.
Here the list is tensorbus alone, on cpu, with float64 as the default dtype, which SciPy's tests expect.
"""

from __future__ import annotations

import pytest
import scipy.conftest
import tensorbus as tb

tb.set_default_device("cpu")
tb.set_default_dtype(tb.float64)
scipy.conftest.xp_known_backends.add("tensorbus")
object.__setattr__(
    scipy.conftest.xp._fixture_function_marker,
    "params",
    (pytest.param(tb, id="tensorbus", marks=pytest.mark.array_api_backends),),
)
