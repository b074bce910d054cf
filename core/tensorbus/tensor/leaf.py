"""The ends of histories: leaves, the gradients that gather at them, and those that results keep.

A leaf stands in for its tensor in histories. It has the hooks of the tensor too, so that a capture sees both.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..errors import AutogradError, DtypeError, ShapeError
from ..system.weak_tables import forget_when_gone
from ..tracing import host_prologue
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import active_tracer
from ..tracing.mutation_counter import bump_mutation_counter

if TYPE_CHECKING:
    from .tensor import Tensor

RETAINED: Final = 0
"""The key among a result's hooks of what keeps its gradient; those of users count from 1."""


class Leaf:
    """The end of history at a tensor that asked for a gradient, and where that gradient gathers."""

    __slots__ = ("grad", "hooks", "lay_out", "written")
    order = 0

    def __init__(self) -> None:
        self.grad: Tensor | None = None
        self.lay_out: Callable[..., Tensor] | None = None
        """Brings a gradient that comes to where the tensor lies; None: it is there.

        It may be told those that wait, by leaf, once all have come, and bring some of them along.
        """
        self.written: tuple[int, str] | None = None
        """The last change of the tensor in place: see ``autograd/saved_values.py``."""


_detached: Final[dict[int, tuple[weakref.ref[Tensor], Leaf, Any]]] = {}
"""The leaves of tensors that have stopped asking for a gradient, by id, and in which capture's script."""


def _since() -> weakref.ref[Any] | None:
    active = host_prologue.active_prologue()
    return None if active is None else weakref.ref(active)


def set_requires_grad(x: Tensor, asking: bool) -> None:
    """Make ``x`` a leaf that requires a gradient, or one that requires none; its gradient and hooks stay."""
    if asking:
        _, leaf, since = _detached.pop(id(x), (None, None, None))
        if leaf is not None and leaf.grad is not None and since != _since():
            host_prologue.note_read("a gradient that a tensor had before it asked again")
        x._node = leaf or Leaf()
    else:
        _detached[id(x)] = forget_when_gone(x, _detached), x._node, _since()
        x._node = None
    bump_mutation_counter()


def detached_in(x: Tensor, script: Any) -> bool:
    """Return whether ``x`` stopped asking in the capture that ``script`` is of, and has a gradient."""
    _, leaf, since = _detached.get(id(x), (None, None, None))
    return (
        x._node is None
        and leaf is not None
        and since is not None
        and since() is script
        and leaf.grad is not None
    )


def _detached_leaf(x: Tensor) -> Leaf | None:
    """Return the leaf that ``x``, which asks for no gradient, had, if there is a gradient in it."""
    _, leaf, _ = _detached.get(id(x), (None, None, None))
    if x._node is not None or leaf is None or leaf.grad is None:
        return None
    host_prologue.note_read("the gradient of a tensor that requires none any more")
    return leaf


class RetainedGradient:
    """The hook of a result that keeps its gradient: it adds up what comes."""

    __slots__ = ("grad",)

    def __init__(self) -> None:
        self.grad: Tensor | None = None

    def __call__(self, g: Tensor) -> None:
        """Add ``g``; it stays as it is."""
        self.grad = g._alias() if self.grad is None else self.grad + g


class PostAccumulateHook:
    """A hook of a leaf that is called when ``backward`` has added to its gradient, with the tensor."""

    __slots__ = ("hook", "tensor")

    def __init__(self, x: Tensor, hook: Callable[[Tensor], None]) -> None:
        self.tensor, self.hook = weakref.ref(x), hook

    def __call__(self, g: Tensor) -> None:
        """Leave the gradient that comes as it is: the hook is called later."""

    def run(self) -> None:
        """Call the hook."""
        x = self.tensor()
        if x is not None:
            self.hook(x)


class GradientReceiver(Protocol):
    """A receiver of the gradients of several leaves as they arrive, in the place of their ``.grad``."""

    def take(self, place: int, g: Tensor) -> bool:
        """Take the gradient of a leaf of this ``backward``, all of it; False leaves it to the leaf."""
        ...

    def finish(self) -> Sequence[Tensor]:
        """Do what is left, and return the tensors whose gradients are there now.

        ``backward`` has come to its end, and has handed over at least one gradient.
        """
        ...

    def drop(self) -> None:
        """Forget what this ``backward`` has handed over: it has failed."""
        ...


class ReceiverHook:
    """A hook of a leaf that hands its gradient over while ``backward`` goes on with what came before it."""

    __slots__ = ("place", "receiver")

    def __init__(self, receiver: GradientReceiver, place: int) -> None:
        self.receiver, self.place = receiver, place

    def __call__(self, g: Tensor) -> None:
        """Leave the gradient that comes as it is: it is handed over when all hooks have seen it."""


def receiver_of(leaf: Leaf) -> ReceiverHook | None:
    """Return what the gradient of a leaf is handed over to."""
    for hook in getattr(leaf, "hooks", {}).values():
        if type(hook) is ReceiverHook:
            return hook
    return None


def report_gradient_use(leaf: Leaf | None = None, *, written: bool = False) -> None:
    """Tell the tracer of this thread that gradients are looked at, or that of ``leaf`` ``written``."""
    active = active_tracer()
    if active is not None:
        active.grads = True
        if leaf is not None:
            active.gradients.setdefault(leaf, written)


def report_history_use(order: int) -> None:
    """Tell the tracer of this thread that a history is traversed: one from before is another at each call."""
    active = active_tracer()
    if active is not None and order < active.began:
        host_prologue.note_read("the history of a tensor that was there before")


def gradient(x: Tensor) -> Tensor | None:
    """Return the gradient gathered at ``x``, or kept by it."""
    node = x._node
    if isinstance(node, Leaf):
        if active_modes:
            report_gradient_use(node)
        return node.grad
    holder = _retained(node)
    if holder is None:
        rested = _detached_leaf(x) if _detached else None
        return None if rested is None else rested.grad
    host_prologue.note_read("the gradient that the result of an op keeps")
    return holder.grad


def set_gradient(x: Tensor, value: Tensor | None) -> None:
    """Put ``value`` in the place of the gradient of ``x``.

    Where ``x`` can hold none, ``None`` changes nothing and another raises ``AutogradError``. Raises
    ``ShapeError`` where the gradient does not fit.
    """
    node = x._node
    holder = node if isinstance(node, Leaf) else _retained(node) or _detached_leaf(x)
    if holder is None:
        if value is None:
            return
        raise AutogradError("only a leaf that requires a gradient holds one; call requires_grad_() first.")
    if value is not None and not hasattr(type(value), "_vtype"):
        raise DtypeError(
            f"a gradient is a tensor or None, got {type(value).__name__}; use tensorbus.asarray."
        )
    if value is not None and (value.shape, value._vtype.materialized) != (x.shape, x._vtype.materialized):
        raise ShapeError(
            f"a gradient has its tensor's shape, dtype and device, {x.shape} {x.dtype} on"
            f" {x.device}; got {value.shape} {value.dtype} on {value.device}."
        )
    if active_modes and isinstance(holder, Leaf):
        report_gradient_use(holder, written=True)
    holder.grad = value


def retain(x: Tensor) -> None:
    """Let ``x``, the result of a recorded op, keep its gradient in ``backward``, as leaves do."""
    node = x._node
    if node is None:
        raise AutogradError("retain_grad: this tensor requires no gradient; call requires_grad_() first.")
    if not isinstance(node, Leaf) and _retained(node) is None:
        node.hooks = getattr(node, "hooks", None) or {}
        node.hooks[RETAINED] = RetainedGradient()


def keeps_gradient(x: Tensor) -> bool:
    """Return whether ``x`` is the result of an op that keeps its gradient: see ``retain``."""
    return _retained(x._node) is not None


def _retained(node: Any) -> RetainedGradient | None:
    retained: RetainedGradient | None = getattr(node, "hooks", {}).get(RETAINED)
    return retained


def retained_ids(inputs: Sequence[Tensor]) -> set[int]:
    """Return the ids of the histories of tensors that keep their gradients."""
    if not inputs:
        raise AutogradError("backward: inputs is empty; leave it out for every leaf.")
    for place, x in enumerate(inputs):
        if x._node is None or not (x.is_leaf or RETAINED in getattr(x._node, "hooks", {})):
            why = "does not require a gradient" if x._node is None else "is the result of an op"
            needed = "requires_grad_()" if x._node is None else "retain_grad()"
            raise AutogradError(f"backward: input {place} {why}; call {needed} on it first.")
    return {id(x._node) for x in inputs}


class HookHandle:
    """Handle that ``register_hook`` returns: ``remove()`` takes the hook away again."""

    def __init__(self, hooks: dict[int, Any], key: int) -> None:
        self._hooks, self._key = hooks, key

    def remove(self) -> None:
        """Take the hook away; again is no error."""
        self._hooks.pop(self._key, None)
        bump_mutation_counter()


def add_hook(node: Any, key: int, hook: Callable[..., Any]) -> HookHandle:
    """Put a hook behind those that a node has, but before what keeps its gradient."""
    hooks: dict[int, Any] = getattr(node, "hooks", None) or {}
    node.hooks = hooks
    retained = hooks.pop(RETAINED, None)
    hooks[key] = hook
    if retained is not None:
        hooks[RETAINED] = retained
    bump_mutation_counter()
    return HookHandle(hooks, key)
