"""A vjp that does not fit its op raises an error that names the op, and what would fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.backend_api import dtypes, elementwise
from tensorbus.errors import AutogradError
from tensorbus.ops.definition import table


@pytest.fixture
def twice() -> Iterator[Callable[..., Any]]:
    """Define ``x + y`` under another name, with a vjp for one test."""

    def define(vjp: Callable[..., Any]) -> Any:
        table.add(
            elementwise("added", arity=2, dtypes=dtypes.FLOATING, decompose=lambda x, y: x + y, vjp=vjp)
        )
        return table.function("added")

    yield define
    table.discard("added")


def backward(op: Any) -> Any:
    x = tb.asarray([1.0, 2.0]).requires_grad_()
    op(x, 2 * x).sum().backward()
    return x.grad


def test_a_vjp_that_fits(twice: Callable[..., Any]) -> None:
    assert backward(twice(lambda g: (g, g))).tolist() == [3.0, 3.0]


def test_a_vjp_that_asks_for_what_the_op_does_not_have(twice: Callable[..., Any]) -> None:
    with pytest.raises(AutogradError, match=r"added: its vjp asks for 'scale'; what .* is .*\bg\b.*\bx\b"):
        backward(twice(lambda g, scale: (g, g)))


@pytest.mark.parametrize(
    ("vjp", "got"),
    [
        (lambda g: (g,), "1 gradients"),
        (lambda g: (g, g, g), "3 gradients"),
        (lambda g: g, "Tensor"),
        (lambda g: None, "NoneType"),
    ],
)
def test_a_vjp_with_other_than_one_gradient_for_each_operand(
    twice: Callable[..., Any], vjp: Callable[..., Any], got: str
) -> None:
    with pytest.raises(AutogradError, match=f"added: its vjp returned {got}; .* each of its 2"):
        backward(twice(vjp))


@pytest.mark.parametrize(
    ("back", "got"),
    [
        (lambda g: g.sum(), r"a gradient of shape \(\)"),
        (lambda g: g[:1], r"a gradient of shape \(1,\)"),
        (lambda g: tb.reshape(g, (2, 1)), r"a gradient of shape \(2, 1\)"),
        (lambda g: 1.0, "float"),
    ],
)
def test_a_gradient_of_another_shape(twice: Callable[..., Any], back: Callable[..., Any], got: str) -> None:
    with pytest.raises(AutogradError, match=f"added: its vjp returned {got} for argument 0"):
        backward(twice(lambda g: (back(g), None)))


@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (6, 1)])
def test_a_kernel_whose_derivative_has_another_shape(shape: tuple[int, ...]) -> None:
    kernel = tb.kernel(
        {}, name="turned", tensors={"x": tb.float32}, out=lambda x: x, default=lambda x: x * 1,
        vjp=lambda g, x: (tb.zeros(shape),),
    )  # fmt: skip
    x = tb.ones((2, 3)).requires_grad_()
    with pytest.raises(AutogradError, match=f"turned.*shape {re.escape(str(shape))} for argument 0"):
        kernel(x).sum().backward()


def test_a_gradient_that_was_broadcast_is_summed(twice: Callable[..., Any]) -> None:
    assert backward(twice(lambda g: (tb.broadcast_to(g, (3, 2)), None))).tolist() == [3.0, 3.0]
