"""Which of the candidates of sorts and products runs a call: NVIDIA's libraries where they serve it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cuda import device as cuda

from error_bounds import assert_as_exact_as_eager

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]


def chosen(name: str, *arrays: np.ndarray, **attrs: object) -> str:
    """Return the name of the kernel that runs an op on these values, and check that its result is right."""
    values = [tb.asarray(x, device="cuda") for x in arrays]
    host = [tb.asarray(x, device="cpu") for x in arrays]
    result, expected = (getattr(tb, name)(*each, **attrs) for each in (values, host))
    if expected.dtype.is_floating:
        exact = getattr(tb, name)(*[x.to("float64") for x in host], **attrs)
        roundings = max(x.size for x in arrays) + 1
        assert_as_exact_as_eager(result.numpy(), expected.numpy(), exact.numpy(), roundings, expected.dtype)
    else:
        np.testing.assert_array_equal(result.numpy(), expected.numpy())
    decision = tb.explain(name, *values, **attrs).decisions[0]
    assert decision.chosen is not None
    return str(decision.chosen.kernel.name)


@pytest.mark.parametrize("op", ["sort", "argsort"])
def test_sorts(op: str) -> None:
    draw = np.random.default_rng(0)
    for shape, dtype, kernel in (
        ((3, 48), "float32", "generated"), ((3, 49), "float32", "rows"), ((40, 1024), "int16", "rows"),
        ((2, 100_000), "float32", "generated"), ((100_000,), "float32", "cub"), ((100_000,), "uint8", "cub"),
        ((3, 200), "bool", "generated"), ((0, 200), "float32", "generated"), ((200, 0), "int32", "generated"),
    ):  # fmt: skip
        x = (draw.integers(0, 100, shape)).astype(dtype)
        for descending in (False, True):
            assert chosen(op, x, axis=-1, descending=descending) == kernel, (shape, dtype)


def test_products() -> None:
    draw = np.random.default_rng(0)
    for left, right, dtype, kernel in (
        ((5, 7), (7, 3), "float32", "cublaslt"), ((2, 5, 7), (2, 7, 3), "float64", "cublaslt"),
        ((5, 0), (0, 3), "float32", "generated"), ((0, 5), (5, 3), "float32", "generated"),
        ((5, 7), (7, 3), "int8", "generated"), ((200, 160), (160, 128), "int8", "cublaslt_bytes"),
        ((200, 160), (160, 128), "int32", "generated"), ((3, 1, 8, 8), (4, 8, 8), "float32", "cublaslt"),
    ):  # fmt: skip
        x, y = (draw.integers(-3, 4, shape).astype(dtype) for shape in (left, right))
        assert chosen("matmul", x, y) == kernel, (left, right, dtype)
        f = tb.compile(lambda x, y: tb.matmul(x, y) + 1)
        values = [tb.asarray(each, device="cuda") for each in (x, y)]
        for _ in range(2):
            np.testing.assert_array_equal(f(*values).numpy(), np.matmul(x, y) + np.asarray(1, dtype))
