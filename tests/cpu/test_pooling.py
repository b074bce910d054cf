"""Max pooling of many elements in C, and its gradient, beside that of each plane by NumPy and ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor
from tensorbus_cpu.compiler import NATIVE

from error_bounds import assert_alike

F: Any = tb.nn.functional
# The shape, and the window: size, stride, padding, dilation.
CASES: list[tuple[tuple[int, ...], tuple[Any, ...]]] = [
    ((3, 5, 40, 31), (3, 1, 1, 1)),
    ((7, 41, 33), (3, 2, 1, 1)),
    ((2, 4, 50, 27), ((2, 3), (3, 1), (1, 0), (2, 1))),
    ((4, 3, 1100), (5, 3, 2, 2)),
    ((2, 2, 12, 13, 21), (3, 2, 1, 1)),
    ((2, 4, 10, 11, 12), ((1, 2, 3), (1, 2, 2), (0, 1, 1), (2, 1, 1))),
]


def pooled(x: Tensor, window: tuple[Any, ...], rank: int) -> tuple[Any, Any]:
    x = x.detach().requires_grad_()
    out = getattr(F, f"max_pool{rank}d")(x, *window)
    out.backward(tb.reshape(tb.cos(tb.arange(out.size, dtype=x.dtype)), out.shape))
    assert x.grad is not None
    return out.numpy(), x.grad.numpy()


@pytest.mark.parametrize("turned", [False, True], ids=["packed", "strided"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "window"), CASES)
def test_pooling_is_that_of_each_plane(
    shape: tuple[int, ...], window: tuple[Any, ...], dtype: str, turned: bool
) -> None:
    if NATIVE.compiler() is None:
        pytest.skip("there is no compiler here")
    rank = 2 if len(shape) == 3 and shape[0] == 7 else len(shape) - 2
    rng = np.random.default_rng(1)
    values = np.round(rng.normal(size=shape) * 3)  # with equal elements side by side
    values.flat[:: len(values.flat) // 9] = [np.nan, -np.inf, np.inf, np.nan, -np.inf, 0, -0.0, np.nan, 1, 2][
        : len(values.flat[:: len(values.flat) // 9])
    ]
    x = tb.asarray(np.ascontiguousarray(values.T) if turned else values).to(dtype)
    x = tb.permute_dims(x, tuple(reversed(range(len(shape))))) if turned else x
    out, back = pooled(x, window, rank)
    planes = tb.reshape(x, (-1, 1, *shape[-rank:]))
    seed = np.cos(np.arange(out.size)).reshape(out.shape)
    for k, (got, gradient) in enumerate(
        zip(out.reshape(-1, *out.shape[-rank:]), back.reshape(-1, *shape[-rank:]), strict=True)
    ):
        one = planes[k].detach().requires_grad_()
        wanted = getattr(F, f"max_pool{rank}d")(one, *window)
        np.testing.assert_array_equal(got.astype("f8"), wanted.detach().numpy()[0].astype("f8"))
        plane_seed = seed.reshape(-1, *out.shape[-rank:])[k]
        (wanted_back,) = tb.grad(wanted, one, tb.asarray(plane_seed[None]).to(dtype))
        assert wanted_back is not None
        assert_alike(
            gradient, wanted_back.numpy()[0], roundings=9
        )  # an element is in so many windows at most
