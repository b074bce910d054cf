"""Max pooling and its gradient, by ``csource/pooling.c`` where they are large."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

from tensorbus.backend_api import Call, Kernel, dtypes

from ..compiler import NATIVE
from ..memory import DTYPES
from ..native.kernel_entry import pieces
from .candidates import operand_size
from .eager_launch import Launches
from .kernels_native import SLOW_IN_NUMPY_SIZE, packed, routine

_FLOATS: Final = (dtypes.float32, dtypes.float64)
_PIECE: Final = 1 << 14
"""Elements of windows that a thread takes at a time, at least."""
_MAX_PLANE: Final = 1 << 31
"""Elements of a plane, whose places are numbers of 32 bits."""


def pooling_kernels(numpy: Mapping[str, Kernel]) -> dict[str, Sequence[Kernel]]:
    """Return the candidates of max pooling; its gradient is taken apart where C does not serve it."""
    whole = Kernel(name="native", prepare=lambda call: _launch(call, 0), supports=_supports)
    gradient = Kernel(name="native", prepare=lambda call: _launch(call, 1), supports=_supports)
    return {
        "max_pool": (whole, replace(numpy["max_pool"], name="numpy")),
        "max_pool_gradient": (gradient,),
    }


def _supports(call: Call) -> bool | str:
    assert call.shapes is not None
    assert call.out_shape is not None
    shape, rank = call.shapes[-1], len(call.attrs["size"])
    if call.dtypes[0] not in _FLOATS:
        return "float32 and float64 only"
    if operand_size(call) < SLOW_IN_NUMPY_SIZE:
        return f"{SLOW_IN_NUMPY_SIZE} elements at least"
    if 0 in (*call.out_shape, *call.shapes[0]) or prod(shape[-rank:]) >= _MAX_PLANE:
        return "nothing empty, and planes of less than 2**31 elements only"
    return NATIVE.compiler() is not None or NATIVE.reason


def _launch(call: Call, place: int) -> Callable[..., Any]:
    """Return the kernel of a call whose operand ``place`` is what is pooled; before it comes the gradient."""
    assert call.shapes is not None
    assert call.out_shape is not None
    dtype, shape, attrs = call.dtypes[0], call.shapes[place], call.attrs
    rank = len(attrs["size"])
    pooled = (call.shapes[0] if place else call.out_shape)[-rank:]
    missing = 3 - rank
    sizes = (
        ((1,) * missing + tuple(shape[-rank:]), (1,) * missing + tuple(pooled)),
        *(
            ((fill,) * missing + tuple(attrs[key]),)
            for key, fill in (("size", 1), ("stride", 1), ("padding", 0), ("dilation", 1))
        ),
    )
    axes = zip(*[lengths for group in sizes for lengths in group], strict=True)
    planes = prod(shape[:-rank])
    work = prod(pooled) * prod(attrs["size"])
    native = routine("max_pool", dtype, dtype, "LOWEST -__builtin_inf()", source="pooling")
    launches = Launches(place + 1, (DTYPES[dtype], call.out_shape))
    name, params = "max_pool_gradient" if place else "max_pool", [n for axis in axes for n in axis]
    piece = pieces((planes,), _PIECE // work + 1)
    launches.add(native.launch(name, range(place + 2), params, (planes,), piece))
    return launches.repacking(packed)
