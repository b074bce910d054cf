"""The autograd node of a compiled function's results, whose backward pass is a compiled program too.

The backward pass is traced once, when the function is captured, into the trace of the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ...autograd import engine, node_order, saved_values
from ...autograd.block_node import attach, block_plan
from ...backend_interface.graph import Graph
from ...devices.device import ValueType
from ...dtypes.definition import DType
from ...errors import AutogradError
from ...graph.evaluate import run_ops
from ...ops.creation.creation import full
from ...ops.definition import Spec
from ...tensor.grad_mode import GradMode
from ...tensor.tensor import Leaf, Tensor, lent, materialize, unlent, wrap, wrap_settled
from ...tracing.active_tracer import active_tracer
from ...tracing.lazy_value import LazyValue
from ...tracing.sym_int import at
from ...tracing.sym_number import SymNumber
from ..capture.tracer import Tracer
from ..programs.compiled_program import CompiledProgram
from ..programs.op_trace import OpTrace
from ..programs.program_cache import ShapeSpecializations, compile_program
from ..state.object_view import Uncapturable
from . import min_cut_partitioner as partition
from .saved_inputs import SavedInput, saved_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardProgram:
    """The backward program of a forward program.

    ``backward`` takes the forward inputs, the saved values, and a gradient for each differentiable result; it
    returns a gradient for each parent that results depend on. ``through`` are, for each parent, the numbers
    of these results; ``shared`` are, for each result, those that share an op with it. ``saved`` is what eager
    derivatives would save of inputs and results. ``graph`` returns the
    forward graph, for derivatives of higher order; ``outs`` are the numbers of the results in it, ``tracked``
    those of the inputs whose autograd nodes are the parents.
    """

    graph: Callable[..., Graph]
    backward: CompiledProgram | ShapeSpecializations
    saved_outputs: slice
    kinds: tuple[ValueType, ...]
    shapes: tuple[tuple[int, ...], ...]
    outs: tuple[int, ...]
    tracked: tuple[int, ...]
    dtypes: tuple[DType, ...]
    through: tuple[frozenset[int], ...]
    shared: tuple[frozenset[int], ...]
    saved: tuple[SavedInput, ...]
    plan: Any


_FREED_MESSAGE: Final = (
    "compiled function: the history was let go by an earlier backward(); pass retain_graph=True to that one."
)


class CompiledFunctionNode(engine.Node):
    """The autograd node of all results of one run.

    ``freed`` are the numbers of the results whose history was freed,
    ``with_grad`` of those that the last backward pass had a gradient for.
    """

    __slots__ = ("backward_program", "freed", "sizes", "with_grad")
    with_grad: set[int]
    backward_program: BackwardProgram
    freed: set[int]
    sizes: Mapping[str, int]

    def pull(self, g: Any, create: bool) -> list[Any]:
        """Return the gradient for each parent, given those of the results."""
        if self.values is engine.FREED:
            raise AutogradError(_FREED_MESSAGE)
        d = self.backward_program
        result_grads = g if len(d.kinds) > 1 else [g]
        self.with_grad = with_grad = {k for k, x in enumerate(result_grads) if x is not None}
        if self.order <= saved_values.last_write[0]:
            for x in d.saved:
                write = None if x.behind.isdisjoint(with_grad) else x.write_since(self)
                if write is not None and x.is_read(self.sizes):
                    raise x.error(write, self.sizes)
        if not with_grad.isdisjoint(self.freed):
            raise AutogradError(_FREED_MESSAGE)
        seeds = [
            full(shape, 0, dtype=kind.dtype, device=kind.device) if x is None else x
            for x, kind, shape in zip(result_grads, d.kinds, at(d.shapes, self.sizes), strict=True)
        ]
        if create or active_tracer() is not None:
            return self._double_backward(seeds, with_grad, create)
        device = d.kinds[0].device
        values = d.backward.for_sizes(self.sizes)([*self.values, *self.out, *[materialize(x) for x in seeds]])
        computed = iter(values)
        grads = [next(computed) if through else None for through in d.through]
        return [
            None if through.isdisjoint(with_grad) else wrap(value, ValueType.of(dtype, device))
            for value, dtype, through in zip(grads, d.dtypes, d.through, strict=True)
        ]

    def release(self) -> None:
        """Free the history of the results of the last backward pass, with the last one the saved values."""
        d = self.backward_program
        self.freed = self.freed.union(*(d.shared[k] for k in self.with_grad))
        if all(k in self.freed or not self._is_left(k) for k in range(len(d.kinds))):
            super().release()

    def _is_left(self, k: int) -> bool:
        """Return whether the history of a result, of several, is still referenced."""
        part = self.parts[k]
        return part is not None and part() is not None

    def _double_backward(self, seeds: Sequence[Tensor], with_grad: set[int], create: bool) -> list[Any]:
        """Run the forward graph again in recorded ops, and differentiate those."""
        d = self.backward_program
        untracked: dict[int, tuple[int, ...]] = {}
        device, graph = d.kinds[0].device, d.graph(self.sizes, untracked)
        parents = dict(zip(d.tracked, self.parents, strict=True))
        with GradMode(True):
            inputs: list[Any] = []
            differentiated: dict[int, Tensor] = {}
            for k, (value, node) in enumerate(zip(self.values, graph.inputs, strict=True)):
                if node.attrs.get("scalar"):
                    inputs.append(value)
                    continue
                x = wrap_settled(
                    value, ValueType.of(node.spec.dtype, device), parents.get(k) if create else None
                )
                if k in parents:
                    differentiated[k] = x = x * 1 if create else x.requires_grad_()
                inputs.append(x)
            results = run_ops(graph, inputs, device, untracked)
        outs = [
            (results[k], seed)
            for place, (k, seed) in enumerate(zip(d.outs, seeds, strict=True))
            if place in with_grad and results[k]._node is not None
        ]
        keep = {id(x._node) for x in differentiated.values()}
        grads = engine.walk([x for x, _ in outs], [seed for _, seed in outs], None, create, keep)
        return [grads.get(differentiated[k]._node) for k in d.tracked]


def trace_backward(
    active: Tracer, trace: OpTrace, results: Sequence[Tensor], parents: Sequence[tuple[int, Any]],
    outputs: list[int], untracked: Callable[[Tensor], int],
) -> BackwardProgram:  # fmt: skip
    """Trace and compile the backward pass of ``results``; add the values that it saves to ``outputs``.

    Symbolic numbers that only the backward pass takes become inputs of the forward program too.
    ``parents`` are the inputs that have a history, by number, and their autograd nodes;
    ``untracked`` gives the numbers of those without a history that the node is attached with.
    """
    saved_eagerly = saved_inputs(results, {id(node): k for k, (_, node) in enumerate(parents)}, untracked)
    inner = {id(node) for _, node in parents}
    for node in node_order.reached_from([x._node for x in results], inner):
        if id(node) in inner:
            continue
        if getattr(node, "hooks", None):
            raise Uncapturable("returns a tensor whose history has hooks")
        if isinstance(node, Leaf):
            raise Uncapturable("returns a tensor made from one that asked for a gradient inside")
    forward, inputs = len(trace.nodes), list(trace.inputs)
    seeds, lazy_count = [], len(trace.lazy_values)
    last_ordered, trace.last_ordered = trace.last_ordered, None
    try:
        for x in results:
            place = trace.input(Spec(x.shape, x.dtype), "", None)
            seeds.append(wrap(LazyValue(active, place, x.shape), x._vtype.materialized.lazy()))
        numbers = trace.inputs[len(inputs) :]
        keep = {id(node) for _, node in parents}
        grads = _gradients(active, results, seeds, keep)
        parent_grads = [grads.get(node) for _, node in parents]
        places = [active.place(g) for g in parent_grads if g is not None]
        more = [*zip(trace.inputs, trace.sources, strict=True)][len(inputs) + len(results) :]
    finally:
        trace.last_ordered, back_ordered = last_ordered, trace.last_ordered
        del trace.inputs[len(inputs) :], trace.sources[len(inputs) :]
        del trace.lazy_values[lazy_count:]  # gradients of results that nobody has given: they will not be run
    if active.prologue.obstacle is not None:
        raise Uncapturable(active.prologue.obstacle)
    if any(type(feed.source) is not SymNumber for _, feed in more):
        raise Uncapturable("returns a tensor whose derivative draws random numbers or makes constants")
    for place, feed in more:  # numbers that only the derivative takes, as one over a length: they are kept
        inputs.append(place)
        trace.inputs.append(place)
        trace.sources.append(feed)
    saved = partition.saved_values(trace, forward, places, [*inputs, *numbers])
    back_inputs = [*inputs, *saved, *numbers]
    places += trace.unreached(places, back_inputs, back_ordered)
    back = compile_program(trace, places, active.mode, inputs=back_inputs)
    through, shared = _dependencies(results, parents, parent_grads)
    kinds = tuple(x._vtype.materialized for x in results)
    shapes = tuple(x.shape for x in results)
    count = len(outputs)
    outs = tuple(outputs.index(x._value.place) for x in results)
    outputs.extend(saved)
    return BackwardProgram(
        graph=partial(trace.detached().graph, tuple(outputs), tuple(inputs)), backward=back,
        saved_outputs=slice(count, len(outputs)),
        kinds=kinds, shapes=shapes, outs=outs, tracked=tuple(k for k, _ in parents),
        dtypes=tuple(trace.nodes[inputs[k]].spec.dtype for k, _ in parents),
        through=through, shared=shared, saved=saved_eagerly,
        plan=block_plan("compiled function", "compiled", kinds, shapes),
    )  # fmt: skip


def _gradients(
    active: Tracer, results: Sequence[Tensor], seeds: Sequence[Tensor], keep: set[int]
) -> dict[Any, Tensor]:
    """Return the gradients at ``keep``, traced."""
    reason = ""
    with active:
        try:
            return engine.walk(results, seeds, True, False, keep, hooks=False, within=True)
        except AutogradError as error:  # of its own changes, say: raised by backward() where Python runs it
            reason = str(error)
    raise Uncapturable(f"returns a tensor whose derivative is an error: {reason}")


def _dependencies(
    results: Sequence[Tensor], parents: Sequence[tuple[int, Any]], grads: Sequence[Tensor | None]
) -> tuple[tuple[frozenset[int], ...], tuple[frozenset[int], ...]]:
    """Return the numbers of the results that depend on each parent, none where it has no gradient.

    And, for each result, of those that share an op with it.
    """
    ends = {id(node) for _, node in parents}
    behind = [{id(node) for node in node_order.reached_from([x._node], ends)} for x in results]
    return tuple(
        frozenset(k for k, nodes in enumerate(behind) if g is not None and id(node) in nodes)
        for (_, node), g in zip(parents, grads, strict=True)
    ), tuple(frozenset(k for k, nodes in enumerate(behind) if nodes & own - ends) for own in behind)


def attach_node(
    d: BackwardProgram,
    values: Sequence[Any],
    outs: Sequence[Any],
    parents: tuple[Any, ...],
    results: Sequence[Tensor],
    sizes: Mapping[str, int],
    saved: tuple[Tensor, ...] = (),
) -> None:
    """Give the results of one run their autograd node."""
    node = CompiledFunctionNode()
    node.backward_program, node.sizes, node.freed = d, sizes, set()
    node.plan = d.plan
    node.order = next(node_order.order)
    node.parents, node.saved = parents, saved
    node.values = tuple(map(unlent, values) if lent else values)
    node.out = tuple(map(unlent, outs[d.saved_outputs]) if lent else outs[d.saved_outputs])
    node.shapes = ()
    attach(node, results)


def is_freed(x: Tensor, began: int) -> bool:
    """Return whether a ``backward()`` freed the history of ``x`` since ``began``: another one is an error."""
    nodes = node_order.reached_from([x._node])
    return any(node.order >= began and getattr(node, "values", None) is engine.FREED for node in nodes)


def freed_node() -> CompiledFunctionNode:
    """Return an autograd node whose history was freed."""
    node = CompiledFunctionNode()
    node.order = next(node_order.order)
    node.parents = (Leaf(),)
    node.values, node.out, node.shapes = engine.FREED, None, ()
    return node
