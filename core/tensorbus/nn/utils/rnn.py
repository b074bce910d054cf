"""Sequences of different lengths side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...errors import ArgumentError, ShapeError
from ...ops.movement import pad, stack
from ...tensor import Tensor


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0,
    padding_side: Literal["left", "right"] = "right",
) -> Tensor:  # fmt: skip
    """Return sequences ``(length, *rest)`` as one tensor ``(longest, batch, *rest)``, filled up with a value.

    With ``batch_first`` it is ``(batch, longest, *rest)``. Raises ``ShapeError`` where the rest differs or
    there is no sequence, ``ArgumentError`` for another side.

    >>> import tensorbus as tb
    >>> rows = [tb.asarray([1, 2, 3]), tb.asarray([4])]
    >>> tb.nn.utils.rnn.pad_sequence(rows, batch_first=True).tolist()
    [[1, 2, 3], [4, 0, 0]]
    """
    if padding_side not in ("left", "right"):
        raise ArgumentError(f"pad_sequence: padding_side must be 'left' or 'right', got {padding_side!r}.")
    given = list(sequences)
    shapes = [x.shape for x in given]
    if not given or any(not shape or shape[1:] != shapes[0][1:] for shape in shapes):
        raise ShapeError(
            f"pad_sequence: sequences (length, *rest) of one rest are needed, got shapes {shapes}."
        )
    longest = max(shape[0] for shape in shapes)
    padded = []
    for x in given:
        none = (0,) * (x.ndim - 1)
        more, less = (longest - x.shape[0], *none), (0, *none)
        value = padding_value if x.dtype.is_inexact else int(padding_value)
        padded.append(pad(x, less, more, value) if padding_side == "right" else pad(x, more, less, value))
    made: Tensor = stack(padded, axis=0 if batch_first else 1)
    return made
