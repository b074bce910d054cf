"""``x[key] = value``: what a key selects is replaced, in the memory that there is where nobody can tell."""

from __future__ import annotations

from typing import Any, Final

from ..dispatch.modes import inner_device
from ..dispatch.plan import new_cache
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
    what = given = None
    if isinstance(value, Tensor):
        given = value
    elif type(value) in _NUMBERS and not active_modes and inner_device(self._vtype.device) is None:
        what = _of_number(self, key, value)
    if what is None:
        given = as_assigned_value(value, self) if given is None else given
        what = indexing.assignment(self, key, given)
    while True:  # anew, where another thread has assigned to another part since: neither may be lost
        with _storing:
            if what is not None and table.run_in_place(what):
                return
            seen = self._value
        made = indexing.setitem(self, key, given) if what is None else table.run(*what[:3])
        with _storing:
            if self._value is seen:
                self.rebind(made)
                return


def _of_number(x: Tensor, key: Any, number: Any) -> InPlaceCall | None:
    """Return the op that assigns a number to a box; None for other keys."""
    found = indexing.basic(x, key)
    if found is None:
        return None
    start, size, step = found[0].start, found[0].size, found[0].step
    memo = (repr(number), x._vtype, size)
    given = _constants.get(memo)
    if given is None:
        if len(_constants) >= _MAX_CONSTANTS:
            _constants.clear()
        given = _constants[memo] = broadcast_to(as_assigned_value(number, x), size)
    return InPlaceCall("slice_update", (x, given), {"start": start, "step": step})
