"""Ready kernels over an array-API-like library: sorting, searching, scans, and reading along an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, Final

from ..backend_interface.protocols import Call, Kernel
from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..errors import IndexingError

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
Table = dict[str, Callable[..., Any] | Kernel]

_ACCUMULATED: Final = {
    "cumulative_max": "maximum", "cumulative_min": "minimum", "logcumsumexp": "logaddexp",
}  # fmt: skip
"""Composites that a library with ``accumulate`` runs in one pass."""
MAX_AXES: Final = 32
"""The axes up to which every function of NumPy's takes an array: some of older make refuse more, or crash."""


def ordering(xp: Any, dtypes: Mapping[DType, Any], wrap: Wrap) -> Table:
    """Return the kernels; what the library lacks is left to decompositions."""
    kernels: Table = {
        "sort": Kernel(name="sort", prepare=lambda call: wrap(_sort(xp, dtypes, call))),
        "argsort": Kernel(name="argsort", prepare=lambda call: wrap(_argsort(xp, dtypes, call))),
        "take_along_axis": lambda x, indices, axis: _take(xp, x, indices, axis),
    }
    for op, name in (("cumulative_sum", "cumsum"), ("cumulative_prod", "cumprod")):
        if hasattr(xp, name):
            kernels[op] = Kernel(name=op, prepare=_scan(getattr(xp, name), dtypes, wrap, takes_dtype=True))
    for op, name in _ACCUMULATED.items():
        function = getattr(getattr(xp, name, None), "accumulate", None)
        if function is not None:
            kernels[op] = Kernel(name=op, prepare=_scan(function, dtypes, wrap, takes_dtype=False))
    if hasattr(xp, "searchsorted"):
        kernels["searchsorted"] = Kernel(
            name="searchsorted", prepare=lambda call: wrap(_search(xp, dtypes, call))
        )
    return kernels


def _ordered(dtypes: Mapping[DType, Any], call: Call) -> Callable[[Any], Any]:
    """Return what makes values comparable.

    The smallest floats are so in float32: many libraries do not know their order, and NumPy's sort of float16
    by AVX-512 errs among equal ones.
    """
    wide = dtypes[dt.float32] if call.dtypes[0] in dt.NARROW else None
    return lambda x: x if wide is None else x.astype(wide)


def _along(axis: int, function: Callable[[Any, int], Any]) -> Callable[[Any], Any]:
    """Return what has a function of an array and an axis work along this one, in arrays of any rank."""

    def call(x: Any) -> Any:
        if x.ndim <= MAX_AXES:
            return function(x, axis)
        return function(_in_three(x, axis), 1).reshape(x.shape)

    return call


def _in_three(x: Any, axis: int) -> Any:
    """Return ``x`` with the axes before and after one as one each."""
    return x.reshape(prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))


def _sort(xp: Any, dtypes: Mapping[DType, Any], call: Call) -> Callable[[Any], Any]:
    descending = call.attrs["descending"]
    ordered, own = _ordered(dtypes, call), dtypes[call.out_dtype]

    def sort(x: Any, axis: int) -> Any:
        out = xp.sort(ordered(x), axis=axis).astype(own, copy=False)
        return xp.flip(out, axis=axis) if descending else out

    return _along(call.attrs["axis"], sort)


def _argsort(xp: Any, dtypes: Mapping[DType, Any], call: Call) -> Callable[[Any], Any]:
    stable, index = call.attrs["stable"], dtypes[dt.int64]
    ordered = _ordered(dtypes, call)

    def ascending(x: Any, axis: int) -> Any:
        return xp.argsort(ordered(x), axis=axis, stable=stable).astype(index, copy=False)

    def descending(x: Any, axis: int) -> Any:
        """The ascending order of the reversed axis, read backwards, leaves equal elements as they were."""
        return x.shape[axis] - 1 - xp.flip(ascending(xp.flip(x, axis=axis), axis), axis=axis)

    return _along(call.attrs["axis"], descending if call.attrs["descending"] else ascending)


def _scan(
    function: Callable[..., Any], dtypes: Mapping[DType, Any], wrap: Wrap, *, takes_dtype: bool
) -> Callable[[Call], Callable[..., Any]]:
    """Return what prepares a scan by ``function``; narrow floats are scanned in float32."""

    def prepare(call: Call) -> Callable[..., Any]:
        axis, own = call.attrs["axis"], dtypes[call.out_dtype]
        if call.dtypes[0] in dt.NARROW:
            wide = dtypes[dt.float32]
            return wrap(lambda x: function(x.astype(wide), axis=axis).astype(own))
        return wrap(partial(function, axis=axis, **({"dtype": own} if takes_dtype else {})))

    return prepare


def _search(xp: Any, dtypes: Mapping[DType, Any], call: Call) -> Callable[..., Any]:
    side, ordered, index = call.attrs["side"], _ordered(dtypes, call), dtypes[dt.int64]

    def in_one_line(line: Any, values: Any) -> Any:
        return xp.asarray(xp.searchsorted(ordered(line), ordered(values), side=side), dtype=index)

    def in_rows(line: Any, values: Any) -> Any:
        """Add up powers of two, the largest first: libraries search in one dimension only."""
        line, values = ordered(line), ordered(values)
        length, place = line.shape[-1], xp.zeros(values.shape, dtype=index)
        unordered = values != values
        for bit in reversed(range(length.bit_length())):
            further = place + (1 << bit)
            fits = further <= length
            probed = xp.take_along_axis(line, xp.where(fits, further - 1, 0), axis=-1)
            behind = probed < values if side == "left" else probed <= values
            last = unordered & (probed == probed) if side == "left" else unordered
            place = xp.where(fits & (behind | last), further, place)
        return place

    return in_one_line if call.shapes is None or len(call.shapes[0]) == 1 else in_rows


def _take(xp: Any, x: Any, indices: Any, axis: int) -> Any:
    length = x.shape[axis]
    if indices.size and (int(indices.min()) < -length or int(indices.max()) >= length):
        wrong = int(indices.max()) if int(indices.max()) >= length else int(indices.min())
        raise IndexingError(
            f"take_along_axis: index {wrong} is out of range for axis {axis} of length {length}."
        )
    if x.ndim <= MAX_AXES:
        return xp.take_along_axis(x, indices, axis=axis)
    lines, places = _in_three(x, axis), _in_three(indices, axis)
    return xp.take_along_axis(lines, places, axis=1).reshape(indices.shape)
