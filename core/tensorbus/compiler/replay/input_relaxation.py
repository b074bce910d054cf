"""Inputs instead of constants: tensors that a run replaces may be any tensors at the next call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...dispatch.modes import CompositeValue
from ..state.mutations import Mutations, describe_object, describe_ref
from ..state.object_view import TensorState, Uncapturable
from ..state.reachable import ReachableState, TrackedObject


def relax(reach: ReachableState, reached: Mapping[int, TrackedObject], mutations: Mutations) -> None:
    """Accept any tensor where the run replaces one: in a container, a global, a gradient."""
    for tracked, ref, _ in mutations.container_tensors:
        child = reached.get(id(ref.value))
        uses = sum(c is child for s in reached.values() for _, c in s.children)
        if child is None or uses != 1 or any(g.tracked is child for g in reach.globals):
            raise Uncapturable(
                f"replaces {describe_ref(ref)} of {describe_object(tracked)}, which has other holders"
            )
        _relax_object(reach, reached, child, reach.access(tracked, ref))
    for tracked in mutations.grads:
        before = tracked.before.state.grad
        child = reached.get(id(before)) if before is not None else None
        if child is not None:
            child.fixed, child.expr = False, f"{tracked.expr}._node.grad"
    _relax_gradients(reach, reached)
    _relax_state(reach, reached)
    for global_ref, _ in mutations.global_tensors:
        child = global_ref.tracked
        uses = sum(c is child for s in reached.values() for _, c in s.children)
        if child is None or uses or any(g.tracked is child and g is not global_ref for g in reach.globals):
            raise Uncapturable(f"assigns the global {global_ref.name!r}, which is known elsewhere too")
        _relax_object(reach, reached, child, f"{reach.name(global_ref.scope)}[{global_ref.name!r}]")
    _relax_parts(reach, reached)


def _relax_gradients(reach: ReachableState, reached: Mapping[int, TrackedObject]) -> None:
    """Accept any gradient that the run only reads: each backward pass creates others."""
    holder_counts = Counter(id(c) for s in reached.values() for _, c in s.children)
    holder_counts.update(id(g.tracked) for g in reach.globals)
    for tracked in reached.values():
        state = tracked.before.state
        child = reached.get(id(state.grad)) if isinstance(state, TensorState) else None
        if child is not None and child.fixed and holder_counts[id(child)] == 1:
            child.fixed, child.expr = False, f"{tracked.expr}._node.grad"


def _relax_parts(reach: ReachableState, reached: Mapping[int, TrackedObject]) -> None:
    """Accept any part of a composite value: who changes the tensor gives it another value, of other parts."""
    holder_counts = Counter(id(c) for s in reached.values() for _, c in s.children)
    holder_counts.update(id(g.tracked) for g in reach.globals)
    for tracked in reached.values():
        state = tracked.before.state
        value = state.value if isinstance(state, TensorState) else None
        for name in value.PARTS if isinstance(value, CompositeValue) else ():
            child = reached.get(id(getattr(value, name)))
            if child is not None and child.fixed and holder_counts[id(child)] == 1:
                child.fixed, child.expr = False, f"{tracked.expr}._value.{name}"


def _relax_state(reach: ReachableState, reached: Mapping[int, TrackedObject]) -> None:
    """Accept any tensor at a location where captures have found different ones."""
    for place, at, tracked in reach.unique_locations():
        alone = all(child is None for _, child in tracked.children)
        if place in reach.replaced_locations and id(tracked.obj) in reached and alone:
            tracked.fixed, tracked.expr = False, at


def _relax_object(
    reach: ReachableState, reached: Mapping[int, TrackedObject], child: TrackedObject, at: str
) -> None:
    """Accept any object where ``at`` finds one, and any children in it."""
    child.fixed, child.expr = False, at
    for ref, tracked in child.children:
        if tracked is not None:
            if sum(c is tracked for s in reached.values() for _, c in s.children) != 1:
                raise Uncapturable(
                    f"replaces {describe_ref(ref)} of {describe_object(child)}, which is known elsewhere"
                )
            _relax_object(reach, reached, tracked, reach.access(child, ref))
