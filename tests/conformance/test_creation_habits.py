"""Creation as programs from PyTorch write it: lengths one by one, gradients asked for, generators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb

X = (2, 3)
MAKERS: dict[str, Callable[..., Any]] = {
    "zeros": lambda **kw: tb.zeros(2, 3, **kw),
    "ones": lambda **kw: tb.ones(2, 3, **kw),
    "empty": lambda **kw: tb.empty(2, 3, **kw),
    "full": lambda **kw: tb.full(X, 1.0, **kw),
    "zeros_like": lambda **kw: tb.zeros_like(tb.ones(X, device=kw["device"]), **kw),
    "ones_like": lambda **kw: tb.ones_like(tb.ones(X, device=kw["device"]), **kw),
    "empty_like": lambda **kw: tb.empty_like(tb.ones(X, device=kw["device"]), **kw),
    "full_like": lambda **kw: tb.full_like(tb.ones(X, device=kw["device"]), 2, **kw),
    "rand": lambda **kw: tb.rand(2, 3, **kw),
    "randn": lambda **kw: tb.randn(2, 3, **kw),
    "rand_like": lambda **kw: tb.rand_like(tb.ones(X, device=kw["device"]), **kw),
    "randn_like": lambda **kw: tb.randn_like(tb.ones(X, device=kw["device"]), **kw),
    "arange": lambda **kw: tb.arange(6.0, **kw),
    "linspace": lambda **kw: tb.linspace(0, 1, 6, **kw),
    "eye": lambda **kw: tb.eye(2, 3, **kw),
}


@pytest.mark.parametrize("name", MAKERS)
def test_gradients_are_asked_for(device: str, name: str) -> None:
    make = MAKERS[name]
    assert not make(device=device).requires_grad
    x = make(device=device, requires_grad=True)
    assert x.requires_grad
    assert x.is_leaf
    (x * 3).sum().backward()
    assert x.grad.tolist() == (tb.zeros_like(x) + 3).tolist()
    assert str(x.device) == f"{device}:0"


def test_integers_have_none(device: str) -> None:
    with pytest.raises(tb.AutogradError, match="this one is int32"):
        tb.zeros(3, dtype="int32", device=device, requires_grad=True)


@pytest.mark.parametrize("make", [tb.zeros, tb.ones, tb.empty, tb.rand, tb.randn])
def test_lengths_come_as_a_tuple_or_one_by_one(device: str, make: Callable[..., tb.Tensor]) -> None:
    for lengths in ((2, 3), ((2, 3),), ([2, 3],)):
        assert make(*lengths, device=device).shape == (2, 3)
    assert make(4, device=device).shape == make((4,), device=device).shape == (4,)
    assert make((), device=device).shape == ()
    with pytest.raises(tb.ShapeError):
        make(2, -1, device=device)


def test_shapes_by_name(device: str) -> None:
    assert tb.zeros(shape=(2, 1), device=device).shape == (2, 1)
    with pytest.raises(tb.ShapeError, match=r"zeros: a shape is a tuple of integers, got \(\(2, 3\), 4\)"):
        tb.zeros((2, 3), 4, device=device)
    with pytest.raises(tb.ShapeError, match=r"zeros\(shape, dtype=tensorbus.float64\)"):
        tb.zeros((2, 3), tb.float64, device=device)


@pytest.mark.parametrize("make", [tb.rand, tb.randn])
def test_generators(device: str, make: Callable[..., tb.Tensor]) -> None:
    first, second = (make(2, 3, device=device, generator=tb.Generator(4)) for _ in range(2))
    assert first.tolist() == second.tolist()
    generator = tb.Generator(4)
    assert make(2, 3, device=device, generator=generator).tolist() == first.tolist()
    assert make(2, 3, device=device, generator=generator).tolist() != first.tolist()


def test_whole_numbers_from_zero(device: str) -> None:
    first, second = (tb.Generator(2) for _ in range(2))
    drawn = tb.randint(10, (50,), device=device, generator=first)
    assert drawn.tolist() == tb.randint(0, 10, (50,), device=device, generator=second).tolist()


def test_two_limits_need_a_shape(device: str) -> None:
    with pytest.raises(tb.ShapeError, match=r"a shape is needed: randint\(5, 10, \(3,\)\)"):
        tb.randint(5, 10, device=device)


def test_triangles_take_their_diagonal_by_place(device: str) -> None:
    x = tb.ones(3, 3, device=device)
    assert tb.triu(x, 1).tolist() == x.triu(k=1).tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert tb.tril(x, -1).tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]


def test_what_is_in_a_tensor(device: str) -> None:
    x = tb.asarray([[1, 2], [3, 4]], device=device)
    assert 4 in x
    assert 5 not in x
    assert None not in x


def test_the_method_where_keeps_its_tensor(device: str) -> None:
    x = tb.asarray([-1.0, 2.0], device=device)
    assert x.where(x > 0, 0).tolist() == [0.0, 2.0]
    mask = tb.asarray([True, True], device=device)
    assert mask.where(x > 0, False).tolist() == [False, True]


def test_types_of_python_name_dtypes(device: str) -> None:
    x = tb.asarray([1.5, 0.0], device=device)
    assert (x.to(int).dtype, x.to(bool).tolist()) == (tb.int64, [True, False])
    with pytest.raises(tb.DtypeError):
        x.to(str)


def test_conjugates_and_angles_of_reals(device: str) -> None:
    x = tb.asarray([1.0, -1.0], device=device)
    assert x.conj().tolist() == x.tolist()
    assert x.angle().tolist() == tb.angle(x).tolist()
