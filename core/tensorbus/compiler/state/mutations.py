"""Mutations of reachable state by a run, as far as generated code can apply them again."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from ...tensor.leaf import detached_in
from ...tensor.tensor import Leaf, Tensor
from ...tracing.host_prologue import HostPrologue
from ...tracing.mutation_counter import CountedDict
from .class_layout import overrides_setitem
from .inspection import inspect_object
from .object_view import ChildRef, KeyAccess, ObjectView, StateNotSettled, TensorState, Uncapturable
from .reachable import GlobalRef, ReachableState, TrackedObject
from .value_identity import identity_key, is_scalar

REFILL_CODE: Final[dict[type, str]] = {
    list: "{at}[:] = ({all})", deque: "{at}.clear(); {at}.extend(({all}))",
    dict: "{at}.clear(); {at}.update(({pairs}))", OrderedDict: "{at}.clear(); {at}.update(({pairs}))",
    defaultdict: "{at}.clear(); {at}.update(({pairs}))",
    CountedDict: "{at}.clear(); {at}.update(({pairs}))",
    Counter: "{at}.clear(); {at}.update(dict(({pairs})))", set: "{at}.clear(); {at}.update({set})",
}  # fmt: skip
"""Code that gives a container of each type other contents."""


class CacheInfo(NamedTuple):
    """The result of ``cache_info()`` of a function with a cache."""

    hits: int
    misses: int
    maxsize: int | None
    currsize: int


@dataclass(slots=True)
class Mutations:
    """The mutations of one run, by kind.

    Tensors with other ``tensor_values`` or ``grads``; ``container_tensors`` and ``global_tensors``: children
    of containers and globals that were replaced by other tensors, or by tuples, lists and dicts of tensors.
    ``refilled`` are arguments, and objects behind them, whose contents changed in any way; ``leaves`` are
    those that require a gradient now. ``flags`` are bools that were inverted: each value has its own program.
    The others make each run differ: ``numbers`` of objects and ``global_numbers`` that changed, ``appended``
    lists, and ``rates``, which tells what code read of the prologue's state. ``reason`` names the first.
    """

    tensor_values: list[TrackedObject] = field(default_factory=list)
    grads: list[TrackedObject] = field(default_factory=list)
    container_tensors: list[tuple[TrackedObject, ChildRef, Any]] = field(default_factory=list)
    refilled: list[TrackedObject] = field(default_factory=list)
    flags: list[tuple[TrackedObject, ChildRef, bool]] = field(default_factory=list)
    global_tensors: list[tuple[GlobalRef, Any]] = field(default_factory=list)
    leaves: list[TrackedObject] = field(default_factory=list)
    numbers: list[tuple[TrackedObject, ChildRef]] = field(default_factory=list)
    global_numbers: list[GlobalRef] = field(default_factory=list)
    appended: list[TrackedObject] = field(default_factory=list)
    rates: str | None = None
    reason: str | None = None

    def note(self, why: str) -> None:
        """Note why the next run differs."""
        self.reason = self.reason or why


class StateVaries(Uncapturable):
    """Each run differs from the one before; ``mutations`` tell in what."""

    def __init__(self, mutations: Mutations) -> None:
        super().__init__(mutations.rates or mutations.reason)
        self.mutations = mutations


def diff_state(
    reach: ReachableState,
    reached: Iterable[TrackedObject],
    names: Iterable[GlobalRef],
    prologue: HostPrologue,
    overwritten: Container[int],
) -> Mutations:
    """Return how all tracked objects in ``reached`` changed. Raises ``Uncapturable`` for any other mutation.

    ``overwritten`` are the ids of tensors whose gradients are written before they are read.
    """
    mutations = Mutations()
    for tracked in reached:
        after = inspect_object(tracked.obj, reach.names)
        if isinstance(tracked.before.state, TensorState):
            _compare_tensor(tracked, tracked.before.state, after.state, mutations)
            if detached_in(tracked.obj, prologue):
                raise Uncapturable(f"leaves a gradient at {describe_object(tracked)}, which requires none")
            if id(tracked.obj) in overwritten and after.state.grad is None:
                mutations.grads.append(tracked)
        elif after.kind != tracked.before.kind:
            raise Uncapturable(f"changes {describe_object(tracked)}")
        elif id(tracked.obj) in prologue.appended:
            continue
        elif after.state != tracked.before.state and is_refillable(tracked, prologue):
            mutations.refilled.append(tracked)
        elif after.state != tracked.before.state and _is_appended_to(tracked):
            mutations.appended.append(tracked)
            mutations.note(f"adds to {describe_object(tracked)}")
        elif after.state != tracked.before.state:
            if tracked.before.kind == "cache":
                _compare_cache(tracked, CacheInfo(*tracked.before.state[0]), CacheInfo(*after.state[0]))
            _compare_container(reach, tracked, {ref.key: ref for ref in after.children}, mutations, prologue)
    for name in names:
        now = name.scope.get(name.name)
        if now is name.value:
            continue
        if _is_tensor_tree(now) and type(now) is type(name.value) and _is_tensor_tree(name.value):
            mutations.global_tensors.append((name, now))
        elif _is_number_change(name.value, now):
            mutations.global_numbers.append(name)
            mutations.note(f"assigns the global {name.name!r}")
        else:
            raise Uncapturable(f"assigns the global {name.name!r}")
    return mutations


def _compare_tensor(
    tracked: TrackedObject, before: TensorState, after: TensorState, mutations: Mutations
) -> None:
    if after.vtype is not before.vtype or after.hooks != before.hooks:
        raise Uncapturable(f"changes the dtype, the device or the hooks of {describe_object(tracked)}")
    if before.node is None and type(after.node) is Leaf and not tracked.fixed:
        mutations.leaves.append(tracked)
    elif after.node is not before.node:
        raise Uncapturable(f"changes the history of {describe_object(tracked)}")
    if after.value is not before.value:
        if before.node is not None and not isinstance(before.node, Leaf):
            raise Uncapturable(f"changes {describe_object(tracked)}, which has a history")
        mutations.tensor_values.append(tracked)
    if after.grad is not before.grad:
        mutations.grads.append(tracked)


def _compare_cache(tracked: TrackedObject, before: CacheInfo, after: CacheInfo) -> None:
    if (before.misses, before.currsize) != (after.misses, after.currsize):
        raise StateNotSettled(f"computes what {describe_object(tracked)} keeps")
    if after.hits != before.hits and after.currsize == after.maxsize:
        raise Uncapturable(
            f"asks {describe_object(tracked)} that is full, and forgets by what was asked for last"
        )


def _compare_container(
    reach: ReachableState,
    tracked: TrackedObject,
    now: dict[Any, ChildRef],
    mutations: Mutations,
    prologue: HostPrologue,
) -> None:
    if tracked.before.kind == "set":
        raise Uncapturable(f"changes {describe_object(tracked)}")
    if tracked.before.kind in ("sequence", "mapping") and overrides_setitem(tracked.obj):
        raise Uncapturable(f"changes {describe_object(tracked)}, whose class says itself what that does")
    keys = [ref.key for ref in now.values()]
    if tracked.before.kind == "mapping" and [ref.key for ref, _ in tracked.children if ref.key in now] != [
        key for key in keys if any(ref.key == key for ref, _ in tracked.children)
    ]:
        raise Uncapturable(f"changes the order of {describe_object(tracked)}")
    for old, _ in tracked.children:
        new = now.pop(old.key, None)
        if new is None and is_prologue_number(prologue, tracked, old):
            continue
        if new is None:
            raise Uncapturable(f"takes {describe_ref(old)} out of {describe_object(tracked)}")
        if new.value is old.value or (
            is_prologue_number(prologue, tracked, old) and not _is_schedule_rate(prologue, tracked)
        ):
            continue
        if _is_tensor_tree(new.value) and type(old.value) is type(new.value) and _is_tensor_tree(old.value):
            mutations.container_tensors.append((tracked, old, new.value))
        elif type(old.value) is bool and type(new.value) is bool:
            mutations.flags.append((tracked, old, new.value))
        elif _is_number_change(old.value, new.value):
            mutations.numbers.append((tracked, old))
            mutations.note(f"changes {describe_ref(old)} of {describe_object(tracked)}")
        elif _differ(old.value, new.value):
            raise Uncapturable(f"changes {describe_ref(old)} of {describe_object(tracked)}")
    for new in now.values():
        if not is_prologue_number(prologue, tracked, new):
            raise Uncapturable(f"adds {describe_ref(new)} to {describe_object(tracked)}")


def _is_schedule_rate(prologue: HostPrologue, tracked: TrackedObject) -> bool:
    """Return whether the prologue only reads the children of ``tracked``, so that others changed them."""
    return isinstance(tracked.obj, dict) and "params" in tracked.obj and not prologue.owners


def is_refillable(tracked: TrackedObject, prologue: HostPrologue) -> bool:
    """Return whether generated code can refill an object that the caller passes, another one at each call.

    One that is the same at each call would fail the guards of the next call: Python serves that better.
    """
    if tracked.fixed or any(is_prologue_number(prologue, tracked, ref) for ref, _ in tracked.children):
        return False
    return tracked.before.kind == "instance" or type(tracked.obj) in REFILL_CODE


def note_refill(reach: ReachableState, tracked: TrackedObject) -> None:
    """Note what becomes of an object of the caller's. Raises ``Uncapturable`` for the same at each call."""
    now, filled = inspect_object(tracked.obj, reach.names), reach.history.filled
    if not _differs_in_tensors_only(tracked, now):
        will_be_fixed = reach.history.fix(tracked.obj, reach.holders_of(tracked))
        if filled.get(id(tracked.obj)) == tracked.before.state:
            kind = StateNotSettled if will_be_fixed else Uncapturable
            raise kind(f"changes {describe_object(tracked)}, which is the same at each call")
    filled[id(tracked.obj)] = now.state


def _differs_in_tensors_only(tracked: TrackedObject, now: ObjectView) -> bool:
    """Return whether an object holds what it did, up to other tensors: the next run sees no difference."""
    if [ref.key for ref, _ in tracked.children] != [ref.key for ref in now.children]:
        return False
    pairs = [(old.value, new.value) for (old, _), new in zip(tracked.children, now.children, strict=True)]
    return all(a is b or (type(a) is type(b) and _is_tensor_tree(a) and _is_tensor_tree(b)) for a, b in pairs)


def _is_tensor_tree(x: Any) -> bool:
    """Return whether ``x`` is a tensor, or a tuple, list or dict of nothing but such."""
    if type(x) is Tensor:
        return True
    children = x.values() if type(x) in (dict, CountedDict) else x if type(x) in (tuple, list) else ()
    return bool(children) and all(map(_is_tensor_tree, children))


def _is_appended_to(tracked: TrackedObject) -> bool:
    """Return whether a list or deque was appended to; a deque of bounded length may have dropped items."""
    thing, children = tracked.obj, tracked.children
    if type(thing) is deque and thing.maxlen is not None:
        return tracked.fixed
    return tracked.fixed and type(thing) in (list, deque) and len(thing) > len(children)


def _is_number_change(old: Any, new: Any) -> bool:
    """Return whether a number was replaced by another of its type."""
    return type(old) in (int, float) and type(new) is type(old) and repr(old) != repr(new)


def _differ(old: Any, new: Any) -> bool:
    return bool(identity_key(old) != identity_key(new))


def is_prologue_number(prologue: HostPrologue, tracked: TrackedObject, ref: ChildRef) -> bool:
    """Return whether a child is a number that the prologue reads or writes."""
    if (id(tracked.obj), ref.key) in prologue.slots:
        return True
    return isinstance(ref.access, KeyAccess) and (id(tracked.obj), ref.access.key) in prologue.reads


def describe_object(tracked: TrackedObject) -> str:
    """Return the name of an object in messages."""
    thing = tracked.obj
    if isinstance(thing, ModuleType):
        return f"module {thing.__name__}"
    if isinstance(thing, (type, FunctionType)):
        kind = f"{'class' if isinstance(thing, type) else 'function'} {thing.__qualname__}"
        return kind if tracked.fixed else f"argument {tracked.shown} ({kind})"
    kind = "cache" if tracked.before.kind == "cache" else type(thing).__name__
    return f"a {kind}" if tracked.fixed else f"argument {tracked.shown} ({kind})"


def describe_ref(ref: ChildRef) -> str:
    """Return the name of a child in messages."""
    if isinstance(ref.access, KeyAccess):
        key = ref.access.key
        return f"entry {key!r}" if is_scalar(key) else f"an entry for a {type(key).__name__}"
    if isinstance(ref.key, tuple) and ref.key[0] in ("attribute", "slot"):
        return f"attribute {ref.key[1]!r}"
    return ref.access.strip(".")
