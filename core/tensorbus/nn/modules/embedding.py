"""Tables of rows that a model learns."""

from __future__ import annotations

from typing import Self

from ...autograd.engine import no_grad
from ...devices.device import Device
from ...dtypes.definition import DType
from ...errors import ArgumentError, ShapeError
from ...ops.creation.creation import empty
from ...tensor.tensor import Tensor
from .. import functional, init
from ..module import Module
from ..parameter import Parameter
from .linear import positive


class _Table(Module):
    """Base of ``Embedding`` and ``EmbeddingBag``: the table, and the row that is not learned."""

    padding_idx: int | None

    def _make(
        self, rows: int, width: int, padding_idx: int | None, weight: Tensor | None, freeze: bool,
        device: Device | str | None, dtype: DType | str | None,
    ) -> None:  # fmt: skip
        name = type(self).__name__
        positive(name, num_embeddings=rows, embedding_dim=width)
        if padding_idx is not None:
            if not -rows <= padding_idx < rows:
                raise ArgumentError(
                    f"{name}: padding_idx must lie in [{-rows}, {rows}), got {padding_idx!r}."
                )
            padding_idx %= rows
        self.num_embeddings = rows
        self.embedding_dim = width
        self.padding_idx = padding_idx
        if weight is not None and weight.shape != (rows, width):
            raise ShapeError(f"{name}: a table of shape {(rows, width)} is needed, got {weight.shape}.")
        table = empty((rows, width), device=device, dtype=dtype) if weight is None else weight.detach()
        self.weight = Parameter(table, requires_grad=not freeze)
        if weight is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw normally distributed rows; the row ``padding_idx`` is 0."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0


class Embedding(_Table):
    """Rows of a table by number: ``(*)`` integers to ``(*, embedding_dim)``.

    Raises ``ArgumentError`` for a ``padding_idx`` that is not there.

    >>> import tensorbus as tb
    >>> tb.nn.Embedding(10, 3)(tb.asarray([[1, 2, 4, 5]])).shape
    (1, 4, 3)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False,
        device: Device | str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._make(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Self:  # fmt: skip
        """Return an embedding of a given table, which does not learn unless ``freeze=False``."""
        if embeddings.ndim != 2:
            raise ShapeError(f"from_pretrained: a table of 2 dimensions is needed, got {embeddings.shape}.")
        rows, width = embeddings.shape
        return cls(
            rows, width, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze
        )

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows. Raises ``IndexingError`` for a number that is not there."""
        return functional.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.sparse,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the settings that differ from their defaults."""
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        return ", ".join(parts)


class EmbeddingBag(_Table):
    """Sums, means or maxima of bags of rows: ``(bags, length)`` integers to ``(bags, embedding_dim)``.

    >>> import tensorbus as tb
    >>> tb.nn.EmbeddingBag(10, 3, mode="sum")(tb.asarray([1, 2, 4, 5]), tb.asarray([0, 3])).shape
    (2, 3)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
        _weight: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
        device: Device | str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if mode not in ("sum", "mean", "max"):
            raise ArgumentError(f"EmbeddingBag: mode must be 'sum', 'mean' or 'max', got {mode!r}.")
        self._make(num_embeddings, embedding_dim, padding_idx, _weight, False, device, dtype)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Return one row for each bag."""
        return functional.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"
