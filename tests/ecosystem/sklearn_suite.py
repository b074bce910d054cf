"""scikit-learn's own tests of array API libraries, run with tensors: a plugin of pytest.

    SCIPY_ARRAY_API=1 pytest --pyargs sklearn -p sklearn_suite -k "array_api or tensorbus" -n auto

with this folder on ``PYTHONPATH``. Its tests are parametrized by the namespaces that scikit-learn knows. Here
that is tensorbus alone, on cpu, in float64 and float32.
"""

from __future__ import annotations

from collections.abc import Iterator

import sklearn.utils._array_api as array_api
import tensorbus as tb

tb.set_default_device("cpu")


def _combinations(include_numpy_namespaces: bool = True) -> Iterator[tuple[str, str, str]]:
    yield "tensorbus", "cpu", "float64"
    yield "tensorbus", "cpu", "float32"


def _namespaces(include_numpy_namespaces: bool = True) -> Iterator[str]:
    yield "tensorbus"


array_api.yield_namespace_device_dtype_combinations = _combinations
array_api.yield_namespaces = _namespaces
