"""The eager table: views that cost nothing, and NumPy for the rest, over the heap.

``from_namespace`` makes the kernels over host arrays. Each is wrapped here into one over values of the
device, which works out the shape of the result at once and leaves the computing to the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import tensorbus.backend_api as api
from tensorbus.backend_api import Call, Kernel, StridedArray, broadcast_shapes

from .device import UNITS
from .memory import DTYPES


def on_device(host_kernel: Callable[..., Any] | Kernel) -> Kernel:
    """Make a kernel over values of the device from one over host arrays."""

    def prepare(call: Call) -> Callable[..., StridedArray]:
        unit, compute = UNITS[call.index], _prepared(host_kernel, call)

        def run(*values: Any) -> StridedArray:
            shape = call.out_shape
            if shape is None:  # elementwise: one prepared kernel serves every shape
                shape = broadcast_shapes(*(v.shape for v in values if isinstance(v, StridedArray)))
            return unit.launch(call.op, compute, values, shape, call.out_dtype)

        return run

    return Kernel(name="refdev", prepare=prepare)


def _prepared(kernel: Callable[..., Any] | Kernel, call: Call) -> Callable[..., Any]:
    if isinstance(kernel, Kernel) and kernel.prepare is not None:
        return kernel.prepare(call)
    function: Any = kernel.function if isinstance(kernel, Kernel) else kernel
    return partial(function, **call.attrs)


def pack(x: StridedArray, index: int) -> StridedArray:
    """Copy the elements of a view into C order: what a reshape of it needs first."""
    return UNITS[index].launch("reshape", lambda elements: elements, (x,), x.shape, x.dtype)


_COMPUTED: Final = {op: on_device(kernel) for op, kernel in api.from_namespace(np, DTYPES).items()}
TABLE: Final = {**_COMPUTED, **api.strided_views(pack), **api.host_kernels("refdev")}
