"""Keys of ``x[key]`` with symbolic numbers, which differ at each run.

Such a number becomes an index tensor, so that one program serves every value: a gather or a scatter. Keys
for which that is impossible need the number itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dtypes import definition as dt
from ...ops.creation.creation import iota, zeros
from ...tensor.tensor import Tensor
from ...tracing.host_prologue import HostPrologue
from ...tracing.sym_number import SymNumber
from ..programs.op_trace import OpTrace


def is_symbolic(prologue: HostPrologue, key: Any) -> bool:
    """Return whether a key holds a symbolic number that varies."""
    return any(_is_symbolic_number(prologue, n) for n in key_numbers(key))


def key_numbers(key: Any) -> list[Any]:
    """Return the numbers of a key, and its placeholders."""
    return [n for item in _items(key) for n in _item_numbers(item)]


def concrete_key(key: Any) -> Any:
    """Return the key with the values of this run."""
    concrete = tuple([_concrete(item) for item in _items(key)])
    return concrete if isinstance(key, tuple) else concrete[0]


def record_indexing(
    prologue: HostPrologue, trace: OpTrace, concrete_result: Tensor, function: Callable[..., Tensor],
    x: Tensor, key: Any, *value: Any,
) -> Tensor:  # fmt: skip
    """Return the result of ``function`` for a symbolic key; ``concrete_result`` the concrete one's.

    That one is recorded as a shadow, for comparison with a run without symbolic numbers.
    """
    first = len(trace.nodes)
    indexed = index_tensors(prologue, x, key, not value)
    if indexed is None:
        prologue.obstacle = prologue.obstacle or "takes parts at places that differ at each call"
        return concrete_result
    result = function(*indexed, *value)
    trace.shadow(result._value.place, concrete_result._value.place, first)
    return result


def index_tensors(prologue: HostPrologue, x: Tensor, key: Any, reading: bool) -> tuple[Tensor, Any] | None:
    """Return a tensor and a key of index tensors that select the same, and bound its symbolic numbers.

    None: there are none. The concrete key is a valid one of ``x``. ``reading``: the tensor may be another
    than ``x``.
    """
    items = _items(key)
    if any(isinstance(item, (list, bool, Tensor)) or hasattr(item, "__array__") for item in items):
        return None
    axis_items = [item for item in items if item is not None and item is not Ellipsis]
    alone = all(isinstance(item, slice) for item in axis_items)
    tensor_key: list[Any] = []
    axis = 0
    for item in items:
        tensor_item = item
        if item is Ellipsis:
            axis += len(x.shape) - len(axis_items)
        elif item is not None:
            if any(_is_symbolic_number(prologue, n) for n in _item_numbers(item)):
                box = isinstance(item, slice)
                tensor_item = (
                    _indices_of_slice(prologue, x, item, axis) if box else _index_of(prologue, x, item, axis)
                )
                if tensor_item is None or (box and not reading and not alone):
                    return None
                alone = False
                if box and reading:
                    x, tensor_item = x[(*(slice(None),) * axis, tensor_item)], slice(None)
            axis += 1
        tensor_key.append(tensor_item)
    return x, tuple(tensor_key)


def _index_of(prologue: HostPrologue, x: Tensor, at: SymNumber, axis: int) -> Tensor:
    length = x.shape[axis]
    prologue.bounded(at, -length, length - 1)
    return zeros((), dtype=dt.int64, device=x.device) + at


def _indices_of_slice(prologue: HostPrologue, x: Tensor, item: slice, axis: int) -> Tensor | None:
    """Return the indices of a slice of constant length that lies within the axis, or None."""
    first, stop, length = item.start, item.stop, x.shape[axis]
    if first is None or stop is None or not (item.step is None or item.step == 1):
        return None
    begin, end = _concrete(first), _concrete(stop)
    if not 0 <= begin < end <= length or stop - first != end - begin:
        return None
    for n in (first, stop):
        if type(n) is SymNumber:
            prologue.bounded(n, 0, length)
    places: Tensor = iota(end - begin, device=x.device) + first
    return places


def _items(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _item_numbers(item: Any) -> tuple[Any, ...]:
    return (item.start, item.stop, item.step) if isinstance(item, slice) else (item,)


def _is_symbolic_number(prologue: HostPrologue, n: Any) -> bool:
    return type(n) is SymNumber and n.name in prologue.varying and type(n.plain) is int


def _concrete(item: Any) -> Any:
    if isinstance(item, slice):
        return slice(_concrete(item.start), _concrete(item.stop), _concrete(item.step))
    return item.plain if type(item) is SymNumber else item
