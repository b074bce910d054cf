"""Ready kernels for a device whose values are ``StridedArray``: movement that moves nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..backend_interface import strided_array
from ..backend_interface.protocols import Call, Kernel
from ..backend_interface.strided_array import StridedArray

Pack = Callable[[StridedArray, int], StridedArray]

_VIEWS: Final[dict[str, Callable[..., Any]]] = {
    "broadcast_to": strided_array.broadcast_to,
    "permute_dims": strided_array.permute_dims,
    "flip": strided_array.flip,
    "windows": strided_array.windows,
    "diagonal": strided_array.diagonal,
}


def _at(call: Call) -> Callable[[StridedArray, Sequence[int]], StridedArray]:
    size, step = call.attrs["size"], call.attrs["step"]
    return lambda x, start: strided_array.slice_(x, start, size, step)


_SLICE: Final = Kernel(name="default", function=strided_array.slice_, runtime_attrs=_at)


def strided_views(pack: Pack) -> dict[str, Callable[..., Any] | Kernel]:
    """Return the kernels of the movement prims that make another view of the same buffer.

    ``pack(x, index)`` returns the elements of ``x`` in C order, on the unit ``index``: a reshape needs it
    where the view does not have them so.
    """

    def reshape(call: Call) -> Callable[[StridedArray], StridedArray]:
        shape, index = call.attrs["shape"], call.index

        def run(x: StridedArray) -> StridedArray:
            view = strided_array.reshape(x, shape)
            return pack(x, index).view(shape, strided_array.row_major(shape)) if view is None else view

        return run

    return {**_VIEWS, "slice": _SLICE, "reshape": Kernel(name="view", prepare=reshape)}
