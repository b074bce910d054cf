"""Layout of instances by their class: slots, and state in C that Python code cannot see."""

from __future__ import annotations

import types
from typing import Any, Final

from ...system.weak_tables import WeakTable
from ...tracing.mutation_counter import CountedDict

HEAP_TYPE: Final = 1 << 9
"""The flag of classes that are created at run time, as those written in Python are."""


def slot_names(base: type) -> tuple[str, ...]:
    """Return the names of the slots that a class has for attributes."""
    slots = base.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(
        f"_{base.__name__.lstrip('_')}{n}" if n.startswith("__") and not n.endswith("__") else n
        for n in names if n not in ("__dict__", "__weakref__")
    )  # fmt: skip


def overrides_setitem(x: Any) -> bool:
    """Return whether assigning an item of ``x`` runs code of the user's."""
    bases = [base for base in type(x).__mro__ if base.__flags__ & HEAP_TYPE and base is not CountedDict]
    return any("__setitem__" in vars(base) for base in bases)


def has_c_state(base: type) -> bool:
    """Return whether instances of a base hold state that Python code cannot see."""
    has_state = _has_c_state.get(base)
    if has_state is None:
        has_state = _has_c_state[base] = _holds_c_state(base)
    return has_state


_has_c_state: Final[WeakTable[type, bool]] = WeakTable()


def _holds_c_state(base: type) -> bool:
    if base in (object, types.SimpleNamespace):
        return False
    if not base.__flags__ & HEAP_TYPE:
        return True
    return any(
        type(v) is types.MethodDescriptorType and v.__objclass__ is base for v in vars(base).values()
    )  # written in C
