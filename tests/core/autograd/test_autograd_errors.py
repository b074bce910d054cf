"""What backward() and in-place changes refuse, and that nothing is different afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import Tensor


def leaf(values: Any) -> Tensor:
    return tb.asarray(values, dtype="float32", device="cpu").requires_grad_()


def plain(values: Any, dtype: str = "float32") -> Tensor:
    return tb.asarray(values, dtype=dtype, device="cpu")


def _twice(x: Tensor) -> None:
    y = (x * x).sum()
    y.backward()
    x.grad = None
    y.backward()


def _set(x: Tensor) -> None:
    x[0] = 5.0


def _add(x: Tensor) -> None:
    x += 1


def _grad(x: Tensor) -> None:
    x.grad = plain([1.0, 2.0, 3.0])


REFUSED: dict[str, tuple[Callable[[Tensor], Any], type[Exception], type[Exception], str]] = {
    "backward without history": (
        lambda x: x.detach().sum().backward(), tb.AutogradError, RuntimeError, "no history",
    ),
    "backward of many": (lambda x: (x * 2).backward(), tb.AutogradError, RuntimeError, r"shape \(2,\)"),
    "backward twice": (_twice, tb.AutogradError, RuntimeError, "retain_graph"),
    "a start of the wrong shape": (
        lambda x: (x * x).backward(plain([1.0])), tb.ShapeError, ValueError, r"\(1,\)",
    ),
    "a start that is no tensor": (lambda x: (x * x).backward(3.0), tb.DtypeError, TypeError, "float"),
    "a complex start": (
        lambda x: (x * x).backward(plain([1, 1], "complex64")), tb.DtypeError, TypeError, "complex64",
    ),
    "too many starts": (
        lambda x: tb.grad(x.sum(), x, [None, None]), tb.AutogradError, RuntimeError, "2 gradient",
    ),
    "grad of what needs none": (
        lambda x: tb.grad(x.sum(), plain([1.0])), tb.AutogradError, RuntimeError, "input 0",
    ),
    "an in-place change of a leaf": (_add, tb.AutogradError, RuntimeError, "no_grad"),
    "setting elements of a leaf": (_set, tb.AutogradError, RuntimeError, "no_grad"),
    "a gradient of the wrong shape": (_grad, tb.ShapeError, ValueError, r"\(3,\)"),
    "a gradient for no leaf": (
        lambda x: setattr(x * 1, "grad", plain([1.0, 2.0])), tb.AutogradError, RuntimeError, "leaf",
    ),
    "integers with a gradient": (
        lambda x: x.to("int32").detach().requires_grad_(), tb.AutogradError, RuntimeError, "int32",
    ),
    "a result that stops asking": (
        lambda x: (x * 2).requires_grad_(False), tb.AutogradError, RuntimeError, "detach",
    ),
    "the deep copy of a result": (
        lambda x: __import__("copy").deepcopy(x * 2), tb.AutogradError, RuntimeError, "detach",
    ),
    "an op without a derivative": (
        lambda x: tb.asarray(x.sum()).to("int64").backward(), tb.AutogradError, RuntimeError, "history",
    ),
    "exporting a leaf": (lambda x: x.__dlpack__(), BufferError, BufferError, "detach"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, error, builtin, text = REFUSED[name]
    x = leaf([1.0, 2.0])
    assert issubclass(error, builtin)
    with pytest.raises(error, match=text):
        call(x)
    assert x.tolist() == [1.0, 2.0]
    assert x.grad is None
    assert x.is_leaf
    assert x.requires_grad


def test_a_tensor_of_integers_cannot_be_made_with_a_gradient() -> None:
    with pytest.raises(tb.AutogradError, match="int64"):
        tb.tensor([1, 2], device="cpu", requires_grad=True)


def test_a_leaf_may_change_where_nothing_is_recorded() -> None:
    x = leaf([1.0, 2.0])
    y = (x + x.clone() * x.clone()).sum()
    with tb.no_grad():
        x -= 1.0
        x[0] = 7.0
    assert x.tolist() == [7.0, 1.0]
    assert x.requires_grad
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 5.0]


def test_no_gradient_is_given_to_what_can_hold_none() -> None:
    frozen = leaf([1.0]).requires_grad_(False)
    frozen.grad = None
    assert frozen.grad is None


def test_a_failed_backward_gives_no_gradient_to_anyone() -> None:
    x, y = leaf([1.0]), leaf([1.0])
    inner = y * y
    total = x * 3 + inner
    inner.backward()
    y.grad = None
    with pytest.raises(tb.AutogradError, match="retain_graph"):
        total.backward()
    assert x.grad is None
    assert y.grad is None
