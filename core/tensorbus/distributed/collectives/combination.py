"""Combines what ranks contribute, in order of rank: for communicators that have all of it at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from ...eager import functions
from ...ops.creation.creation import full
from ...ops.elementwise.where_cast import where
from ...tensor.tensor import Tensor

_COMBINE: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "sum": functions.add, "product": functions.multiply, "min": functions.minimum, "max": functions.maximum,
    "bitwise_and": functions.bitwise_and, "bitwise_or": functions.bitwise_or,
    "bitwise_xor": functions.bitwise_xor,
}  # fmt: skip


def combined(xs: Sequence[Tensor], reduction: str) -> Tensor:
    """Return the combination of tensors of one shape and dtype, on the device of the first; in their order.

    So it has the same bits wherever it is computed. Floats narrower than float32 are summed and multiplied in
    float32 and rounded once. ``reduction`` is one of ``REDUCTIONS``.

    >>> import tensorbus as tb
    >>> combined([tb.ones(2, device="cpu"), tb.ones(2, device="cpu") * 2], "sum").tolist()
    [3.0, 3.0]
    """
    first = xs[0]
    wide = first.dtype.is_floating and first.dtype.itemsize < 4 and reduction in ("sum", "product")
    moved = [x if x.device == first.device else x.to(first.device) for x in xs]
    total = reduce(_COMBINE[reduction], [x.to("float32") for x in moved] if wide else moved)
    if total.dtype != first.dtype:
        total = total.to(first.dtype)
    return total.clone() if total is first else total


def copied(x: Tensor) -> Tensor:
    """Return ``x`` in memory of its own: what one rank of a process hands to another.

    ``clone()`` shares memory, as values never change. That of an operand may belong to a compiled program,
    which writes over it as soon as the collective has ended on its rank, while others still read.

    >>> import tensorbus as tb
    >>> copied(tb.arange(3, device="cpu")).tolist()
    [0, 1, 2]
    """
    return where(full((), True, dtype="bool", device=x.device), x, x)
