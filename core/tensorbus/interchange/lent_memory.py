"""Memory that is lent out: to NumPy, through buffers and DLPack, to be read and written to.

What is lent belongs to one tensor and its views: it is copied first where anything else refers to it, copies
of the tensor get memory of their own from then on, and changes of the tensor are written there. Views keep
a tensor that has lent its memory alive: through them it is written to, and shows what others write.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from ..autograd import view_changes, views
from ..tensor.tensor import LentMemory, Tensor, lent, materialize, wrap
from ..tracing.active_modes import active_modes
from .transfer import runtime


def _references(x: Tensor) -> int:
    return sys.getrefcount(x._value)


def _unshared() -> int:
    x = Tensor()
    x._value = []
    return _references(x)


_UNSHARED: Final = _unshared()


def lend(x: Tensor) -> Any:
    """Return the elements as a host array in their place, writable; None where they may only be read.

    That is so for tensors with a history, for views that nothing is written through, and on devices whose
    values are no host arrays.
    """
    from ..backend_interface import capabilities

    materialize(x)
    host: object = runtime(x.device)
    if not isinstance(host, capabilities.SupportsLending) or x._node is not None or active_modes:
        return None
    with views.lock:
        if not view_changes.is_writable(x):
            return None
        root = view_changes.make_root(x)
        if root is None or root._node is not None:
            return None
        materialize(root)
        if view_changes.lent_memory(root) is None:
            if views.members(root) or _references(root) != _UNSHARED or not host.is_own(root._value):
                own = wrap(host.copied(root._value), root._vtype)
                if not view_changes.change(root, own, False):
                    root._value = own._value
            lent[id(root)] = LentMemory(root, host)
            view_changes.keep_alive(root, views.members(root))
        return host.lend(x._value, root._value)


def adopt(x: Tensor) -> Tensor:
    """Note that somebody else has the memory of a new tensor, and sees what is written to it; return it."""
    from ..backend_interface import capabilities

    host: object = runtime(x.device)
    if isinstance(host, capabilities.SupportsLending) and host.lend(x._value, x._value).flags.writeable:
        lent[id(x)] = LentMemory(x, host)
    return x
