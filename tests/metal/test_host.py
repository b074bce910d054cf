"""The metal device on the host: opened in a process of its own, where MLX is installed."""

from __future__ import annotations

import pytest

from metal_host import needs_host, printed

pytestmark = [needs_host, pytest.mark.full]


def test_it_computes() -> None:
    program = """
x = tb.asarray([[1.0, 2.0], [3.0, 4.0]]).requires_grad_()
y = (x @ x + 1).sum()
y.backward()
print(y.item(), x.grad.tolist(), x.device)
print(tb.sort(tb.asarray([3, 1, 2])).tolist(), tb.asarray([0.5], dtype=tb.bfloat16).exp().tolist())
"""
    assert printed(program) == ["58.0 [[7.0, 11.0], [9.0, 13.0]] metal:0", "[1, 2, 3] [1.6484375]"]


def test_products_take_views() -> None:
    program = """
x = tb.arange(12.0, dtype=tb.float32).reshape((3, 4))
print((tb.flip(x.T)[1:] @ x[:, ::2]).tolist())
"""
    assert printed(program) == [str(by_hand())]


def by_hand() -> list[list[float]]:
    """Return the product of the test above."""
    x = [[4.0 * i + j for j in range(4)] for i in range(3)]
    turned = [[x[2 - j][3 - i] for j in range(3)] for i in range(4)][1:]
    return [[sum(row[k] * x[k][j] for k in range(3)) for j in (0, 2)] for row in turned]


def test_errors_name_what_is_wrong() -> None:
    program = """
for call in (
    lambda: tb.asarray([1.0], dtype=tb.float64),
    lambda: tb.arange(3)[tb.asarray([5])].tolist(),
    lambda: tb.ones(1 << 50),
):
    try:
        call()
    except tb.TensorbusError as error:
        print(type(error).__name__)
print(tb.arange(3)[tb.asarray([2])].tolist())
"""
    assert printed(program) == ["UnsupportedDtypeError", "IndexingError", "OutOfMemoryError", "[2]"]
