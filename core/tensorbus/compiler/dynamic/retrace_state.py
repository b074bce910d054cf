"""Retracing with symbolic state: functions that mutate numbers and lists at each call, as counters do.

The first run has shown which locations vary: numbers that changed, lists that were appended to. The function
is run once more, dry, from the state in which that run began, with symbolic numbers at those locations and
lists that record what is appended. If the trace is that of the first run, and no value of a symbolic number
was needed, the host prologue computes those numbers at each call, before the program or after it. No effect
of the dry run remains.
"""

from __future__ import annotations

import math
import types
from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from ...control_flow.unbacked_size import attrs_text
from ...ops.definition import Spec
from ...tensor.tensor import Tensor
from ...tracing.host_prologue import ARGUMENT, HostPrologue, SymbolicSlot
from ...tracing.sym_int import SymInt, hints
from ...tracing.sym_int import at as closed_at
from ...tracing.sym_number import SymNumber
from ..capture.side_effect_observer import SideEffectObserver
from ..capture.tracer import Tracer
from ..programs.op_trace import OpTrace
from ..replay.cache_entry import CacheEntry
from ..replay.codegen import ReplayCodegen
from ..replay.read_values import ReadValue
from ..state.mutations import Mutations
from ..state.object_view import ChildRef, KeyAccess, Uncapturable
from ..state.reachable import (
    NUMBER_TYPES,
    GlobalRef,
    ReachableState,
    TrackedObject,
    is_number,
    is_rebuildable,
    location_of,
)
from ..state.snapshot import DRY_RUN_ERRORS, Snapshot, can_be_taken_back, complete_all, run_dry
from .mark_dynamic import Axes
from .mark_dynamic import relocated as named_axes
from .rebuilt_tuples import RebuiltTuples
from .varying_inputs import VaryingInputs


@dataclass(frozen=True, slots=True)
class FirstTrace:
    """The first run: the state it reached, its prologue, its trace (on one device) and its result.

    Nodes of the trace from ``count`` on are those of the backward pass, not of the run.
    """

    reach: ReachableState
    prologue: HostPrologue
    trace: OpTrace | None
    count: int
    out: Any


_MIN_SYMBOLIC_INT: Final = 2
"""The smallest integer that becomes a symbolic size."""


@dataclass(slots=True, eq=False)
class AppendedList:
    """A list that a run appends to: ``expr`` finds it at each run, ``exprs`` are all ways to reach it."""

    obj: Any
    expr: str
    stand_in: Any
    items: list[Any] = field(default_factory=list)
    exprs: list[str] = field(default_factory=list)


def retrace_with_state(
    function: Callable[..., Any], make: Callable[[], ReachableState], args: tuple[Any, ...],
    kwargs: dict[str, Any], first_run: FirstTrace, mutations: Mutations, varying_inputs: VaryingInputs,
    mode: str, axes: Axes, integers: bool,
) -> tuple[CacheEntry, bool] | None:  # fmt: skip
    """Return the cache entry of a function whose first run, ``first_run``, made these ``mutations``; or None.

    ``make`` returns the state that the function reaches. ``varying_inputs`` are known to vary, and take in
    others; whether there were any is returned too. The sizes of ``axes`` are symbolic, and if ``integers``
    so are varying integers, as sizes: Python may make shapes of them, and guard on ranges of them.
    """
    if not can_be_taken_back(first_run.reach):
        return None
    after = Snapshot(first_run.reach, now=True)
    active = Tracer(mode, dry=True)
    run = _DryRun(active, first_run, mutations, varying_inputs, integers)
    try:
        Snapshot(first_run.reach).restore()
        reach = make()
        open_axes = named_axes(axes, reach)
        arguments, keywords = [*args], {**kwargs}
        run.prepare(reach, arguments, keywords)
        if integers and not run.symbols:
            return None
        with active:
            for where, (x, limits) in open_axes.items():
                active.open(x, where, limits)
            with SideEffectObserver() as observer:
                out = run_dry(function, arguments, keywords)
            active.close()
            run.finish()
            second = [*active.traces.values()]
            if len(second) > 1 or not _is_same_trace(
                first_run, second[0] if second else None, active.shape_env.hints
            ):
                return None
            if not _is_same_value(first_run.out, out) or not run.agrees(after):
                return None
            special = {at for name, at in run.symbols.items() if active.shape_env.is_specialized(name)}
            varying_inputs.special |= special
            if special:
                return None
            entry: CacheEntry = active.untraced(lambda: ReplayCodegen(reach, observer, active).emit(out))
            return entry, varying_inputs.add(active.prologue, run.rates)
    except DRY_RUN_ERRORS:
        return None
    finally:
        complete_all(run.finish, active.discard, after.restore)


class _DryRun:
    """The symbolic slots of a dry run, and the lists with a stand-in."""

    def __init__(
        self,
        active: Tracer,
        first_run: FirstTrace,
        mutations: Mutations,
        varying_inputs: VaryingInputs,
        integers: bool,
    ) -> None:
        self.prologue = active.prologue
        self.symbols: dict[str, tuple[int | str, Any]] = {}
        """The symbols of integers that are sizes, with their locations."""
        self._open, self._small = integers, varying_inputs.small
        self.rates = mutations.rates is not None or varying_inputs.rates
        self._known = varying_inputs.locations()
        self._first, self._mutations, self._varying_arguments = first_run, mutations, varying_inputs.arguments
        self._lists: list[tuple[Callable[[Any], None], Any]] = []
        self._tuples: RebuiltTuples | None = None
        self._finished = False

    def prepare(self, reach: ReachableState, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Put symbolic numbers and tracked lists at their locations. Raises ``Uncapturable``."""
        for ref, _ in reach.argument_objects:
            if ref.key in self._varying_arguments and type(ref.value) in NUMBER_TYPES:
                home: Any = args if isinstance(ref.key, int) else kwargs
                get, setter = partial(home.__getitem__, ref.key), partial(home.__setitem__, ref.key)
                self._hold((ARGUMENT, ref.key), SymbolicSlot(ref.access, get, setter, str))
        symbolic_keys: set[tuple[int | str, Any]] = {*self._known}
        symbolic_keys |= {(id(tracked.obj), ref.key) for tracked, ref in self._mutations.numbers}
        if self.rates:
            symbolic_keys |= _prologue_locations(self._first.prologue)
            self.prologue.free = True
        tuples = self._tuples = RebuiltTuples(reach)
        lists = {id(tracked.obj) for tracked in self._mutations.appended}
        tracked_objects = list(reach.objects.values())
        for tracked in tracked_objects:
            for ref, _ in tracked.children:
                if id(ref.value) in lists:
                    self._stand_in(reach, tracked.obj, ref, reach.access(tracked, ref))
                elif is_number(ref.value) and not symbolic_keys.isdisjoint(
                    (location_of(tracked, ref), (id(tracked.obj), ref.key))
                ):
                    access = reach.access(tracked, ref)
                    is_tuple = is_rebuildable(tracked)
                    slot = tuples.slot(tracked, ref, access) if is_tuple else _slot(tracked, ref, access)
                    self._hold((id(tracked.obj), ref.key), slot, location_of(tracked, ref))
        self._place_tuples(tuples, reach, args, kwargs)
        names = {*self._known, *((id(g.scope), g.name) for g in self._mutations.global_numbers)}
        for g in reach.globals:
            access = f"{reach.name(g.scope)}[{g.name!r}]"
            if id(g.value) in lists:
                self._stand_in(reach, g.scope, g, access)
            elif g.value is math or getattr(g.value, "__self__", None) is math:
                self._put(
                    g, _Math(self.prologue) if g.value is math else partial(self.prologue.outcome, g.value)
                )
            elif (id(g.scope), g.name) in names and is_number(g.value):
                self._hold((id(g.scope), g.name), _global_slot(g, access))
        if any(id(ref.value) in lists for ref, _ in reach.argument_objects):
            raise Uncapturable("is given a list that it adds to")

    def _place_tuples(
        self, tuples: RebuiltTuples, reach: ReachableState, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        """Put tuples with symbolic numbers where the function finds them."""
        for ref, tracked in reach.argument_objects:
            if tracked is not None:
                home: Any = args if isinstance(ref.key, int) else kwargs
                home[ref.key] = tuples.stand_in(ref.value)
        for tracked in reach.objects.values():
            for ref, child in () if isinstance(tracked.obj, tuple) else tracked.children:
                if child is not None and tuples.stand_in(ref.value) is not ref.value:
                    tuples.place(_slot(tracked, ref, reach.access(tracked, ref)))

    def _hold(
        self, key: tuple[int, Any], slot: SymbolicSlot, location: tuple[int | str, Any] | None = None
    ) -> None:
        """Make a number symbolic: as a number of the prologue, or as a size. ``location``: if not ``key``."""
        location = key if location is None else location
        is_small = type(slot.plain) is int and slot.plain < _MIN_SYMBOLIC_INT
        (self._small.add if is_small else self._small.discard)(location)
        if self._open and type(slot.plain) is int and not is_small:
            self.symbols[self.prologue.open(key, slot)] = location
        else:
            self.prologue.bind(key, slot)

    def _stand_in(self, reach: ReachableState, owner: Any, ref: ChildRef | GlobalRef, access: str) -> None:
        """Put a tracked list in the place of a list."""
        grown = self.prologue.appended.get(id(ref.value))
        if grown is None:
            kind = RecordingList if type(ref.value) is list else RecordingDeque
            grown = AppendedList(ref.value, reach.name(ref.value), kind(ref.value))
            grown.stand_in.take(grown.items, self.prologue)
            self.prologue.appended[id(ref.value)] = grown
        setter = partial(owner.__setitem__, ref.name) if isinstance(ref, GlobalRef) else _setter(owner, ref)
        grown.exprs.append(access)
        self._lists.append((setter, ref.value))
        setter(grown.stand_in)

    def _put(self, g: GlobalRef, stand: Any) -> None:
        """Assign a stand-in to a global."""
        setter = partial(g.scope.__setitem__, g.name)
        self._lists.append((setter, g.value))
        setter(stand)

    def finish(self) -> None:
        """Restore the numbers and lists."""
        if not self._finished:
            self.prologue.release()
            for setter, value in self._lists:
                setter(value)
            if self._tuples is not None:
                self._tuples.put_back()
            self._finished = True

    def agrees(self, after: Snapshot) -> bool:
        """Return whether the numbers and lists are what the first run left there."""
        for grown in self.prologue.appended.values():
            items = after.list_items(grown.obj)
            if items is None or not all(
                map(_is_same_value, items[len(items) - len(grown.items) :], grown.items)
            ):
                return False
        return all(
            _is_same_value(value, slot.now)
            for (key, ref), slot in self.prologue.slots.items()
            if (value := after.value(key, ref)) is not after
        )


class _Math:
    """The module ``math`` with functions that take symbolic numbers too."""

    def __init__(self, prologue: HostPrologue) -> None:
        self._script = prologue

    def __getattr__(self, name: str) -> Any:
        member = getattr(math, name)
        return partial(self._script.outcome, member) if callable(member) else member


class _RecordsAppends:
    """Methods of tracked lists: anything but appending reads their items."""

    def take(self, items: list[Any], prologue: Any) -> None:
        """Record appended items in ``items``, and any other use as an obstacle of ``prologue``."""
        self.items, self.prologue = items, prologue

    def append(self, x: Any) -> None:
        """Add an item."""
        super().append(x)  # type: ignore[misc]
        self.items.append(x)

    def extend(self, more: Any) -> None:
        """Add items."""
        for x in more:
            self.append(x)

    def __iadd__(self, more: Any) -> Any:
        self.extend(more)
        return self


def _reading_method(name: str, kind: type) -> Callable[..., Any]:
    method = getattr(kind, name)

    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        prologue = self.prologue
        prologue.obstacle = prologue.obstacle or f"looks into a {kind.__name__} that grows at each call"
        return method(self, *args, **kwargs)

    return read


_UNRECORDED_METHODS: Final = frozenset(
    """__new__ __init__ __init_subclass__ __subclasshook__ __class__ __getattribute__ __setattr__ __delattr__
    __doc__ __iadd__ append extend __class_getitem__ __hash__""".split()
)


def _recording_class(kind: type) -> Any:
    body = {
        n: _reading_method(n, kind)
        for n in dir(kind)
        if n not in _UNRECORDED_METHODS and callable(getattr(kind, n))
    }
    return type(f"Growing{kind.__name__}", (_RecordsAppends, kind), body)


RecordingList: Final = _recording_class(list)
RecordingDeque: Final = _recording_class(deque)


def _prologue_locations(prologue: HostPrologue) -> set[tuple[int, Any]]:
    """Return the locations whose numbers the first run's prologue has read or changed."""
    locations: set[tuple[int, Any]] = {(at, ("item", (type(key), repr(key)))) for at, key in prologue.reads}
    for owner in prologue.owners:
        own = getattr(owner, "__dict__", {})
        locations |= {(id(owner), ("attribute", n)) for n, v in own.items() if is_number(v)}
    return locations


def _slot(tracked: TrackedObject, ref: ChildRef, access: str) -> SymbolicSlot:
    owner: Any = tracked.obj
    setter = _setter(owner, ref)
    if isinstance(owner, types.CellType):
        return SymbolicSlot(access, lambda: owner.cell_contents, setter, lambda text: f"{access} = {text}")
    kind, name = ref.key if isinstance(ref.key, tuple) else ("index", ref.key)
    if kind == "slot":
        return SymbolicSlot(
            access, lambda: getattr(owner, name), setter,
            lambda text: f"object.__setattr__({tracked.expr}, {name!r}, {text})",
        )  # fmt: skip
    if kind == "attribute" and isinstance(owner, type):
        return SymbolicSlot(
            access, lambda: owner.__dict__[name], setter,
            lambda text: f"type.__setattr__({tracked.expr}, {name!r}, {text})",
        )  # fmt: skip
    if kind == "attribute":
        return SymbolicSlot(access, lambda: vars(owner)[name], setter, lambda text: f"{access} = {text}")
    where = ref.access.key if isinstance(ref.access, KeyAccess) else ref.key
    return SymbolicSlot(access, lambda: owner[where], setter, lambda text: f"{access} = {text}")


def _global_slot(g: GlobalRef, access: str) -> SymbolicSlot:
    scope, name = g.scope, g.name
    return SymbolicSlot(
        access, lambda: scope[name], partial(scope.__setitem__, name), lambda text: f"{access} = {text}"
    )


def _setter(owner: Any, ref: ChildRef) -> Callable[[Any], None]:
    """Return the setter of a location. Raises ``Uncapturable`` for one that cannot be assigned."""
    if isinstance(owner, types.CellType):
        return partial(setattr, owner, "cell_contents")
    if isinstance(owner, tuple) or ref.key == "class":
        raise Uncapturable("keeps what it changes in a tuple")
    kind, name = ref.key if isinstance(ref.key, tuple) else ("index", ref.key)
    if kind == "slot":
        return partial(object.__setattr__, owner, name)
    if kind == "attribute":
        return (
            partial(type.__setattr__, owner, name)
            if isinstance(owner, type)
            else partial(vars(owner).__setitem__, name)
        )
    if kind == "default" and isinstance(owner, types.FunctionType):
        return partial(_set_default, owner, name)
    if kind == "item" and isinstance(ref.access, KeyAccess) and isinstance(owner, dict):
        return partial(dict.__setitem__, owner, ref.access.key)
    if kind == "index" and type(owner) is list:
        return partial(list.__setitem__, owner, name)
    raise Uncapturable(f"changes what a {type(owner).__name__} holds")


def _set_default(function: types.FunctionType, place: int, value: Any) -> None:
    defaults = [*(function.__defaults__ or ())]
    defaults[place] = value
    function.__defaults__ = tuple(defaults)


def _is_same_trace(first_run: FirstTrace, second: OpTrace | None, sizes: Mapping[str, int]) -> bool:
    """Return whether two runs recorded the same ops, be their numbers constants or inputs.

    Sizes that are symbolic in the second one were those of ``sizes`` in the first.
    """
    names: dict[Any, int] = {}
    before = {id(s.before.state.value) for s in first_run.reach.tensors()}
    first, _ = _numbered_ops(first_run.trace, first_run.count, names, before, sizes)
    again, shadow_only = _numbered_ops(second, None, names, before, sizes)
    return again <= first <= again | shadow_only


def _numbered_ops(
    trace: OpTrace | None, count: int | None, names: dict[Any, int], before: Container[int],
    sizes: Mapping[str, int],
) -> tuple[set[int], set[int]]:  # fmt: skip
    """Return the first ``count`` ops of a trace by value numbers: equal for equal ops of equal operands.

    Ops that only shadow others for symbolic numbers come second. ``before`` are the ids of the values that
    existed before both runs.
    """
    numbered: set[int] = set()
    shadow_only: set[int] = set()
    at: list[int] = []
    input_count = 0
    for place, e in enumerate(trace.nodes[:count] if trace is not None else ()):
        if trace is not None and place in trace.shadows:
            at.append(at[trace.shadows[place]])
            continue
        spec = Spec(closed_at(e.spec.shape, sizes), e.spec.dtype) if sizes else e.spec
        what = (e.op, attrs_text(e.attrs, sizes), spec) if sizes else e.key
        key: Any = (what, tuple([at[x] for x in e.operands]), e.recompute_tag)
        if e.op == "constant":
            key = ("number", repr(e.attrs["value"]), spec)
        elif e.op == "input" and trace is not None:
            feed = trace.sources[e.attrs["index"]]
            key = ("tensor", id(feed.value), spec)
            if type(feed.source) is SymNumber:
                key = ("number", repr(feed.source.plain), spec)
            elif id(feed.value) not in before:  # drawn, or computed from constants, by each run
                input_count += 1
                key = ("made", input_count, spec)
        number = names.setdefault(key, len(names))
        at.append(number)
        if e.op not in ("constant", "input"):
            (shadow_only if trace is not None and place in trace.shadow_only else numbered).add(number)
    return numbered, shadow_only


def _is_same_value(a: Any, b: Any, depth: int = 0) -> bool:
    """Return whether ``b``, of the dry run, equals ``a`` of the first one."""
    if type(b) is SymNumber:
        return type(a) is type(b.plain) and repr(a) == repr(b.plain)
    if type(b) is SymInt:
        return type(a) is int and a == b.hint
    if type(a) is not type(b) or depth > _MAX_COMPARED_DEPTH:
        return False
    if a is b:
        return True
    if isinstance(a, Tensor):
        kind = (b.dtype, b.device, b.requires_grad)
        return a.shape == hints(b.shape) and (a.dtype, a.device, a.requires_grad) == kind
    if isinstance(a, ReadValue):
        return _is_same_value(a.shown, b.shown, depth + 1)
    if isinstance(a, dict):
        return [*a] == [*b] and all(_is_same_value(a[k], b[k], depth + 1) for k in a)
    if isinstance(a, (list, tuple, deque)):
        return len(a) == len(b) and all(_is_same_value(x, y, depth + 1) for x, y in zip(a, b, strict=True))
    if hasattr(a, "__dict__") and not isinstance(a, (type, types.FunctionType)):
        return _is_same_value(vars(a), vars(b), depth + 1)
    return repr(a) == repr(b)


_MAX_COMPARED_DEPTH: Final = 20
