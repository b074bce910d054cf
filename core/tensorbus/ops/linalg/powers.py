"""Powers, chains of products, and the exponential of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError, ShapeError
from ..call_errors import with_form
from ..creation.creation import eye, full
from ..definition import Op
from ..elementwise.where_cast import narrowed, where, widened
from ..matmul.matmul import matmul, product
from ..movement.movement import broadcast_to, concat
from .matrix import adjoint, check_square, columns, of_matrices, one_matrix, rows, square
from .solve import inv

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


@with_form
def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Return the product of ``n`` times ``x``; of its inverse where ``n`` is negative.

    Raises ``ShapeError`` for matrices that are not square, ``LinAlgError`` for a singular one to be inverted.

    >>> import tensorbus as tb
    >>> tb.linalg.matrix_power(tb.asarray([[1.0, 1.0], [0.0, 1.0]]), 5).tolist()
    [[1.0, 5.0], [0.0, 1.0]]
    """
    check_square("matrix_power", x.shape)
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise ArgumentError(f"matrix_power: the power is an integer, got {n!r}.")
    power = n.__index__()
    if power == 0:
        one = broadcast_to(eye(x.shape[-1], dtype=x.dtype, device=x.device), x.shape)
        return where(full((), False, device=x.device), x, one)  # has the history of x, and no slope
    squares = inv(x) if power < 0 else x
    out, power = None, -power if power < 0 else power
    while True:
        if power & 1:
            out = squares if out is None else product(out, squares)
        power >>= 1
        if not power:
            assert out is not None  # the highest bit is 1
            return +out
        squares = product(squares, squares)


@with_form
def multi_dot(matrices: Sequence[Tensor], /) -> Tensor:
    """Return the product of all, in the order that takes the fewest multiplications.

    The first may be a row vector and the last a column vector; the others are matrices. Source: Cormen et
    al., "Introduction to Algorithms", section 15.2.

    >>> import tensorbus as tb
    >>> tb.linalg.multi_dot([tb.ones((2, 9)), tb.ones((9, 3)), tb.ones((3,))]).tolist()
    [27.0, 27.0]
    """
    xs: list[Tensor] = list(matrices)
    ranks = [len(x.shape) for x in xs]
    inner = ranks[1:-1]
    if not xs or any(r != 2 for r in inner) or any(r not in (1, 2) for r in ranks):
        raise ShapeError(
            f"multi_dot: at least one matrix is needed, and vectors only at the ends; got shapes"
            f" {', '.join(str(x.shape) for x in xs) or 'none'}."
        )
    if len(xs) < 3:
        return matmul(*xs) if len(xs) == 2 else +xs[0]
    sides = [1 if ranks[0] == 1 else xs[0].shape[0], *(x.shape[0] for x in xs[1:])]
    sides.append(1 if ranks[-1] == 1 else xs[-1].shape[1])
    return _chained(xs, _best_splits(sides), 0, len(xs) - 1)


def _best_splits(sides: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return, for each run of matrices, behind which of them it is best cut in two."""
    count = len(sides) - 1
    costs = {(k, k): 0 for k in range(count)}
    splits: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for first in range(count - length):
            last = first + length
            costs[first, last], splits[first, last] = min(
                (costs[first, k] + costs[k + 1, last] + sides[first] * sides[k + 1] * sides[last + 1], k)
                for k in range(first, last)
            )
    return splits


def _chained(xs: Sequence[Tensor], splits: dict[tuple[int, int], int], first: int, last: int) -> Tensor:
    if first == last:
        return xs[first]
    cut = splits[first, last]
    return matmul(_chained(xs, splits, first, cut), _chained(xs, splits, cut + 1, last))


def _exp_vjp(g: Any, x: Any) -> tuple[Any, ...]:
    """Najfeld and Havel 1995, "Derivatives of the matrix exponential": a block of a larger exponential."""
    n, x_adjoint = x.shape[-1], adjoint(x)
    none = full(x.shape, 0, dtype=x.dtype, device=x.device)
    upper, lower = concat([x_adjoint, g], axis=-1), concat([none, x_adjoint], axis=-1)
    whole = _matrix_exp(concat([upper, lower], axis=-2))
    return (rows(columns(whole, n, 2 * n), 0, n),)


_matrix_exp: Op[...] = of_matrices(
    "matrix_exp",
    raises=False,
    arguments=one_matrix,
    infer=square("matrix_exp"),
    vjp=_exp_vjp,
    doc="The sums of ``x ** k / k!`` over all powers of square matrices.",
)


@with_form
def matrix_exp(x: Tensor, /) -> Tensor:
    """Return the exponentials of square matrices, the sums of ``x ** k / k!`` over all powers.

    Those of 16 bits are computed in float32 and rounded once.

    >>> import tensorbus as tb
    >>> tb.linalg.matrix_exp(tb.asarray([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    powers: Tensor = narrowed(_matrix_exp(widened(x)), x.dtype)
    return powers
