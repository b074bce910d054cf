"""Changes in place, and boxes cut out anywhere: what programs do to parts of a tensor in loops.

A result that takes the place of a tensor's value may be written over it where nobody can tell: no other
cell, no history and no caller refers to the value, which is what Python counts, and nothing shares its
memory, which is what the device's kernel looks at. Such a kernel is asked for (``Kernel.inplace``); a device
without one makes a new value, as ever.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final
from weakref import getweakrefcount, ref

from ..autograd import engine
from ..autograd.node_order import order
from ..autograd.saved_values import note_write
from ..autograd.views import MAX_NEW_VIEWS, link, members, new_views
from ..backend_interface.capabilities import SupportsWritingOver
from ..devices.device import ValueType
from ..dispatch import kernel_preference
from ..dispatch.plan import Plan, new_cache, plan
from ..dtypes.definition import check_scalar
from ..errors import DeviceError, TensorbusError
from ..ops.definition import InPlaceCall, Shape, table
from ..ops.elementwise.family import broadcast_shapes
from ..tensor.grad_mode import grad_enabled
from ..tensor.leaf import Leaf
from ..tensor.tensor import Tensor, wrap
from ..tracing.active_modes import active_modes

_MAX_KNOWN: Final = 4096
INPLACE_MIN_SIZE: Final = 1 << 15
"""Elements from which on an elementwise change may be worth writing over the memory that there is."""
_SCALARS: Final = frozenset({bool, int, float, complex})
_cuts: Final[dict[Any, Any]] = new_cache()
_placed_cuts: Final[dict[Any, Any]] = new_cache()
"""Plans of boxes at a place, which histories have: by the key of the plan for all places, and where it is."""
_plans: Final[dict[Any, Any]] = new_cache()
_telling: Final[dict[type, bool]] = {}


def _references(x: Tensor) -> int:
    return sys.getrefcount(x._value)


def _unshared_refcount() -> int:
    """Return how many references are seen to a value that one cell holds; -1: none are counted."""
    if sys.implementation.name != "cpython" or "t" in getattr(sys, "abiflags", ""):  # t: without its lock
        return -1
    x = Tensor()
    x._value = []
    return _references(x)


_UNSHARED: Final = _unshared_refcount()


def dynamic_slice(x: Any, start: Shape, size: Shape, step: Shape) -> Any:
    """Return a box of ``x``, which must have it: as the op ``slice``, by one plan for all places."""
    if type(x) is not Tensor or active_modes or kernel_preference.active():
        return table.function("slice")(x, start, size, step)
    value, kind = x._value, x._vtype
    shape = value.shape
    key = (kind, shape, size, step)
    try:
        cut, run = _cuts[key]
    except KeyError:
        return _first_cut(x, key, start)
    if run is None:
        return table.function("slice")(x, start, size, step)
    out = Tensor()
    out._value = run(value, start)
    out._vtype = kind
    out._node = None
    if x._node is not None and grad_enabled.get():
        recorded = _placed_cuts.get((key, start))
        if recorded is None:
            if len(_placed_cuts) >= _MAX_KNOWN:
                _placed_cuts.clear()
            recorded = _placed_cuts[key, start] = replace(cut, attrs={**cut.attrs, "start": start})
        engine.record(recorded, (x,), out)
    if getweakrefcount(x) or len(new_views) > MAX_NEW_VIEWS:
        return link(out, x, cut, start)
    x._view = None
    out._view = (ref(x), shape, cut, None, start)
    new_views.append(ref(out))
    return out


def _first_cut(x: Tensor, key: tuple[Any, ...], start: Shape) -> Any:
    kind, shape, size, step = key
    if kind.materialized is kind:
        cut = plan(table["slice"], (kind,), (shape,), {"start": start, "size": size, "step": step})
        late = None if cut.source is None or cut.run is None else cut.source[0].runtime_attrs
        if len(_cuts) >= _MAX_KNOWN:
            _cuts.clear()
        _cuts[key] = (cut, None if late is None or cut.source is None else late(cut.source[1]))
    return table.function("slice")(x, start, size, step)  # whose first result is examined


def run_in_place(what: InPlaceCall) -> bool:
    """Write the result of an op over the operand at ``place``, which then has its history; say whether it is.

    Otherwise nothing has happened, and the op is to be run as ever.
    """
    name, operands, attrs, place, by = what
    x = operands[place]
    if active_modes or _UNSHARED < 0 or kernel_preference.active() or not isinstance(x, Tensor):
        return False
    if getweakrefcount(x) and members(x):
        return False
    kinds: list[Any] = []
    shapes: list[Shape] = []
    tracked = False
    for o in operands:
        if isinstance(o, Tensor):
            kinds.append(o._vtype)
            shapes.append(o._value.shape)
            tracked = tracked or o._node is not None
        elif type(o) in _SCALARS:
            kinds.append(type(o))
            shapes.append(())
        else:
            return False
    op = table[name]
    if not op.broadcasts and sum(o is x for o in operands) > 1:
        return False  # what is read elsewhere than written
    tracked = tracked and grad_enabled.get()
    if tracked and isinstance(x._node, Leaf):
        return False  # which is refused
    late = op.late
    fixed = tuple([repr(v) if type(v) is float else v for k, v in attrs.items() if k not in late])
    key = (name, place, fixed, *kinds, *shapes)
    entry = _plans.get(key)
    if entry is None:
        entry = _plan_in_place(what, kinds, shapes)
        if len(_plans) >= _MAX_KNOWN:
            _plans.clear()
        _plans[key] = entry
    planned, over = entry
    if planned is None or over is None or (tracked and planned.keeps[place]) or _references(x) != _UNSHARED:
        return False
    for kind, value, computed in zip(kinds, operands, planned.computed, strict=True):
        if kind is int:
            check_scalar(name, value, computed)
    try:
        values = [o._value if isinstance(o, Tensor) else o for o in operands]
        if not over(*values, *[attrs[k] for k in late]):
            return False
    except TensorbusError:
        raise
    except Exception as error:
        which = f"{name}: {planned.kernel}, changing a tensor of shape {x.shape} on {x.device}"
        raise DeviceError(f"{which} in place, failed with {type(error).__name__}: {error}") from error
    old, number = x._node, next(order)
    if tracked:
        out = wrap(x._value, x._vtype)
        all_attrs = {**planned.attrs, **{k: attrs[k] for k in late}}
        engine.record(replace(planned, attrs=all_attrs) if late else planned, operands, out)
        x._node = out._node
    note_write(x, old, number, by)
    return True


def write_over(x: Tensor, write: Callable[[], bool], by: str) -> bool:
    """Let ``write`` change the elements of ``x`` where they lie, if nobody else can tell; say whether it has.

    It queues that in the current stream; where it returns False it has done nothing. ``by`` names the change
    in errors. The tensor keeps its history.
    """
    if active_modes or _UNSHARED < 0 or type(x) is not Tensor or _references(x) != _UNSHARED:
        return False
    if getweakrefcount(x) and members(x):
        return False
    kind = x._vtype
    if kind.materialized is not kind:
        return False
    runtime: Any = kind.device.runtime
    if not _tells(type(runtime)) or not runtime.is_alone(x._value, kind.device.index):
        return False
    old, number = x._node, next(order)
    try:
        is_written = write()
    except BaseException:  # some of them may have been written
        note_write(x, old, number, by)
        raise
    if is_written:
        note_write(x, old, number, by)
    return is_written


def _tells(runtime: type) -> bool:
    """Return whether the runtimes of a class tell who else holds memory: asking a protocol is slow."""
    known = _telling.get(runtime)
    if known is None:
        known = _telling[runtime] = issubclass(runtime, SupportsWritingOver)
    return known


def _plan_in_place(
    what: InPlaceCall, kinds: Sequence[Any], shapes: Sequence[Shape]
) -> tuple[Plan | None, Callable[..., bool] | None]:
    """Return the plan of a change, and what makes it; None where it takes a new value."""
    name, _, attrs, place, _ = what
    op, nothing = table[name], (None, None)
    if any(kind.materialized is not kind for kind in kinds if isinstance(kind, ValueType)):
        return nothing
    try:
        if op.broadcasts and broadcast_shapes(*shapes) != shapes[place]:
            return nothing
        planned = plan(op, kinds, None if op.broadcasts else shapes, attrs)
    except TensorbusError:
        return nothing  # which is told where the op is run
    if planned.source is None or planned.run is None or any(planned.casts) or planned.out is not kinds[place]:
        return nothing
    kernel, call = planned.source
    over = None if kernel.inplace is None else kernel.inplace(call, place)
    return (planned, over) if over is not None else nothing
