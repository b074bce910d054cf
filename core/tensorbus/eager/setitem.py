"""``x[key] = value``: what a key selects is replaced, in the memory that there is where nobody can tell."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

from ..autograd.node_order import order
from ..dispatch.modes import inner_device, is_value_mode
from ..dispatch.plan import new_cache
from ..errors import TensorbusError
from ..interchange.host_array import as_assigned_value
from ..ops.definition import InPlaceCall, table
from ..ops.indexing import indexing
from ..ops.movement.movement import broadcast_to
from ..system import fork_safe_locks
from ..tensor.tensor import Tensor
from ..tracing.active_modes import active_modes

_NUMBERS: Final = frozenset({bool, int, float})
_MAX_CONSTANTS: Final = 1024
_constants: Final[dict[Any, Any]] = new_cache()
"""Numbers that were assigned, in the shapes of what they were assigned to."""
_storing = fork_safe_locks.reentrant()
"""Held while a cell is looked at and changed. Re-entrant: a value that is let go may run a finalizer."""


def assign(self: Tensor, key: Any, value: Any) -> None:
    """Replace what ``key`` selects by ``value``, which broadcasts."""
    what = assigned = None
    since = next(order)
    if isinstance(value, Tensor):
        single = self._vtype.cell is not None and not value.shape
        assigned = value.to(self.device) if single else value
    elif type(value) in _NUMBERS and not active_modes:
        cell: Any = self._vtype.cell
        if cell is not None and self._node is None:
            changed = cell._with_number(self, indexing.basic(self, key), value)
            if changed is not None:
                self.rebind(changed, by="an assignment to elements", since=since)
                return
        elif inner_device(self._vtype.device) is None:
            what = _of_number(self, key, value)
    if what is None:
        assigned = _assigned(self, key, value) if assigned is None else assigned
        what = indexing.assignment(self, key, assigned)
    while True:  # anew, where another thread has assigned to another part since: neither may be lost
        with _storing:
            if what is not None and table.run_in_place(what):
                return
            seen = self._value
        out = indexing.setitem(self, key, assigned) if what is None else table.run(*what[:3])
        # What ranks share communicates as it is stored, so that no lock may be held.
        with nullcontext() if is_value_mode(self._vtype.device.type) else _storing:
            if self._value is seen:
                self.rebind(out, by="an assignment to elements", since=since)
                return


def _assigned(x: Tensor, key: Any, value: Any) -> Tensor:
    """Return the value as a tensor; a key that selects nothing of ``x`` is told first."""
    try:
        return as_assigned_value(value, x)
    except TensorbusError:
        indexing.parse(x, key)
        raise


def _of_number(x: Tensor, key: Any, number: Any) -> InPlaceCall | None:
    """Return the op that assigns a number to a box; None for other keys."""
    selection = indexing.basic(x, key)
    if selection is None:
        return None
    start, size, step = selection[0].start, selection[0].size, selection[0].step
    memo = (repr(number), x._vtype, size)
    constant = _constants.get(memo)
    if constant is None:
        if len(_constants) >= _MAX_CONSTANTS:
            _constants.clear()
        constant = _constants[memo] = broadcast_to(as_assigned_value(number, x), size)
    return InPlaceCall("slice_update", (x, constant), {"start": start, "step": step})
