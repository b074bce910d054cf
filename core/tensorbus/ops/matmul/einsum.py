"""Sums of products over named axes: ``einsum``, and the products that it is used for most.

Operands are combined in pairs, the pair with the smallest result first, each by one matrix product.
"""

from __future__ import annotations

from itertools import combinations
from math import prod
from typing import Any, Final

from ...dtypes import definition as dt
from ...dtypes.promotion import promote
from ...errors import ArgumentError, DtypeError, ShapeError
from ..call_errors import with_form
from ..definition import table
from ..elementwise.arithmetic import maximum
from ..elementwise.family import Operand
from ..elementwise.where_cast import cast
from ..movement.diagonal import diagonal
from ..movement.movement import permute_dims, reshape
from ..reduction.reduction import mean, sum
from .matmul import matmul

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


Term = tuple[Any, str]
"""A tensor and the label of each of its axes."""


@with_form
def einsum(equation: str, *operands: Operand) -> Any:
    """Return the sum of products that ``equation`` names, as in ``"ij,jk->ik"``.

    A letter names an axis; one that stands twice in an operand takes its diagonal. Letters that the part
    behind ``->`` lacks are summed over; without that part the result has the letters that stand once, in
    alphabetic order. ``...`` stands for axes that broadcast. Axes of one letter have one length, or 1.
    Operands follow one by one, or in one list.
    Raises ``ArgumentError`` for a malformed equation, ``ShapeError`` where shapes do not fit it.

    >>> import tensorbus as tb
    >>> tb.einsum("ij,j->i", tb.asarray([[1, 2], [3, 4]]), tb.asarray([1, 10])).tolist()
    [21, 43]
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    inputs, output = _parse(equation, [len(x.shape) for x in operands])
    dtype = operands[0].dtype
    for x in operands[1:]:
        dtype = promote(dtype, x.dtype)
    sizes = _sizes(equation, inputs, operands)
    terms = [
        _single(x if x.dtype is dtype else cast(x, dtype), labels, sizes)
        for x, labels in zip(operands, inputs, strict=True)
    ]
    terms = [
        _summed(x, labels, set(output).union(*(other for j, (_, other) in enumerate(terms) if j != k)))
        for k, (x, labels) in enumerate(terms)
    ]
    while len(terms) > 1:
        first, second = _cheapest(terms, output, sizes)
        rest = [t for k, t in enumerate(terms) if k not in (first, second)]
        needed = set(output).union(*(labels for _, labels in rest))
        terms = [*rest, _product(terms[first], terms[second], needed)]
    ((x, labels),) = terms
    ordered = permute_dims(x, tuple(labels.index(c) for c in output if c in labels))
    shape = tuple(sizes[c] for c in output)
    return ordered if ordered.shape == shape else table["broadcast_to"](ordered, shape)


def _parse(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Return the labels of each operand and of the result; the axes of ``...`` get letters of their own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ArgumentError(f"einsum: {equation!r} names {len(parts)} operand(s), {len(ranks)} were given.")
    for part in (*parts, right):
        letters = part.replace("...", "", 1)
        if not all(c in _LETTERS for c in letters):
            raise ArgumentError(f"einsum: {part!r} in {equation!r} may hold letters and one '...' only.")
    hidden = [rank - len(part.replace("...", "")) for part, rank in zip(parts, ranks, strict=True)]
    for part, rank, more in zip(parts, ranks, hidden, strict=True):
        if more < 0 or (more > 0 and "..." not in part):
            raise ShapeError(
                f"einsum: {part!r} in {equation!r} does not fit an operand of {rank} dimension(s)."
            )
    free = [c for c in _LETTERS if c not in equation][: max(hidden)]
    own = "".join(free)
    inputs = [p.replace("...", own[len(own) - n :]) for p, n in zip(parts, hidden, strict=True)]
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        return inputs, own + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    output = right.replace("...", own)
    if "..." not in right and own:
        output = right
    unknown = [c for c in output if not any(c in labels for labels in inputs)]
    if unknown or len(set(output)) != len(output):
        raise ArgumentError(
            f"einsum: the result {right!r} in {equation!r} must name each axis once, and only"
            " those of operands."
        )
    return inputs, output


def _sizes(equation: str, inputs: list[str], operands: tuple[Operand, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for labels, x in zip(inputs, operands, strict=True):
        for c, n in zip(labels, x.shape, strict=True):
            known = sizes.get(c, 1)
            if 1 not in (known, n) and known != n:
                raise ShapeError(
                    f"einsum: shapes {', '.join(str(o.shape) for o in operands)} give an axis of {equation!r}"
                    f" the lengths {known} and {n}."
                )
            sizes[c] = n if known == 1 else known
    return sizes


def _single(x: Any, labels: str, sizes: dict[str, int]) -> Term:
    """Take the diagonals of repeated labels, and drop axes of length 1 that others broadcast."""
    for c in dict.fromkeys(labels):
        while labels.count(c) > 1:
            a = labels.index(c)
            b = labels.index(c, a + 1)
            if x.shape[a] != x.shape[b]:
                raise ShapeError(f"einsum: the axes {c!r} of an operand of shape {x.shape} differ in length.")
            x = diagonal(x, 0, a, b)
            labels = labels[:a] + labels[a + 1 : b] + labels[b + 1 :] + c
    full_axes = [k for k, c in enumerate(labels) if x.shape[k] == sizes[c]]
    if len(full_axes) < len(labels):
        x = reshape(x, tuple(x.shape[k] for k in full_axes))
        labels = "".join(labels[k] for k in full_axes)
    return x, labels


def _summed(x: Any, labels: str, needed: set[str]) -> Term:
    """Sum over the axes that nothing else needs."""
    axes = tuple(k for k, c in enumerate(labels) if c not in needed)
    if not axes:
        return x, labels
    return sum(x, axis=axes, dtype=x.dtype), "".join(c for c in labels if c in needed)


def _cheapest(terms: list[Term], output: str, sizes: dict[str, int]) -> tuple[int, int]:
    """Return the pair whose product has the fewest elements more than its factors."""

    def growth(pair: tuple[int, int]) -> int:
        rest = set(output).union(*(own for k, (_, own) in enumerate(terms) if k not in pair))
        labels = [set(terms[k][1]) for k in pair]
        size = prod(sizes[c] for c in (labels[0] | labels[1]) & rest)
        return size - prod(sizes[c] for c in labels[0]) - prod(sizes[c] for c in labels[1])

    return min(combinations(range(len(terms)), 2), key=growth)


def _product(x: Term, y: Term, needed: set[str]) -> Term:
    """Multiply two terms and sum over what neither the others nor the result need: one matrix product."""
    (left, left_labels), (right, right_labels) = x, y
    shared = [c for c in left_labels if c in right_labels]
    batch, inner = [c for c in shared if c in needed], [c for c in shared if c not in needed]
    rows, columns = ([c for c in own if c not in shared] for own in (left_labels, right_labels))
    shape = [left.shape[left_labels.index(c)] for c in batch + rows]
    shape += [right.shape[right_labels.index(c)] for c in columns]
    left = _as_matrices(left, left_labels, [batch, rows, inner])
    right = _as_matrices(right, right_labels, [batch, inner, columns])
    product = matmul(left, right) if inner else left * right
    return reshape(product, tuple(shape)), "".join(batch + rows + columns)


def _as_matrices(x: Any, labels: str, groups: list[list[str]]) -> Any:
    """Return the tensor as a batch of matrices: each group of labels one axis."""
    order = [labels.index(c) for group in groups for c in group]
    lengths = [prod(x.shape[labels.index(c)] for c in group) for group in groups]
    return reshape(permute_dims(x, order), tuple(lengths))


@with_form
def outer(x: Operand, y: Operand, /) -> Any:
    """Return the products of every element of one 1-dimensional tensor with every element of another.

    >>> import tensorbus as tb
    >>> tb.outer(tb.asarray([1, 2]), tb.asarray([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    if len(x.shape) != 1 or len(y.shape) != 1:
        raise ShapeError(f"outer: both operands need 1 dimension, got shapes {x.shape} and {y.shape}.")
    return reshape(x, (x.shape[0], 1)) * y


@with_form
def kron(x: Operand, y: Operand, /) -> Any:
    """Return the Kronecker product: ``y`` once for each element of ``x``, multiplied by it.

    >>> import tensorbus as tb
    >>> tb.kron(tb.asarray([1, 2]), tb.asarray([1, 1])).tolist()
    [1, 1, 2, 2]
    """
    rank = max(len(x.shape), len(y.shape))
    a = (1,) * (rank - len(x.shape)) + x.shape
    b = (1,) * (rank - len(y.shape)) + y.shape
    left = reshape(x._apart(), tuple(n for length in a for n in (length, 1)))
    right = reshape(y._apart(), tuple(n for length in b for n in (1, length)))
    return reshape(left * right, tuple(n * m for n, m in zip(a, b, strict=True)))


@with_form
def cov(x: Operand, /, *, correction: float = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Return the covariances of variables, one in each row of ``x``, whose observations stand in columns.

    ``fweights``, integers, say how often each observation counts, ``aweights`` how much it weighs. One
    variable has a variance, without axes. Raises ``ShapeError`` for weights that are not one for each
    observation, ``DtypeError`` for ``fweights`` that are no integers.

    >>> import tensorbus as tb
    >>> tb.cov(tb.asarray([[1.0, 3.0], [2.0, 6.0]])).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    if len(x.shape) > 2:
        raise ShapeError(f"cov: at most 2 dimensions are possible, got shape {x.shape}.")
    rows = reshape(x, (1, x.size)) if len(x.shape) < 2 else x
    rows = rows if rows.dtype.is_inexact else cast(rows, dt.default_float)
    weights = _observation_weights(rows, fweights, aweights)
    if weights is None:
        centred = rows - mean(rows, axis=-1, keepdims=True)
        count = rows.shape[-1] - correction
        weighted, factor = centred, 1 / count if count > 0 else float("nan")
    else:
        total = sum(weights)
        centred = rows - sum(rows * weights, axis=-1, keepdims=True) / total
        lost = correction if aweights is None else correction * sum(weights * aweights) / total
        weighted, factor = centred * weights, 1 / maximum(total - lost, 0.0)
    transposed = permute_dims(table["conj"](centred) if centred.dtype.is_complex else centred, (1, 0))
    covariances = matmul(weighted, transposed) * factor
    return reshape(covariances, ()) if covariances.shape == (1, 1) else covariances


def _observation_weights(rows: Any, fweights: Any, aweights: Any) -> Any:
    """Return the product of both weights in the real dtype of ``rows``; None where there are none."""
    weights = None
    for name, each in (("fweights", fweights), ("aweights", aweights)):
        if each is None:
            continue
        if each.shape != (rows.shape[-1],):
            raise ShapeError(
                f"cov: {name} of shape {each.shape} were given for {rows.shape[-1]} observation(s)."
            )
        if name == "fweights" and not each.dtype.is_integer:
            raise DtypeError(f"cov: fweights must be integers, got {each.dtype}.")
        real = cast(each, dt.real_of(rows.dtype))
        weights = real if weights is None else weights * real
    return weights


@with_form
def corrcoef(x: Operand, /) -> Any:
    """Return the correlations of variables, one in each row of ``x``, whose observations stand in columns.

    That of one variable with itself has no axes.

    >>> import tensorbus as tb
    >>> tb.corrcoef(tb.asarray([[1.0, 3.0], [2.0, 6.0]]))[0, 1].item() > 0.99
    True
    """
    covariances = cov(x)
    if not covariances.shape:
        return covariances / covariances
    scale = table["sqrt"](diagonal(covariances))
    return covariances / reshape(scale, (scale.shape[0], 1)) / scale
