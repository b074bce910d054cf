"""Rows of a table by number, one by one or in bags.

Names, arguments and values are PyTorch's; gradients of tables are dense.
"""

from __future__ import annotations

from typing import Any

from ...autograd.engine import no_grad
from ...dtypes.definition import int64
from ...errors import ArgumentError, DtypeError, ShapeError
from ...ops.call_errors import with_form
from ...ops.creation.creation import full, iota, zeros
from ...ops.elementwise.arithmetic import maximum
from ...ops.elementwise.comparison import equal, greater
from ...ops.elementwise.where_cast import cast, where
from ...ops.indexing.gather_scatter import gather, scatter
from ...ops.matmul.distance import vector_length
from ...ops.movement.movement import broadcast_to, reshape
from ...ops.reduction.scan import sum_scan
from ...ops.reduction.segment import segment_max
from ...tensor.tensor import Tensor


@with_form
def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Return the rows of ``weight`` that ``input`` names: shape ``(*input.shape, width)``.

    The row ``padding_idx`` gets no gradient. With ``max_norm`` rows in use that are longer (by the norm
    ``norm_type``) are first shortened in ``weight`` itself. ``scale_grad_by_freq`` divides gradients by how
    often a row is used here. Raises ``DtypeError`` for numbers that are no integers, ``IndexingError`` for
    rows that are not there.

    >>> import tensorbus as tb
    >>> tb.nn.functional.embedding(tb.asarray([1, 0]), tb.asarray([[1.0], [2.0]])).tolist()
    [[2.0], [1.0]]
    """
    _check("embedding", input, weight, sparse)
    index, skipped = cast(input, int64), _row("embedding", padding_idx, weight)
    if max_norm is not None:
        _shorten(weight, index, max_norm, norm_type)
    rows = gather(weight, index)
    if scale_grad_by_freq:
        rows = _rarely(rows, _counts(index, weight))
    if skipped is not None:
        rows = where(reshape(equal(index, skipped), (*index.shape, 1)), rows.detach(), rows)
    return rows


def _check(name: str, index: Tensor, weight: Tensor, sparse: bool) -> None:
    if not index.dtype.is_integer:
        raise DtypeError(f"{name}: the numbers of rows must be integers, got {index.dtype}.")
    if len(weight.shape) != 2:
        raise ShapeError(f"{name}: a table of shape (rows, width) is needed, got {weight.shape}.")
    if sparse:
        raise ArgumentError(f"{name}: sparse gradients are not available; leave sparse=False.")


def _row(name: str, padding_idx: int | None, weight: Tensor) -> int | None:
    rows = weight.shape[0]
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ArgumentError(f"{name}: padding_idx must lie in [{-rows}, {rows}), got {padding_idx!r}.")
    return padding_idx % rows


def _counts(index: Tensor, weight: Tensor) -> Tensor:
    """Return how often each row is used, at the places where it is."""
    none = zeros((weight.shape[0],), dtype=weight.dtype, device=index.device)
    every = scatter(none, full(index.shape, 1, dtype=weight.dtype, device=index.device), index, mode="add")
    return reshape(gather(every, index), (*index.shape, 1))


def _rarely(rows: Tensor, counts: Tensor) -> Tensor:
    """Return ``rows``, whose gradient is divided by ``counts``."""
    share = rows / counts
    return share + (rows - share).detach()


def _shorten(weight: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Rebind the table with its used rows at most ``max_norm`` long; PyTorch's 1e-7 keeps them below it."""
    with no_grad():
        table = weight.detach()
        length = vector_length(table, -1, True, norm_type)
        hits = scatter(
            zeros((table.shape[0],), dtype=int64, device=index.device),
            full(index.shape, 1, dtype=int64, device=index.device), index, mode="add",
        )  # fmt: skip
        long = greater(length, max_norm) & reshape(greater(hits, 0), (table.shape[0], 1))
        weight.rebind(where(long, table * (max_norm / (length + 1e-7)), table), by="embedding's max_norm")


@with_form
def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the sum, mean or maximum of bags of rows of ``weight``: shape ``(bags, width)``.

    ``input`` is ``(bags, length)``, or ``(numbers,)`` with ``offsets``, where each bag begins (and with
    ``include_last_offset``, as the last one, where they end). ``per_sample_weights``, of the shape of
    ``input``, multiply rows of sums. Rows ``padding_idx`` do not count; an empty bag is 0. Raises
    ``ShapeError`` and ``ArgumentError`` for what does not go together.

    >>> import tensorbus as tb
    >>> table = tb.asarray([[1.0], [2.0], [4.0]])
    >>> bags = tb.nn.functional.embedding_bag(tb.asarray([0, 2, 1]), table, tb.asarray([0, 2]), mode="sum")
    >>> bags.tolist()
    [[5.0], [2.0]]
    """
    _check("embedding_bag", input, weight, sparse)
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f"embedding_bag: mode must be 'sum', 'mean' or 'max', got {mode!r}.")
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise ArgumentError(
            f"embedding_bag: per_sample_weights need mode 'sum' and the shape {input.shape}, got {mode!r} and"
            f" {per_sample_weights.shape}."
        )
    if scale_grad_by_freq and mode == "max":
        raise ArgumentError("embedding_bag: scale_grad_by_freq needs mode 'sum' or 'mean', got 'max'.")
    bags, owner = _owners(input, offsets, include_last_offset)
    index = cast(reshape(input, (input.size,)), int64)
    if max_norm is not None:
        _shorten(weight, index, max_norm, norm_type)
    skipped = _row("embedding_bag", padding_idx, weight)
    rows = gather(weight, index)
    if scale_grad_by_freq:
        rows = _rarely(rows, _counts(index, weight))
    if skipped is not None:  # what does not count goes to a bag of its own, which is dropped
        owner = where(equal(index, skipped), bags, owner)
    if per_sample_weights is not None:
        rows = rows * reshape(per_sample_weights, (index.size, 1))
    one = full(index.shape, 1, dtype=rows.dtype, device=rows.device)
    count = scatter(zeros((bags + 1,), dtype=rows.dtype, device=rows.device), one, owner, mode="add")[:bags]
    count = reshape(count, (bags, 1))
    if mode == "max":
        return where(equal(count, 0), 0.0, segment_max(rows, owner, bags + 1)[:bags])
    blank = zeros((bags + 1, weight.shape[1]), dtype=rows.dtype, device=rows.device)
    total = scatter(blank, rows, owner, mode="add")[:bags]
    return total / maximum(count, 1.0) if mode == "mean" else total


def _owners(x: Tensor, offsets: Tensor | None, include_last: bool) -> tuple[int, Any]:
    """Return how many bags there are, and the bag of each number."""
    if len(x.shape) == 2:
        if offsets is not None:
            raise ArgumentError("embedding_bag: offsets go with numbers of shape (numbers,), not with bags.")
        bags, length = x.shape
        places = reshape(iota(bags, device=x.device), (bags, 1))
        return bags, reshape(broadcast_to(places, (bags, length)), (bags * length,))
    if len(x.shape) != 1 or offsets is None or len(offsets.shape) != 1:
        raise ShapeError(
            "embedding_bag: numbers of shape (bags, length), or (numbers,) with offsets of shape (bags,), are"
            f" needed; got {x.shape} and {None if offsets is None else offsets.shape}."
        )
    if not offsets.dtype.is_integer:
        raise DtypeError(f"embedding_bag: offsets must be integers, got {offsets.dtype}.")
    starts = cast(offsets[:-1] if include_last else offsets, int64)
    bags = starts.shape[0]
    marks = scatter(
        zeros((x.shape[0] + 1,), dtype=int64, device=x.device),
        full((bags,), 1, dtype=int64, device=x.device), starts, mode="add",
    )  # fmt: skip
    return bags, sum_scan(marks, axis=0)[: x.shape[0]] - 1
