"""Options of a group of divided parameters, which may change from step to step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...devices.stream import Stream
from ...dtypes.definition import DType
from ...tensor.tensor import Tensor


@dataclass(kw_only=True)
class GroupOptions:
    """The options of one group; methods of its module set them."""

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    """Dtypes of whole parameters, and in which gradients are averaged; None: their own."""
    reshard_after_forward: bool | int | None = None
    """A number: so many ranks, next to each other, keep parts. None: True but for the outermost module."""
    reshard_after_backward: bool = True
    unshard_in_backward: bool = True
    """False: nothing is gathered ahead of derivatives."""
    sync: bool = True
    """False: a gradient that comes is kept, whole."""
    all_reduce: bool = True
    """False: ranks that have the same part keep averages of their own."""
    divide_factor: float | None = None
    """What sums of gradients are divided by; None: the number of ranks."""
    only_sums: bool = False
    """Communicate sums, and divide afterwards, also where the communicator has averages."""
    all_reduce_hook: Callable[[Tensor], object] | None = None
    """Called with this rank's part of averages, in one tensor, before they are added to gradients."""
    all_reduce_stream: Stream | None = None
    pinned: bool = False
    """Copies between the host and the device go by page-locked memory."""
