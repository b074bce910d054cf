"""Calls a function of C when an object is gone, past interrupts.

A ``__del__`` in Python loses the user's Ctrl-C: where it arrives meanwhile, Python drops the
``KeyboardInterrupt``. Here the object is watched by a weak reference whose callback is a function of
``ctypes``, to which the reference itself stands for the argument: nothing written in Python runs.
"""

from __future__ import annotations

import atexit
import ctypes
import weakref
from typing import Any, Final


class _Call(weakref.ref[Any]):
    """Watches an object; ``ctypes`` passes ``_as_parameter_`` in its place."""

    __slots__ = ("_as_parameter_",)
    _as_parameter_: ctypes.c_void_p


_calls: Final[dict[int, _Call]] = {}
"""Those of objects that live, and of some that are gone, by identity: as references those of one object are
equal. At the program's end, when a library may be gone before the last objects, none is left."""
_SWEEP_FROM: Final = 256
_next_sweep = _SWEEP_FROM

atexit.register(_calls.clear)


def call_when_gone(owner: object, function: Any, argument: ctypes.c_void_p) -> None:
    """Call ``function(argument)``, of ``ctypes`` and with one parameter, when ``owner`` is gone.

    Not called for an owner that outlives the program's end. Several of one owner are called last one first.

    >>> class Owner: pass
    >>> owner, freed = Owner(), []
    >>> free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(freed.append)
    >>> call_when_gone(owner, free, ctypes.c_void_p(64))
    >>> call_when_gone(owner, free, ctypes.c_void_p(65))
    >>> del owner
    >>> freed
    [65, 64]
    """
    global _next_sweep
    if len(_calls) >= _next_sweep:
        for key in [key for key, call in list(_calls.items()) if call() is None]:
            _calls.pop(key, None)
        _next_sweep = max(_SWEEP_FROM, 2 * len(_calls))
    call = _Call(owner, function)
    call._as_parameter_ = argument
    _calls[id(call)] = call
