"""Causal masks by their sizes: objects that ``scaled_dot_product_attention`` takes as a mask of no memory.

Names and meaning are those of ``torch.nn.attention.bias``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from ...devices.device import Device, DeviceLike
from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ...errors import ArgumentError
from ...ops.creation.creation import iota, resolve
from ...ops.elementwise.comparison import greater_equal
from ...ops.movement.movement import reshape
from ...tensor.tensor import Tensor


class CausalVariant(IntEnum):
    """The corner where the diagonal of a causal mask begins, with more keys than queries or fewer.

    ``UPPER_LEFT``: the first query sees the first key. ``LOWER_RIGHT``: the last query sees all keys.
    """

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias:
    """A causal mask of ``seq_len_q`` queries and ``seq_len_kv`` keys, known by its sizes alone.

    As ``attn_mask`` of ``scaled_dot_product_attention`` it takes no memory. Anything else that asks for the
    mask, an attribute or a method of tensors, an operator or an index, gets that of ``materialize``.

    >>> import tensorbus as tb
    >>> mask = tb.nn.attention.bias.causal_lower_right(2, 3)
    >>> mask
    CausalBias(LOWER_RIGHT, shape=(2, 3))
    >>> mask.tolist()
    [[True, True, False], [True, True, True]]
    >>> (~mask).any().item()
    True
    """

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        for name, n in (("seq_len_q", seq_len_q), ("seq_len_kv", seq_len_kv)):
            if isinstance(n, bool) or not hasattr(type(n), "__index__") or n < 0:
                raise ArgumentError(f"CausalBias: {name} is the length of an axis, got {n!r}.")
        self.variant = CausalVariant(variant)
        self.seq_len_q = seq_len_q
        self.seq_len_kv = seq_len_kv

    @property
    def shape(self) -> tuple[int, int]:
        """``(seq_len_q, seq_len_kv)``."""
        return (self.seq_len_q, self.seq_len_kv)

    @property
    def dtype(self) -> DType:
        """That of the mask: bool."""
        return dt.bool_

    @property
    def diagonal(self) -> int:
        """The number of the last key that the first query sees; below 0 where it sees none."""
        lower = self.variant is CausalVariant.LOWER_RIGHT
        return self.seq_len_kv - self.seq_len_q if lower else 0

    def materialize(self, device: DeviceLike = None) -> Tensor:
        """Return the mask as a bool tensor of its shape: whether a query sees a key.

        >>> import tensorbus as tb
        >>> tb.nn.attention.bias.causal_upper_left(2, 3).materialize("cpu").tolist()
        [[True, False, False], [True, True, False]]
        """
        at = resolve(device)
        rows = iota(self.seq_len_q, self.diagonal, dtype=dt.int64, device=at)
        columns = iota(self.seq_len_kv, dtype=dt.int64, device=at)
        mask: Tensor = greater_equal(reshape(rows, (self.seq_len_q, 1)), columns)
        return mask

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the mask on another device or in another dtype: see ``Tensor.to``."""
        first = args[0] if args and isinstance(args[0], (str, Device)) else kwargs.get("device")
        return self.materialize(first).to(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"CausalBias has no attribute {name!r}")
        return getattr(self.materialize(), name)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.materialize().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self.materialize().__dlpack_device__()

    def __getitem__(self, index: Any) -> Any:
        return self.materialize()[index]

    def __len__(self) -> int:
        return self.seq_len_q

    def __invert__(self) -> Any:
        return ~self.materialize()

    def __and__(self, other: Any) -> Any:
        return _same_place(self, other) & _tensor(other)

    def __or__(self, other: Any) -> Any:
        return _same_place(self, other) | _tensor(other)

    def __xor__(self, other: Any) -> Any:
        return _same_place(self, other) ^ _tensor(other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __add__(self, other: Any) -> Any:
        return _same_place(self, other) + _tensor(other)

    def __mul__(self, other: Any) -> Any:
        return _same_place(self, other) * _tensor(other)

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CausalBias):
            return NotImplemented
        return self.shape == other.shape and self.diagonal == other.diagonal

    def __hash__(self) -> int:
        return hash((self.shape, self.diagonal))

    def __repr__(self) -> str:
        return f"CausalBias({self.variant.name}, shape={self.shape})"


def causal_upper_left(*size: int) -> CausalBias:
    """Return the causal mask of ``size``, queries and keys, whose diagonal begins in the upper left corner.

    Raises ``ArgumentError`` for other than two lengths.

    >>> import tensorbus as tb
    >>> x, keys = tb.ones((1, 2, 4)), tb.ones((1, 3, 4))
    >>> mask = tb.nn.attention.bias.causal_upper_left(2, 3)
    >>> tb.nn.functional.scaled_dot_product_attention(x, keys, keys, mask).shape
    (1, 2, 4)
    """
    return CausalBias(CausalVariant.UPPER_LEFT, *_two("causal_upper_left", size))


def causal_lower_right(*size: int) -> CausalBias:
    """Return the causal mask of ``size``, queries and keys, whose diagonal ends in the lower right corner.

    That is the mask of queries that come after keys which are kept from before. Queries that see no key have
    the result 0. Raises ``ArgumentError`` for other than two lengths.

    >>> import tensorbus as tb
    >>> tb.nn.attention.bias.causal_lower_right(1, 3).tolist()
    [[True, True, True]]
    """
    return CausalBias(CausalVariant.LOWER_RIGHT, *_two("causal_lower_right", size))


def _two(name: str, size: tuple[int, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise ArgumentError(f"{name}: the size is (seq_len_q, seq_len_kv), got {size}.")
    return size[0], size[1]


def _tensor(x: Any) -> Any:
    return x.materialize() if isinstance(x, CausalBias) else x


def _same_place(bias: CausalBias, other: Any) -> Tensor:
    return bias.materialize(other.device if isinstance(other, Tensor) else None)
