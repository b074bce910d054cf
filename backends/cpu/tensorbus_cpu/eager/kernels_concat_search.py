"""Arrays joined along an axis, and places in sorted values: ``csource/concat.c`` and ``csource/search.c``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

from tensorbus.backend_api import Call, Kernel, dtypes

from ..compiler import NATIVE
from ..memory import DTYPES
from ..native.kernel_entry import pieces
from .candidates import result_size
from .eager_launch import Launches
from .kernels_native import SLOW_IN_NUMPY_SIZE, packed, routine

_MAX_PARTS: Final = 16
_SHORT_ROW: Final = 1 << 12
"""Bytes of a row of the result, from which on NumPy's copies, one a part, are as fast."""
_PIECE_BYTES, _PIECE_VALUES = 1 << 16, 1 << 12
_SEARCHED: Final = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)
_MAX_SORTED: Final = 1 << 31


def concat_search_kernels(numpy: Mapping[str, Kernel]) -> dict[str, Sequence[Kernel]]:
    """Return the candidates of ``concat`` and ``searchsorted``."""
    joined = Kernel(name="native", prepare=_concat, supports=_joins)
    search = Kernel(name="native", prepare=_search, supports=_searches)
    return {
        "concat": (joined, replace(numpy["concat"], name="numpy")),
        "searchsorted": (search, replace(numpy["searchsorted"], name="numpy")),
    }


def _joins(call: Call) -> bool | str:
    assert call.shapes is not None
    assert call.out_shape is not None
    if any(d is not call.out_dtype for d in call.dtypes) or call.out_dtype not in DTYPES:
        return "operands of one dtype only"
    if len(call.shapes) > _MAX_PARTS or any(0 in shape for shape in call.shapes):
        return f"up to {_MAX_PARTS} operands, none of them empty"
    axis = call.attrs["axis"]
    row = prod(call.out_shape[axis:]) * DTYPES[call.out_dtype].itemsize
    if result_size(call) < SLOW_IN_NUMPY_SIZE or row >= _SHORT_ROW or not prod(call.out_shape[:axis]) > 1:
        return f"{SLOW_IN_NUMPY_SIZE} elements at least, in rows of less than {_SHORT_ROW} bytes"
    return NATIVE.compiler() is not None or NATIVE.reason


def _concat(call: Call) -> Callable[..., Any]:
    assert call.shapes is not None
    assert call.out_shape is not None
    axis, dtype, parts = call.attrs["axis"], DTYPES[call.out_dtype], len(call.shapes)
    native = routine("concat", dtypes.uint8, dtypes.uint8, f"PARTS {parts}", source="concat")
    widths = [prod(shape[axis:]) * dtype.itemsize for shape in call.shapes]
    rows = prod(call.out_shape[:axis])
    launches = Launches(parts, (dtype, call.out_shape))
    piece = pieces((rows,), _PIECE_BYTES // sum(widths) + 1)
    launches.add(native.launch("concat", range(parts + 1), widths, (rows,), piece))
    return launches.repacking(packed)


def _searches(call: Call) -> bool | str:
    assert call.shapes is not None
    line, values = call.shapes
    if call.dtypes[0] not in _SEARCHED or call.dtypes[1] is not call.dtypes[0]:
        return "float32, float64, int32 and int64 only"
    if prod(values) < SLOW_IN_NUMPY_SIZE or not 0 < line[-1] < _MAX_SORTED:
        return f"{SLOW_IN_NUMPY_SIZE} values at least, in some that are sorted"
    return NATIVE.compiler() is not None or NATIVE.reason


def _search(call: Call) -> Callable[..., Any]:
    assert call.shapes is not None
    assert call.out_shape is not None
    line, values = call.shapes
    dtype, side = call.dtypes[0], ("RIGHT",) if call.attrs["side"] == "right" else ()
    native = routine("search", dtype, dtype, *side, source="search")
    owned = prod(values) if len(line) == 1 else values[-1]
    launches = Launches(2, (DTYPES[call.out_dtype], call.out_shape))
    piece = pieces((prod(values),), _PIECE_VALUES)
    launches.add(native.launch("search", range(3), (line[-1], owned), (prod(values),), piece))
    return launches.repacking(packed)
