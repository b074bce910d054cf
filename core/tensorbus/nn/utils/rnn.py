"""Sequences of different lengths side by side, and packed: with their ends, as recurrent layers take them.

PyTorch packs them into one row, so that its kernels skip what is not there. Here they stay side by side, the
shorter ones filled up; layers keep the state of a sequence from its end on, so no order by length is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...dtypes import definition as dt
from ...errors import ArgumentError, ShapeError
from ...interchange.host_array import asarray
from ...ops.creation.creation import iota
from ...ops.elementwise.comparison import less
from ...ops.elementwise.where_cast import where
from ...ops.movement.movement import pad, permute_dims, reshape, stack
from ...tensor.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PackedSequence:
    """Sequences ``(longest, batch, *rest)``, of which each ends after its length.

    ``pack_padded_sequence`` makes it, ``pad_packed_sequence`` gives the elements back: it has no
    ``data`` and ``batch_sizes`` of PyTorch's.
    """

    padded: Tensor
    lengths: tuple[int, ...]

    def ends(self) -> Tensor:
        """Return the lengths as an int64 tensor ``(batch,)``."""
        return asarray(self.lengths, dtype=dt.int64, device=self.padded.device)

    def present(self) -> Tensor:
        """Return ``(longest, batch, 1)``: true where there are elements."""
        length, batch = self.padded.shape[:2]
        times = reshape(iota(length, device=self.padded.device), (length, 1, 1))
        return less(times, reshape(self.ends(), (1, batch, 1)))

    def filled(self, value: float) -> Tensor:
        """Return ``(longest, batch, *rest)`` with ``value`` behind the ends."""
        x = self.padded
        there = reshape(self.present(), (*x.shape[:2], *(1,) * (x.ndim - 2)))
        filled: Tensor = where(there, x, value if x.dtype.is_inexact else int(value))
        return filled


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Return sequences ``(longest, batch, *rest)`` with their ends, as recurrent layers take them.

    With ``batch_first`` they are ``(batch, longest, *rest)``. ``lengths`` are integers or a tensor of them,
    in any order: ``enforce_sorted`` changes nothing. Raises ``ShapeError`` where they do not fit.

    >>> import tensorbus as tb
    >>> rnn = tb.nn.LSTM(3, 4, batch_first=True)
    >>> packed = tb.nn.utils.rnn.pack_padded_sequence(tb.ones((2, 5, 3)), [3, 2], batch_first=True)
    >>> out, (h, c) = rnn(packed)
    >>> out, lengths = tb.nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    >>> out.shape, lengths.tolist()
    ((2, 3, 4), [3, 2])
    """
    if input.ndim < 2:
        raise ShapeError(f"pack_padded_sequence: needs a length and a batch, got shape {input.shape}.")
    ends = tuple(int(n) for n in (lengths.tolist() if hasattr(lengths, "tolist") else lengths))
    steps = _swap_if(input, batch_first)
    longest, batch = steps.shape[:2]
    if len(ends) != batch or not batch or not all(0 < n <= longest for n in ends):
        raise ShapeError(
            f"pack_padded_sequence: {batch} lengths from 1 to {longest} are needed for an input of shape"
            f" {input.shape}{' with batch_first' if batch_first else ''}, got {list(ends)}."
        )
    return PackedSequence(PackedSequence(steps[: max(ends)], ends).filled(0), ends)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the sequences, filled up with a value to the longest or to ``total_length``, and their lengths.

    Raises ``ShapeError`` for a ``total_length`` under the longest.
    """
    padded = sequence.filled(padding_value)
    if total_length is not None:
        more = total_length - padded.shape[0]
        if more < 0:
            raise ShapeError(
                f"pad_packed_sequence: total_length must be at least {padded.shape[0]}, got {total_length}."
            )
        rest = (0,) * (padded.ndim - 1)
        value = padding_value if padded.dtype.is_inexact else int(padding_value)
        padded = pad(padded, (0, *rest), (more, *rest), value)
    return _swap_if(padded, batch_first), sequence.ends()


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Return tensors ``(length, *rest)`` as one packed sequence; see ``pack_padded_sequence``."""
    listed = list(sequences)
    return pack_padded_sequence(pad_sequence(listed), [x.shape[0] for x in listed], False, enforce_sorted)


def unpad_sequence(padded: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """Return the sequences that ``pad_sequence`` put side by side, each to its length."""
    rows = padded if batch_first else _swap_if(padded, True)
    ends = lengths.tolist() if hasattr(lengths, "tolist") else lengths
    return [rows[k, :n] for k, n in enumerate(ends)]


def _swap_if(x: Tensor, swaps: bool) -> Tensor:
    return permute_dims(x, (1, 0, *range(2, x.ndim))) if swaps else x


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
    listed = list(sequences)
    shapes = [x.shape for x in listed]
    if not listed or any(not shape or shape[1:] != shapes[0][1:] for shape in shapes):
        raise ShapeError(
            f"pad_sequence: sequences (length, *rest) of one rest are needed, got shapes {shapes}."
        )
    longest = max(shape[0] for shape in shapes)
    padded = []
    for x in listed:
        none = (0,) * (x.ndim - 1)
        more, nothing = (longest - x.shape[0], *none), (0, *none)
        value = padding_value if x.dtype.is_inexact else int(padding_value)
        padded.append(
            pad(x, nothing, more, value) if padding_side == "right" else pad(x, more, nothing, value)
        )
    out: Tensor = stack(padded, axis=0 if batch_first else 1)
    return out
