"""``gather`` and ``scatter`` along an axis and by index tensors, on every device, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) / 8
RNG = np.random.default_rng(5)


def t(a: Any, device: str) -> tb.Tensor:
    return tb.asarray(a, device=device)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("shorter", [0, 1])
def test_gather_reads_the_corner_that_the_index_covers(device: str, axis: int, shorter: int) -> None:
    shape = tuple(n - shorter for n in X.shape)
    index = RNG.integers(0, X.shape[axis], shape)
    wanted = np.empty(shape, np.float32)
    for at in np.ndindex(*shape):
        place = list(at)
        place[axis] = index[at]
        wanted[at] = X[tuple(place)]
    x = t(X, device).requires_grad_()
    actual = tb.gather(x, axis, t(index, device))
    np.testing.assert_array_equal(actual.numpy(), wanted)
    np.testing.assert_array_equal(x.detach().gather(axis, t(index, device)).numpy(), wanted)
    actual.sum().backward()
    assert x.grad is not None
    assert x.grad.sum().item() == index.size


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_writes_along_an_axis(device: str, axis: int) -> None:
    index = np.argsort(RNG.random(X.shape), axis=axis)
    new = RNG.random(X.shape).astype(np.float32)
    wanted = X.copy()
    np.put_along_axis(wanted, index, new, axis)
    actual = tb.scatter(t(X, device), axis, t(index, device), t(new, device))
    np.testing.assert_array_equal(actual.numpy(), wanted)
    place = [0, 0, 0]
    place[axis] = index[0, 0, 0]
    wanted[tuple(place)] = 7.0
    np.testing.assert_array_equal(actual.scatter(axis, t(index[:1, :1, :1], device), 7.0).numpy(), wanted)


def test_scatter_combines_by_its_mode(device: str) -> None:
    x, index = t(np.ones((1, 3), np.float32), device), t(np.array([[2, 2, 0]]), device)
    result = tb.scatter(x, 1, index, t(np.array([[1.0, 2.0, 3.0]], np.float32), device), mode="add")
    assert result.tolist() == [[4.0, 1.0, 4.0]]


def test_index_tensors_for_the_first_axes(device: str) -> None:
    i, j = np.array([1, 0]), np.array([2, 2])
    x = t(X, device)
    np.testing.assert_array_equal(tb.gather(x, t(i, device), t(j, device)).numpy(), X[i, j])
    np.testing.assert_array_equal(tb.gather(x, t(i, device)).numpy(), X[i])
    wanted = X.copy()
    wanted[i, j] = 0.5
    new = t(np.full((2, 4), 0.5, np.float32), device)
    np.testing.assert_array_equal(tb.scatter(x, new, t(i, device), t(j, device)).numpy(), wanted)


@pytest.mark.parametrize(
    ("axis", "index", "words"),
    [
        (0, np.zeros((2, 4, 4), np.int64), "reach beyond"),
        (0, np.zeros((2,), np.int64), "same number of dimensions"),
        (3, np.zeros((2, 3, 4), np.int64), "axis 3 is out of range"),
    ],
)
def test_shapes_that_do_not_fit(device: str, axis: int, index: Any, words: str) -> None:
    with pytest.raises((tb.ShapeError, tb.AxisError), match=words):
        tb.gather(t(X, device), axis, t(index, device))
    with pytest.raises((tb.ShapeError, tb.AxisError)):
        tb.scatter(t(X, device), axis, t(index, device), 1.0)


def test_along_an_axis_under_vmap_and_compile(device: str) -> None:
    x, index = t(X, device), t(RNG.integers(0, 3, (2, 2, 4)), device)
    one_by_one = tb.stack([tb.gather(a, 0, i) for a, i in zip(x, index, strict=True)])
    np.testing.assert_array_equal(
        tb.vmap(lambda a, i: tb.gather(a, 0, i))(x, index).numpy(), one_by_one.numpy()
    )
    compiled = tb.compile(lambda a, i: tb.gather(a, 1, i) * 2)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x, index).numpy(), 2 * one_by_one.numpy())
