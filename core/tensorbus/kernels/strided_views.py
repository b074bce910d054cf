"""Ready kernels for a device whose values are ``StridedArray``: movement that moves nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..backend_interface import strided_array as strided
from ..backend_interface.protocols import Call, Kernel
from ..backend_interface.strided_array import StridedArray

Pack = Callable[[StridedArray, int], StridedArray]

_VIEWS: Final[dict[str, Callable[..., Any]]] = {
    "broadcast_to": strided.broadcast_to,
    "permute_dims": strided.permute_dims,
    "flip": strided.flip,
    "windows": strided.windows,
}


def _at(call: Call) -> Callable[[StridedArray, Sequence[int]], StridedArray]:
    size, step = call.attrs["size"], call.attrs["step"]
    return lambda x, start: strided.slice_(x, start, size, step)


_SLICE: Final = Kernel(name="default", function=strided.slice_, runtime_attrs=_at)


def strided_views(pack: Pack) -> dict[str, Callable[..., Any] | Kernel]:
    """Return the kernels of the movement prims that make another view of the same buffer.

    ``pack(x, index)`` returns the elements of ``x`` in C order, on the unit ``index``: a reshape needs it
    where the view does not have them so.
    """

    def reshape(call: Call) -> Callable[[StridedArray], StridedArray]:
        shape, index = call.attrs["shape"], call.index

        def run(x: StridedArray) -> StridedArray:
            view = strided.reshape(x, shape)
            return pack(x, index).view(shape, strided.row_major(shape)) if view is None else view

        return run

    return {**_VIEWS, "slice": _SLICE, "reshape": Kernel(name="view", prepare=reshape)}
