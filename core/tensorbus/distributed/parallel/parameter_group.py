"""The parameters of a module that lie in parts on the ranks, and are whole while they are used.

``fully_shard`` hangs on it. A group has one all-gather before its module runs, one before its derivatives
are taken, and one reduce-scatter of its gradients; all of them run beside the program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import deepcopy
from functools import reduce
from typing import Any, Final

from ...autograd.engine import FREED, Node, no_grad
from ...autograd.hooks import gradient_after_hooks
from ...autograd.node_order import order
from ...dtypes.definition import DType
from ...errors import ArgumentError, AutogradError
from ...func.checkpoint import add_surroundings, is_recomputing
from ...nn.module import Module
from ...nn.parameter import Parameter
from ...ops.definition import table
from ...tensor.leaf import Leaf, ReceiverHook, add_hook
from ...tensor.tensor import Tensor
from ...tracing.active_tracer import active_tracer
from ..collectives import functional
from ..process_group.group import ProcessGroup
from ..process_group.work import Work
from ..tensor.dtensor import laid_as, part_of
from ..tensor.layout import MeshLayout, cell_of
from .flat_parts import FlatParts, filling
from .gradient_reducer import finished, flattened, unflattened
from .labels import numbered

REPEATABLE: Final = ("alias", "cast", "movement")
"""Families of ops of one operand that are done again on gathered parameters: they copy at most."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.running: list[ParameterGroup] = []


_thread = _Thread()


def _run_again() -> Callable[[], AbstractContextManager[None]]:
    """Return what makes whole once more what is whole now, for a block of ``checkpoint`` within modules."""
    groups = tuple(_thread.running)

    @contextmanager
    def whole() -> Iterator[None]:
        with ExitStack() as stack:
            for group in groups:
                group.enter()
                stack.callback(group.leave, (), 0)
            yield

    return whole


add_surroundings(_run_again)


class GatherSchedule:
    """The groups of one model, and in which order they ran last: what is gathered ahead of its use."""

    def __init__(self) -> None:
        self.groups: list[ParameterGroup] = []
        self.last: ParameterGroup | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> GatherSchedule:
        """Return an empty schedule, to which copies of the groups add themselves."""
        return GatherSchedule()


class FromShards:
    """A saved value that is not kept: a parameter of a group, gathered again, and what was done to it."""

    __slots__ = ("group", "part", "place", "plans")

    def __init__(self, group: ParameterGroup, place: int, plans: tuple[Any, ...]) -> None:
        self.group, self.place, self.plans = group, place, plans
        self.part = None if active_tracer() is not None else group.parameters[place]._value
        """The part that it was gathered from; None where a program is captured, which has no other."""

    def value(self) -> Any:
        """Return the value on the device; the group is gathered if it is not.

        Raises ``AutogradError`` where the parameter was changed since.
        """
        if self.part is not None and active_tracer() is None:
            self.group.check_unchanged(self.place, self.part)
        x = self.group.gathered()[self.place]
        value = x._value
        if active_tracer() is not None:
            with no_grad():
                return reduce(lambda x, plan: table.run(plan.op.name, (x,), plan.attrs), self.plans, x)._value
        for plan in self.plans:
            value = plan.run(value)
        return value


class RegatheringNode(Node):
    """A recorded op some of whose saved values are ``FromShards``."""

    __slots__ = ()

    def pull(self, g: Any, create: bool) -> list[Any]:
        """Return the gradient for each operand, given that of the result."""
        saved = self.values
        if saved is FREED:
            return super().pull(g, create)
        self.values = tuple(x.value() if isinstance(x, FromShards) else x for x in saved)
        try:
            return super().pull(g, create)
        finally:
            self.values = saved


class ParameterGroup:
    """Parameters that are gathered together: ``parameters`` in parts, whole ones in their modules when used.

    ``layouts`` are those of whole parameters that are split over other ranks, None for the others. ``homes``
    are the modules and names under which each is registered. ``replicas`` is the group of ranks that have the
    same parts, if any. A gradient that comes while ``sync`` is False is kept, whole. ``label`` is what ranks
    compare, so that none gathers parts of another group.
    """

    def __init__(
        self, parameters: Sequence[Parameter], layouts: Sequence[MeshLayout | None],
        homes: Sequence[Sequence[tuple[Module, str]]], shards: ProcessGroup, replicas: ProcessGroup | None,
        device: Any, param_dtype: DType | None, reduce_dtype: DType | None, reshard: bool, label: str,
    ) -> None:  # fmt: skip
        self.parameters, self.homes, self.label = list(parameters), homes, label
        self._layouts = layouts
        self._shapes = [
            tuple(p.shape) if layout is None else layout.part.shape
            for p, layout in zip(self.parameters, layouts, strict=True)
        ]
        """The shapes of this rank's whole parameters, which are gathered."""
        self._flat_parts_of: dict[tuple[int, ...], FlatParts] = {}
        self.shards, self.replicas, self.device = shards, replicas, device
        self.param_dtype, self.reduce_dtype = param_dtype, reduce_dtype
        self.reshard_after_forward, self.sync = reshard, True
        self.schedule = GatherSchedule()
        self.depth = 0
        self.deferred = False
        self.following: ParameterGroup | None = None
        self.preceding: ParameterGroup | None = None
        self.forward_prefetch: list[ParameterGroup] | None = None
        self.backward_prefetch: list[ParameterGroup] | None = None
        """What is gathered ahead by request; None: the group that ran next, or before, the last time."""
        self.divide_factor: float | None = None
        """What sums of gradients are divided by; None: the number of ranks."""
        self._whole: list[Parameter] | None = None
        self._sources: tuple[Any, ...] = ()
        """The parts that are gathered; () where a program is captured."""
        self._gathers: list[tuple[list[int], Work | Tensor]] | None = None
        self._gradients: dict[int, Tensor] = {}
        self._arrived: set[int] = set()
        self._reductions: list[tuple[list[int], Work | Tensor]] = []
        self._leaves = [Leaf() for _ in self.parameters]
        self._places = {leaf: place for place, leaf in enumerate(self._leaves)}
        for place, leaf in enumerate(self._leaves):
            if (layout := layouts[place]) is not None:
                leaf.lay_out = layout.as_gradient
            add_hook(leaf, next(order), ReceiverHook(self, place))

    def __deepcopy__(self, memo: dict[int, Any]) -> ParameterGroup:
        """Return a group of the copied parameters in the copied modules."""
        copied = ParameterGroup(
            deepcopy(self.parameters, memo), self._layouts, deepcopy(self.homes, memo), self.shards,
            self.replicas, self.device, self.param_dtype, self.reduce_dtype, self.reshard_after_forward,
            numbered(self.shards, f"copy of {self.label}"),
        )  # fmt: skip
        memo[id(self)] = copied  # groups that are gathered ahead may name each other
        copied.sync, copied.schedule = self.sync, deepcopy(self.schedule, memo)
        copied.divide_factor = self.divide_factor
        copied.forward_prefetch = deepcopy(self.forward_prefetch, memo)
        copied.backward_prefetch = deepcopy(self.backward_prefetch, memo)
        copied.schedule.groups.append(copied)
        return copied

    def start(self) -> None:
        """Begin to gather the parameters, beside the program."""
        if self._whole is not None or self._gathers is not None:
            return
        with no_grad():
            parts = [self._computed(part_of(p.detach()).to(self.device)) for p in self.parameters]
            self._sources = () if active_tracer() is not None else tuple([p._value for p in self.parameters])
            self._gathers = []
            for places in _by_kind(parts):
                lengths = self._flat_parts(places).lengths
                mine = [parts[k] for k in places]
                flat = flattened([*mine, *filling(mine, lengths[self.shards.rank])])
                gather = self._queue(functional.all_gather, flat, 0, lengths, label=self.label)
                self._gathers.append((places, gather))

    def gathered(self) -> list[Parameter]:
        """Return the whole parameters; while derivatives are taken, the group that ran before comes next."""
        if self._whole is None:
            self.start()
            assert self._gathers is not None
            gathers, self._gathers = self._gathers, None
            whole: dict[int, Tensor] = {}
            with no_grad():
                for places, work in gathers:
                    whole |= zip(places, self._flat_parts(places).whole(finished(work)), strict=True)
            self._whole = []
            for place, (p, leaf) in enumerate(zip(self.parameters, self._leaves, strict=True)):
                cell = Parameter(self._laid(place, whole[place].detach()), requires_grad=False)
                cell._node = leaf if p.requires_grad else None
                self._whole.append(cell)
            if self.depth == 0:
                self._start_preceding()
        return self._whole

    def _start_preceding(self) -> None:
        """Gather what derivatives need next."""
        preceding = [self.preceding] if self.backward_prefetch is None else self.backward_prefetch
        for group in preceding:
            if group is not None and group.depth == 0 and group.deferred:
                group.start()

    def unshard(self) -> None:
        """Register the whole parameters in their modules."""
        if any(p._value is not part for p, part in zip(self.parameters, self._sources, strict=False)):
            self._whole, self._gathers = None, None  # of parts that were changed since
        self._register(self.gathered())

    def reshard(self) -> None:
        """Register the parts in their modules, and let the whole parameters go."""
        self._register(self.parameters)
        self._whole, self._gathers, self._sources = None, None, ()

    def check_unchanged(self, place: int, part: Any) -> None:
        """Raise ``AutogradError`` where a parameter has another part than a derivative needs."""
        p = self.parameters[place]
        if p._value is part:
            return
        _, name = self.homes[place][0]
        by = (getattr(p, "_written", None) or (0, "something"))[1]
        raise AutogradError(
            f"backward: a derivative needs {name!r}, of the group {self.label}, as it was in forward, and"
            f" {by} has overwritten it since. Write after backward()."
        )

    def enter(self) -> None:
        """Begin a run of the module: parameters are whole, and the next group's are on their way."""
        if self.depth == 0:
            self._check_homes()
        self.depth += 1
        if self.depth > 1:
            return
        try:
            self._begin()
        except BaseException:  # nothing runs, and nothing is to be left
            self.depth = 0
            raise
        _thread.running.append(self)

    def _begin(self) -> None:
        """Make parameters whole, and start what is needed next."""
        if is_recomputing():  # going back: the group that ran before is needed next
            self.unshard()
            self._start_preceding()
            return
        before, self.schedule.last = self.schedule.last, self
        if before is not None and before is not self:
            before.following, self.preceding = self, before
        self.unshard()
        following = [self.following] if self.forward_prefetch is None else self.forward_prefetch
        for group in following:
            if group is not None and group.depth == 0:
                group.start()

    def leave(self, results: Sequence[Tensor], began: int) -> None:
        """End a run of the module, which made ``results``: saved values are given up, parts registered."""
        self.depth -= 1
        if self.depth:
            return
        _thread.running.remove(self)
        self._register(self.parameters)
        if not self.reshard_after_forward or is_recomputing():
            return  # what runs again is needed at once
        self._defer([x._node for x in results], began)
        self._whole, self._sources = None, ()

    def take(self, place: int, g: Tensor) -> bool:
        """Keep the gradient of a whole parameter; with the last one the whole ones go."""
        with no_grad():
            known = self._gradients.get(place)
            g = part_of(g.detach())
            self._gradients[place] = g if known is None else known + g
            self._arrived.add(place)
            if all(k in self._arrived or not p.requires_grad for k, p in enumerate(self.parameters)):
                if self.sync:
                    self._reduce()
                if self.reshard_after_forward and self.depth == 0:
                    self._whole, self._sources, self.deferred = None, (), False
        return True

    def finish(self) -> list[Tensor]:
        """Reduce what is left, wait for all, and add to the gradients of the parts; return those.

        Hooks of a parameter see the gradient of the part, which is the average.
        """
        changed: list[Tensor] = []
        try:
            with no_grad():
                if self.sync:
                    self._reduce()
                for places, work in self._reductions:
                    parameters = [self.parameters[k] for k in places]
                    parts = [part_of(p.detach()) for p in parameters]
                    for p, part, g in zip(parameters, parts, unflattened(finished(work), parts), strict=True):
                        g = _after_hooks(p, g.to(part.device, part.dtype))
                        g = g.clone() if p.grad is None else part_of(p.grad) + g
                        p.grad = laid_as(g.detach(), p, gradient=True)
                        changed.append(p)
        finally:
            self._reductions.clear()
            self._arrived.clear()
            for group in self.schedule.groups:
                group.deferred = False
                if group.depth == 0:
                    group.reshard()
            self.schedule.last = None
        return changed

    def _computed(self, x: Tensor) -> Tensor:
        return x.to(self.param_dtype) if self.param_dtype is not None and x.dtype.is_floating else x

    def _queue(self, call: Callable[..., Tensor], x: Tensor, *args: Any, label: str) -> Work | Tensor:
        """Communicate beside the program, or as a node of what is captured."""
        if active_tracer() is not None:
            return call(x, *args, group=self.shards, label=label)
        return self.shards.queue(lambda: call(x, *args, group=self.shards, label=label), tensors=[x])

    def _flat_parts(self, places: Sequence[int]) -> FlatParts:
        """Return how the ranks' parts of parameters lie in what they exchange."""
        key = tuple(places)
        if key not in self._flat_parts_of:
            self._flat_parts_of[key] = FlatParts([self._shapes[k] for k in places], self.shards.size)
        return self._flat_parts_of[key]

    def _laid(self, place: int, x: Tensor) -> Tensor:
        """Return a whole parameter, of which this rank has ``x``."""
        layout = self._layouts[place]
        return x if layout is None else cell_of(x, layout.mesh, layout.placements, layout.shape)

    def _reduce(self) -> None:
        """Start the reduce-scatter of the gradients that are here; the module's derivatives are done."""
        dtype = self.reduce_dtype
        here = {k: g if dtype is None else g.to(dtype) for k, g in sorted(self._gradients.items())}
        self._gradients.clear()
        numbers = [*here]
        for chosen in _by_kind([here[k] for k in numbers]):
            places = [numbers[k] for k in chosen]
            flat_parts = self._flat_parts(places)
            whole = flat_parts.divided([here[k] for k in places])
            label = f"gradients of {self.label}"
            reduction = self._queue(self._averaged, whole, flat_parts.lengths, label=label)
            self._reductions.append((places, reduction))

    def _averaged(self, flat: Tensor, lengths: Sequence[int], group: ProcessGroup, label: str) -> Tensor:
        reduction = "average" if self.divide_factor is None else "sum"
        part = functional.reduce_scatter(flat, reduction, 0, lengths, group, label=label)
        if self.replicas is not None:
            part = functional.all_reduce(part, reduction, self.replicas, label=label)
        return part if self.divide_factor is None else part / self.divide_factor

    def _check_homes(self) -> None:
        """Raise where a module has another parameter than the part, which nothing would gather."""
        whole = self._whole or self.parameters
        for homes, part, one in zip(self.homes, self.parameters, whole, strict=True):
            for module, name in homes:
                here = module._parameters.get(name)
                if here is not part and here is not one:
                    got = "nothing" if here is None else f"a {type(here).__name__} of shape {here.shape}"
                    raise ArgumentError(
                        f"fully_shard: {name!r} of this {type(module).__name__} was replaced by {got} after"
                        f" it had been divided; parts of the one before are gathered. Write into that, by"
                        f" load_state_dict or copy_ say; functional_call is for modules that are not"
                        f" divided."
                    )

    def _register(self, parameters: Sequence[Parameter]) -> None:
        for homes, parameter in zip(self.homes, parameters, strict=True):
            for module, name in homes:
                module._parameters[name] = parameter

    def _defer(self, roots: Sequence[Any], began: int) -> None:
        """Let nodes that were recorded since ``began`` keep no whole parameter."""
        seen: set[int] = set()
        stack = [node for node in roots if node is not None]
        while stack:
            node = stack.pop()
            if isinstance(node, Leaf) or id(node) in seen or node.order < began:
                continue
            seen.add(id(node))
            stack.extend(parent for parent in node.parents if parent is not None)
            if not isinstance(node, Node) or node.values is FREED or not node.values:
                continue  # that of a checkpoint has no values
            values = [
                x if x is None or isinstance(x, FromShards) else self._recipe(parent) or x
                for x, parent in zip(node.values, node.parents, strict=True)
            ]
            if any(isinstance(x, FromShards) for x in values):
                node.values, node.__class__ = tuple(values), RegatheringNode
                self.deferred = True

    def _recipe(self, node: Any) -> FromShards | None:
        """Return how a parameter of this group became the value that ``node`` stands for, if one did."""
        plans: list[Any] = []
        while isinstance(node, Node) and len(node.parents) == 1:
            if node.plan.run is None or node.plan.op.family not in REPEATABLE:
                return None
            plans.append(node.plan)
            node = node.parents[0]
        place = self._places.get(node) if isinstance(node, Leaf) else None
        return None if place is None else FromShards(self, place, tuple(reversed(plans)))


def _after_hooks(p: Tensor, g: Tensor) -> Tensor:
    """Return this rank's part of the gradient of ``p`` as the hooks of ``p`` leave it."""
    leaf: Any = p._node
    if not getattr(leaf, "hooks", None):
        return g
    return part_of(leaf.lay_out(gradient_after_hooks(leaf, laid_as(g.detach(), p, gradient=True))))


def _by_kind(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Return the numbers of tensors of one dtype and device together."""
    kinds: dict[object, list[int]] = {}
    for place, x in enumerate(tensors):
        kinds.setdefault(x._vtype.materialized, []).append(place)
    return list(kinds.values())
