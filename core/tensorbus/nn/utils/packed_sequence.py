"""Packed sequences: recurrent layers take them for sequences of different lengths, with their ends.

PyTorch packs them into one row, so that its kernels skip what is not there. Here they stay side by side, the
shorter ones filled up; layers keep the state of a sequence from its end on, so no order by length is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...dtypes import definition as dt
from ...interchange.host_array import asarray
from ...ops.creation.creation import iota
from ...ops.elementwise.comparison import less
from ...ops.elementwise.where_cast import where
from ...ops.movement.movement import reshape
from ...tensor.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class PackedSequence:
    """Sequences ``(longest, batch, *rest)``, of which each ends after its length.

    ``nn.utils.rnn.pack_padded_sequence`` makes it, ``pad_packed_sequence`` gives the elements back: it has no
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
