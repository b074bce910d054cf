"""Tensors for einops: importing this module lets its classic functions take them, on any device.

    import tensorbus.interchange.einops_backend

einops finds backends among the subclasses of its own base class; it is needed for nothing else here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einops import _backends

from ..ops.creation.creation import arange
from ..ops.matmul.einsum import einsum
from ..ops.movement.movement import concat, expand_dims, permute_dims, stack
from ..ops.movement.tile_roll_split import tile
from ..tensor.tensor import Tensor
from .host_array import asarray


class TensorbusBackend(_backends.AbstractBackend):
    """The operations that einops calls."""

    framework_name = "tensorbus"

    def is_appropriate_type(self, tensor: object) -> bool:
        """Return whether this backend is the one of ``tensor``."""
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        """Return an array as a tensor."""
        return asarray(x)

    def to_numpy(self, x: Tensor) -> Any:
        """Return a tensor as an array."""
        return x.numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        """Return the integers from ``start`` up to ``stop``."""
        return arange(start, stop)

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Return ``x`` with its axes in another order."""
        return permute_dims(x, tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Any:
        """Return the tensors side by side along a new first axis."""
        return stack(tensors)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Any:
        """Return ``x`` beside itself."""
        return tile(x, tuple(repeats))

    def concat(self, tensors: list[Tensor], axis: int) -> Tensor:
        """Return the tensors one after another."""
        return concat(tensors, axis=axis)

    def is_float_type(self, x: Tensor) -> bool:
        """Return whether there are means of ``x``."""
        return x.dtype.is_inexact

    def add_axis(self, x: Tensor, new_position: int) -> Any:
        """Return ``x`` with a new axis of length 1."""
        return expand_dims(x, new_position)

    def einsum(self, pattern: str, *x: Tensor) -> Any:
        """Return the sum of products that ``pattern`` names."""
        return einsum(pattern, *x)
