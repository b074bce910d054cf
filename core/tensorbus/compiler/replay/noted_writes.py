"""Code that notes which tensors a call changes, and numbers of those that derivatives save values from.

See ``autograd/saved_values.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...autograd.saved_values import WriteClock
from ...autograd.views import chain_of, view_of
from ...tensor.tensor import Leaf, Tensor
from ..state.reachable import TrackedObject

TICK: Final = "w.number = last_write[0] = last_tracked_write[0] = next(order)"
"""The code by which a call says that it changes tensors."""


def clock_of(changed: Iterable[TrackedObject]) -> WriteClock:
    """Return the clock of a call that changes tensors: of those that are the same at each call."""
    objects = [tracked.obj for tracked in changed if _is_followed(tracked)]
    return WriteClock([*objects, *[x._node for x in objects if x._node is not None]])


def noted(tracked: TrackedObject) -> list[str]:
    """Return the code that notes the change of a tensor which the clock ``w`` does not stand for."""
    at = tracked.expr
    return [] if _is_followed(tracked) else [f"note_write({at}, {at}._node, w.number, w.by)"]


def _is_followed(tracked: TrackedObject) -> bool:
    node = tracked.before.state.node
    return tracked.fixed and tracked.obj._node is node and (node is None or isinstance(node, Leaf))


class UntrackedInputs:
    """Inputs without a history, in the order in which they are first asked for: called with a tensor."""

    def __init__(self, reached: Mapping[int, TrackedObject]) -> None:
        self._reached = reached
        self._inputs: dict[int, TrackedObject] = {}

    def __call__(self, x: Tensor) -> int:
        """Return the number of the input that ``x`` is, or is a view of; -1: it is none."""
        for y in (x, *[base for link in chain_of(view_of(x)) if (base := link[0]()) is not None]):
            tracked = self._reached.get(id(y))
            if tracked is not None:
                self._inputs.setdefault(id(y), tracked)
                return [*self._inputs].index(id(y))
        return -1

    @property
    def code(self) -> str:
        """The expressions of all that were asked for."""
        return "".join(f"{s.expr}, " for s in self._inputs.values())
