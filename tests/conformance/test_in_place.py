"""Methods that change a tensor: what it then holds, its history, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import Tensor

CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], list[float]]] = {
    "copy_": (lambda x: x.copy_(tb.asarray(7, device=x.device)), [7, 7, 7]),
    "copy_ of a list": (lambda x: x.copy_([7, 8, 9]), [7, 8, 9]),
    "fill_": (lambda x: x.fill_(7), [7, 7, 7]),
    "zero_": (lambda x: x.zero_(), [0, 0, 0]),
    "add_": (lambda x: x.add_(x, alpha=2), [3, 6, -12]),
    "sub_": (lambda x: x.sub_(1, alpha=2), [-1, 0, -6]),
    "mul_": (lambda x: x.mul_(3), [3, 6, -12]),
    "div_": (lambda x: x.div_(-3, rounding_mode="trunc"), [0, 0, 1]),
    "div_ down": (lambda x: x.div_(-3, rounding_mode="floor"), [-1, -1, 1]),
    "pow_": (lambda x: x.pow_(2), [1, 4, 16]),
    "clamp_": (lambda x: x.clamp_(-1, 1), [1, 1, -1]),
    "clip_": (lambda x: x.clip_(max=1), [1, 1, -4]),
    "masked_fill_": (lambda x: x.masked_fill_(x < 0, 5), [1, 2, 5]),
    "addcmul_": (lambda x: x.addcmul_(x, x, value=2), [3, 10, 28]),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_values(device: str, name: str, dtype: str) -> None:
    change, wanted = CHANGES[name]
    x = tb.asarray([1, 2, -4], dtype=dtype, device=device)
    assert change(x) is x
    assert (x.tolist(), x.dtype.name) == (wanted, dtype)


def test_values_of_floats(device: str) -> None:
    x = tb.asarray([1.0, -4.0], device=device)
    assert x.div_(2).tolist() == [0.5, -2.0]
    assert x.lerp_(x * 3, 0.5).tolist() == [1.0, -4.0]
    assert x.addcdiv_(x, x, value=3).tolist() == [4.0, -1.0]
    assert x.add_(tb.ones(2, dtype=tb.float64, device=device)).dtype is tb.float32
    large = tb.asarray([2**40 + 1], dtype=tb.int64, device=device)
    assert large.div_(-1, rounding_mode="trunc").item() == -(2**40) - 1


def test_drawn_values(device: str) -> None:
    x = tb.zeros(1000, device=device)
    assert (
        x.uniform_(2, 3, generator=tb.Generator(1)).tolist()
        == tb.uniform((1000,), 2, 3, generator=tb.Generator(1), device=device).tolist()
    )
    assert abs(x.normal_(5, 0.1, generator=tb.Generator(1)).mean().item() - 5) < 0.02


def test_histories(device: str) -> None:
    w = tb.asarray([1.0, 2.0], device=device).requires_grad_()
    with pytest.raises(tb.AutogradError, match="a leaf that requires a gradient"):
        w.add_(1)
    with tb.no_grad():
        w.add_(1).mul_(2)
    assert (w.tolist(), w.is_leaf, w.requires_grad) == ([4.0, 6.0], True, True)
    h = (w * 2).mul_(w).add_(1)
    h.sum().backward()
    assert w.grad.tolist() == [16.0, 24.0]
    copied = tb.zeros((2, 2), device=device).copy_(w)
    assert not copied.is_leaf
    (w.grad,) = tb.grad(copied.sum(), w)
    assert w.grad.tolist() == [2.0, 2.0]
    same = tb.zeros(2, device=device).copy_(w)
    assert not same.is_leaf
    emptied = (w * 2).zero_()
    assert tb.grad(emptied.sum(), w)[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda x: x.add_(1.5), tb.DtypeError, "an in-place change keeps shape, dtype"),
        (lambda x: x.div_(2), tb.DtypeError, "an in-place change keeps shape, dtype"),
        (lambda x: x.add_(tb.ones((2, 3), dtype=tb.int32, device=x.device)), tb.ShapeError, "keeps shape"),
        (
            lambda x: x.div_(2, rounding_mode="up"),
            tb.ArgumentError,
            "rounding_mode is None, 'trunc' or 'floor'",
        ),
        (lambda x: x.fill_(1.5), tb.DtypeError, "does not fit"),
        (lambda x: x.normal_(), tb.DtypeError, "floating-point dtype is needed"),
    ],
)
def test_refusals(device: str, change: Callable[[Tensor], Any], error: type[Exception], message: str) -> None:
    x = tb.asarray([1, 2, 3], dtype=tb.int32, device=device)
    with pytest.raises(error, match=message):
        change(x)
    assert x.tolist() == [1, 2, 3]


def test_averages_in_compiled_functions(device: str) -> None:
    def follow(mean: Tensor, x: Tensor) -> Tensor:
        return mean.mul_(0.5).add_(x, alpha=0.5)

    results = []
    for run in (follow, tb.compile(follow)):
        mean = tb.zeros(2, device=device)
        for n in (1.0, 2.0, 4.0, 8.0):
            run(mean, tb.full((2,), n, device=device))
        results.append(mean.tolist())
    assert results[0] == results[1] == [5.3125, 5.3125]


def test_copies_from_other_devices(device: str) -> None:
    assert tb.zeros(2, device=device).copy_(tb.ones(2, dtype=tb.int32, device="cpu")).tolist() == [1.0, 1.0]
