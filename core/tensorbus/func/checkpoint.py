"""``checkpoint``: memory for time. What a block computes is let go, and computed again for its gradient.

Chen, Xu, Zhang, Guestrin: "Training deep nets with sublinear memory cost", 2016.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Final

from ..autograd import engine, node_order
from ..autograd.block_node import attach, block_plan
from ..errors import ArgumentError, AutogradError
from ..random.generator import Tape
from ..tensor.grad_mode import GradMode, is_grad_enabled
from ..tensor.tensor import Leaf, Tensor
from ..tracing.active_tracer import active_tracer
from .pytree import leaves, tree_map


class _Thread(threading.local):
    recomputing = False


_thread = _Thread()
Surroundings = Callable[[], AbstractContextManager[object]]
_captures: Final[list[Callable[[], Surroundings]]] = []


def add_surroundings(capture: Callable[[], Surroundings]) -> None:
    """Call ``capture`` where a block begins; a context that its result makes is around running it again."""
    _captures.append(capture)


def is_recomputing() -> bool:
    """Return whether a block of ``checkpoint`` is running again in this thread, for its gradient."""
    return _thread.recomputing


class _Block(engine.Node):
    """The history of a block's results: the block itself, to be run again."""

    __slots__ = ("run",)
    run: Callable[[], Any] | None

    def pull(self, g: Any, create: bool) -> list[Any]:
        """Run the block again, recorded, and go back through it."""
        if self.run is None:
            raise AutogradError(
                "checkpoint: the history was let go by an earlier backward(); pass retain_graph=True to that"
                " one."
            )
        active, start = active_tracer(), next(node_order.order)
        before, _thread.recomputing = _thread.recomputing, True
        try:
            with GradMode(True), active.recomputed() if active is not None else nullcontext():
                results = _recorded_since(self.run(), start)
        finally:
            _thread.recomputing = before
        seeds = [g] if len(self.plan.outs) == 1 else list(g)
        pairs = [(x, seed) for x, seed in zip(results, seeds, strict=True) if seed is not None]
        keep = {id(parent) for parent in self.parents}
        outputs, grads_out = [x for x, _ in pairs], [seed for _, seed in pairs]
        grads = engine.walk(outputs, grads_out, None, create, keep, within=True)
        return [grads.get(parent) for parent in self.parents]

    def release(self) -> None:
        """Let the block go."""
        self.run = None


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return ``function(*args, **kwargs)`` without keeping what it computes on the way for gradients.

    ``backward()`` runs the function again, with the same random numbers, so it must do the same then. Tensors
    that it reads besides its arguments, parameters say, get their gradients too. Works inside compiled
    functions, where the second run is part of the program.

    >>> import tensorbus as tb
    >>> x = tb.asarray([1.0, 2.0]).requires_grad_()
    >>> tb.checkpoint(lambda x: (x.exp() * x).sum(), x).backward()
    >>> [round(g, 3) for g in x.grad.tolist()]
    [5.437, 22.167]
    """
    if not callable(function):
        raise ArgumentError(f"checkpoint: 'function' must be a function, got {type(function).__name__}.")
    if not is_grad_enabled():
        return function(*args, **kwargs)
    start, tape = next(node_order.order), Tape()
    surroundings = [capture() for capture in _captures]
    arguments = tree_map(_same, (args, kwargs))
    with tape:
        result = function(*arguments[0], **arguments[1])
    results = _recorded_since(result, start)
    outer = _outer([x._node for x in results], start)
    if not outer:
        return result

    def again() -> Any:
        played = Tape([*tape.states], playing=True)
        with ExitStack() as stack:
            for context in surroundings:
                stack.enter_context(context())
            stack.enter_context(played)
            return function(*arguments[0], **arguments[1])

    _attach(results, outer, again)
    return result


def _same(x: Any) -> Any:
    """Return an argument as it is now, whatever becomes of the cell."""
    return x._alias() if isinstance(x, Tensor) else x


def _recorded_since(result: Any, start: int) -> list[Tensor]:
    """Return the tensors of a result with a history from number ``start`` on.

    Arguments and parameters that a block returns keep their own.
    """
    tensors: dict[int, Tensor] = {}
    for x in leaves(result):
        if isinstance(x, Tensor) and x._node is not None and x._node.order > start:
            tensors.setdefault(id(x), x)
    return list(tensors.values())


def _outer(nodes: Sequence[Any], start: int) -> list[Any]:
    """Return the histories from before number ``start`` that ``nodes`` lead to."""
    nodes_before: list[Any] = []
    seen: set[int] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Leaf) or node.order < start:
            nodes_before.append(node)
        else:
            stack.extend(node.parents)
    return nodes_before


def _attach(results: Sequence[Tensor], outer: Sequence[Any], again: Callable[[], Any]) -> None:
    node = _Block()
    kinds = [x._vtype.materialized for x in results]
    node.plan = block_plan("checkpoint", "checkpoint", kinds, [x.shape for x in results])
    node.order, node.parents, node.run = next(node_order.order), tuple(outer), again
    node.values, node.shapes, node.out = (), (), None
    attach(node, results)
