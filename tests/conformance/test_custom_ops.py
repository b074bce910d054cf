"""Custom ops on every device: what ``opcheck`` tests of them, eagerly, compiled, batched, differentiated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import Tensor, library


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Unregister the custom ops of each test."""
    before = set(library.custom_op_names())
    yield
    for name in set(library.custom_op_names()) - before:
        library.unregister(name)


def test_a_custom_op_is_an_op_of_the_device(device: str) -> None:
    @library.custom_op("everywhere::mixed", mutates_args=("total",))
    def mixed(xs: list[Tensor], total: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
        product = xs[0] * scale
        for x in xs[1:]:
            product = product * x
        total += product
        return product if bias is None else product + bias

    @library.custom_op("everywhere::gate")
    def gate(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * y, (x > y).to(tb.float32)

    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return g * y, g * x

    gate.register_autograd(backward, setup_context=lambda ctx, i, o: ctx.save_for_backward(*i))
    x = tb.asarray([[1.0, -2.0, 3.0], [0.5, 0.25, 4.0]], dtype=tb.float32, device=device)
    y = tb.asarray([[2.0, -3.0, 0.5]] * 2, dtype=tb.float32, device=device)
    for op, args in [(mixed, ([x, y], x, 0.5)), (mixed, ([x], y, 2.0, x)), (gate, (x, y))]:
        outcomes = library.opcheck(op, args)
        outcomes.pop("gradients")  # which need float64
        assert set(outcomes.values()) == {"passed"}, outcomes

    def loss(x: Tensor) -> Tensor:
        (dx,) = tb.grad((gate(x * 2, x)[0] ** 2).sum(), x, create_graph=True)
        (ddx,) = tb.grad(dx.sum(), x)
        return ddx

    expected = 48 * x * x  # of (2 x^2)^2
    for run in (loss, tb.compile(loss)):
        assert run(x.clone().requires_grad_()).tolist() == expected.tolist()
    whole = tb.zeros((2, 3), device=device)
    mixed([y[0]], whole[1], 1.0)
    assert whole.tolist() == [[0.0] * 3, [2.0, -3.0, 0.5]]


def test_a_kernel_in_source_serves_a_custom_op(device: str) -> None:
    negated = tb.kernel(
        {"cpu": "void negated(const float *x, float *out, int64_t n, int64_t begin, int64_t end) {"
         " for (int64_t i = begin; i < end; ++i) out[i] = -x[i]; }"},
        name="negated", tensors={"x": tb.float32}, out=lambda x: x, default=lambda x: -x,
    )  # fmt: skip

    @library.custom_op("everywhere::negated", device_types=())
    def op(x: Tensor) -> Tensor:
        return x

    x = tb.asarray([1.0, 2.0], device=device)
    with pytest.raises(tb.UnsupportedOpError, match=r"everywhere::negated: no kernel on"):
        op(x)
    op.register_kernel(device, negated)
    assert op(x).tolist() == tb.compile(lambda x: op(x) * 1)(x).tolist() == [-1.0, -2.0]
