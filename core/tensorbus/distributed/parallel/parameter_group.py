"""The parameters of a module that lie in parts on the ranks, and are whole while they are used.

``fully_shard`` hangs on it. A group has one all-gather before its module runs, one before its derivatives
are taken, and one reduce-scatter of its gradients; all of them run beside the program.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from ...autograd.engine import FREED, Node, no_grad
from ...autograd.node_order import order
from ...devices.device import device
from ...devices.stream import Event
from ...errors import ArgumentError, AutogradError
from ...func.checkpoint import add_surroundings, is_recomputing
from ...interchange.pinned_memory import pinned_for
from ...nn.module import Module
from ...nn.parameter import STORED, Parameter, hold
from ...tensor.leaf import Leaf, ReceiverHook, add_hook
from ...tensor.tensor import Tensor
from ...tracing.active_tracer import active_tracer
from ..collectives import functional
from ..process_group.group import ProcessGroup
from ..process_group.work import Work
from ..tensor.device_mesh import DeviceMesh
from ..tensor.dtensor import DTensor, laid_as, part_of
from ..tensor.gradient_layout import GradientLayout
from ..tensor.layout import MeshLayout
from .flat_parts import FlatParts, filling
from .gradient_parts import GradientParts
from .gradient_reducer import finished, flattened
from .group_options import GroupOptions
from .group_parts import GroupParts, by_kind, queued
from .labels import numbered
from .saved_shards import FromShards, RegatheringNode

REPEATABLE: Final = ("alias", "cast", "movement")
"""Families of ops of one operand that are done again on gathered parameters: they copy at most."""


class _Thread(threading.local):
    def __init__(self) -> None:
        self.running: list[ParameterGroup] = []


_thread = _Thread()
_captured: Final[weakref.WeakKeyDictionary[Any, dict[int, tuple[Any, ...]]]] = weakref.WeakKeyDictionary()
"""The parts that groups, by id, were gathered from in captures that go on."""


def _run_again() -> Callable[[], AbstractContextManager[None]]:
    """Return what makes whole once more what is whole now, for a block of ``checkpoint`` within modules."""
    groups = tuple(_thread.running)

    @contextmanager
    def whole() -> Iterator[None]:
        with ExitStack() as stack:
            for group in groups:
                group.enter()
                stack.callback(group.leave, ())
            yield

    return whole


add_surroundings(_run_again)


class GatherSchedule:
    """The groups of one model, and in which order they ran last: what is gathered ahead of its use."""

    def __init__(self) -> None:
        self.groups: list[ParameterGroup] = []
        self.root: ParameterGroup | None = None
        """That of the module that all others are in."""
        self.last: ParameterGroup | None = None
        self.is_last_backward = True
        """False: the next backward waits for no reduction; one after it does."""
        self.event: Event | None = None
        """Where an optimizer is done with the parts: what the next gather waits for."""

    def __deepcopy__(self, memo: dict[int, Any]) -> GatherSchedule:
        """Return an empty schedule, to which copies of the groups add themselves."""
        return GatherSchedule()


class ParameterGroup:
    """Parameters that are gathered together: ``parameters`` in parts, whole ones in their modules when used.

    ``axes`` are those along which parameters are divided, ``layouts`` those of whole ones that are split over
    other ranks, None for the others. ``homes`` are the modules and names under which each is registered.
    The group runs with ``modules``, one after the other. ``replicas`` is the group of ranks that have the
    same parts, if any. ``label`` is what ranks compare, so that none gathers parts of another group.
    """

    def __init__(
        self, parameters: Sequence[Parameter], axes: Sequence[int], layouts: Sequence[MeshLayout | None],
        homes: Sequence[Sequence[tuple[Module, str]]], modules: Sequence[Module], shards: ProcessGroup,
        replicas: ProcessGroup | None, device: Any, options: GroupOptions, label: str,
    ) -> None:  # fmt: skip
        # What stays as it is lies in tuples: compiled programs look at lists before each run.
        self.parameters, self.modules = list(parameters), tuple(modules)
        self.homes = tuple([tuple(each) for each in homes])
        self.options, self.label = options, label
        self.parts = GroupParts(self.parameters, axes, layouts)
        self.gradients = GradientParts(self.parts, shards, replicas, options, label)
        self.shards, self.device = shards, device
        self.nearby: dict[int, ProcessGroup] = {}
        """By their number: ranks next to each other, each of which may keep a part after ``forward``."""
        self.schedule = GatherSchedule()
        self.has_values = False
        """Whether it is known that parameters do not lie on ``"meta"``."""
        self.depth = 0
        self.began = 0
        """The order of the first node of the run that goes on; 0 where none does, as it was before."""
        self.deferred = False
        self.following: ParameterGroup | None = None
        self.preceding: ParameterGroup | None = None
        self.forward_prefetch: list[ParameterGroup] | None = None
        self.backward_prefetch: list[ParameterGroup] | None = None
        """What is gathered ahead by request; None: the group that ran next, or before, the last time."""
        self._to_run: set[int] = set()
        """Those of ``modules`` that are still to run before whole parameters go, by their places."""
        self._whole: list[Parameter] | None = None
        self._nearby_parts: list[tuple[list[int], Tensor]] | None = None
        """What this rank keeps of the whole parameters for ranks nearby."""
        self._sources: tuple[Any, ...] = ()
        """The parts that are gathered; () where a program is captured, which has them in ``_captured``."""
        self._gathers: list[tuple[list[int], FlatParts, Work | Tensor]] | None = None
        self._leaves = tuple([Leaf() for _ in self.parameters])
        for place, leaf in enumerate(self._leaves):
            if (layout := layouts[place]) is not None:
                leaf.lay_out = GradientLayout(layout)
            add_hook(leaf, next(order), ReceiverHook(self, place))

    def __deepcopy__(self, memo: dict[int, Any]) -> ParameterGroup:
        """Return a group of the copied parameters in the copied modules."""
        copied = memo[id(self)] = object.__new__(ParameterGroup)  # which modules and groups lead back to
        copied.__init__(  # type: ignore[misc]
            deepcopy(self.parameters, memo), self.parts.axes, self.parts.layouts, deepcopy(self.homes, memo),
            deepcopy(self.modules, memo), self.shards, self.gradients.replicas, self.device,
            replace(self.options), numbered(self.shards, f"copy of {self.label}"),
        )  # fmt: skip
        copied.schedule, copied.nearby = deepcopy(self.schedule, memo), self.nearby
        copied.schedule.is_last_backward = self.schedule.is_last_backward
        copied.forward_prefetch = deepcopy(self.forward_prefetch, memo)
        copied.backward_prefetch = deepcopy(self.backward_prefetch, memo)
        copied.schedule.groups.append(copied)
        if self.schedule.root is self:
            copied.schedule.root = copied
        return copied

    def start(self) -> None:
        """Begin to gather the parameters, beside the program."""
        if self._whole is not None or self._gathers is not None:
            return
        if self.schedule.event is not None and active_tracer() is None:
            event, self.schedule.event = self.schedule.event, None
            event.wait()
        with no_grad():
            self._gathers = []
            if self._nearby_parts:
                nearby = self.nearby[int(self.options.reshard_after_forward or 0)]
                for places, flat in self._nearby_parts:
                    self._gather(places, flat, nearby)
                return
            if self.options.pinned and active_tracer() is None:
                self._pin()
            parts = [
                self._computed(self.parts.part(k).to(self.device, non_blocking=self.options.pinned))
                for k in range(len(self.parameters))
            ]
            self._note_sources()
            for places in by_kind(dict(enumerate(parts))):
                mine = [parts[k] for k in places]
                missing = filling(mine, self.parts.flat(places, self.shards).lengths[self.shards.rank])
                self._gather(places, flattened([*mine, *missing]), self.shards)

    def _pin(self) -> None:
        """Put parts that lie in the host's memory where the device copies from by itself."""
        for p in self.parameters:
            part = part_of(p.detach())
            pinned = part if self.device is None else pinned_for(part, device(self.device))
            if pinned is not part:
                hold(p, laid_as(pinned, p))

    def _gather(self, places: list[int], flat: Tensor, group: ProcessGroup) -> None:
        flat_parts = self.parts.flat(places, group)
        work = queued(group, functional.all_gather, flat, 0, flat_parts.lengths, label=self.label)
        assert self._gathers is not None
        self._gathers.append((places, flat_parts, work))

    def gathered(self) -> list[Parameter]:
        """Return the whole parameters; while derivatives are taken, the group that ran before comes next."""
        if self._whole is None:
            self.start()
            assert self._gathers is not None
            gathers, self._gathers = self._gathers, None
            whole: dict[int, Tensor] = {}
            with no_grad():
                for places, flat_parts, work in gathers:
                    whole |= zip(places, flat_parts.whole(finished(work)), strict=True)
                cells = [self.parts.laid(k, self.parts.back(k, whole[k]).detach()) for k in range(len(whole))]
            self._whole = [Parameter(cell, requires_grad=False) for cell in cells]
            for cell, p in zip(self._whole, self.parameters, strict=True):
                vars(cell)[STORED] = p
            self._track()
            if self.depth == 0:
                self._start_preceding()
        return self._whole

    def _track(self) -> None:
        """Let the whole parameters require gradients that those in parts do."""
        for cell, p, leaf in zip(self._whole or (), self.parameters, self._leaves, strict=False):
            cell._node = leaf if p.requires_grad else None

    def _start_preceding(self) -> None:
        """Gather what derivatives need next."""
        preceding = [self.preceding] if self.backward_prefetch is None else self.backward_prefetch
        for group in preceding:
            if group is None or group.depth or not group.deferred:
                continue
            if group.options.unshard_in_backward:
                group.start()

    def unshard(self) -> None:
        """Register the whole parameters in their modules."""
        self._forget_others()
        self._track()
        self._register(self.gathered())

    def start_ahead(self) -> None:
        """Begin to gather the parameters ahead of a run."""
        self._forget_others()
        self.start()

    def _note_sources(self) -> None:
        values, tracer = tuple([p._value for p in self.parameters]), active_tracer()
        if tracer is None:
            self._sources = values
        else:
            self._sources = ()
            _captured.setdefault(tracer, {})[id(self)] = values

    def _forget_others(self) -> None:
        """Forget what is gathered of other parts than those of now.

        What another program has gathered counts as such: nothing guards a program's parts.
        """
        tracer = active_tracer()
        sources = self._sources if tracer is None else _captured.get(tracer, {}).get(id(self), ())
        now = len(sources) == len(self.parameters)
        if not (now and all(p._value is x for p, x in zip(self.parameters, sources, strict=True))):
            self._whole = self._gathers = self._nearby_parts = None

    def reshard(self) -> None:
        """Register the parts in their modules, and let the whole parameters go."""
        self._register(self.parameters)
        self._to_run.clear()
        self._whole, self._gathers, self._nearby_parts, self._sources = None, None, None, ()

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
        """Begin a run of a module: parameters are whole, and the next group's are on their way."""
        if self.depth == 0:
            self._check_homes()
            self.began = next(order)
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
        if not self._to_run:
            self._to_run.update(range(len(self.modules)))
        before, self.schedule.last = self.schedule.last, self
        if before is not None and before is not self:
            before.following, self.preceding = self, before
        self.unshard()
        following = [self.following] if self.forward_prefetch is None else self.forward_prefetch
        for group in following:
            if group is not None and group.depth == 0:
                group.start_ahead()

    def leave(self, results: Sequence[Tensor], module: Module | None = None) -> None:
        """End a run of ``module``, which made ``results``: saved values are given up, parts registered."""
        self.depth -= 1
        if self.depth:
            return
        began, self.began = self.began, 0
        _thread.running.remove(self)
        self._register(self.parameters)
        if is_recomputing():
            return  # what runs again is needed at once
        self._to_run -= {k for k, one in enumerate(self.modules) if one is module}
        if self.reshards:
            self._defer([x._node for x in results], began)
        if self.reshards and not self._to_run:
            self._let_go()
        for group in self.schedule.groups if self.schedule.root is self else ():
            if group._to_run and group.depth == 0:  # the run of the whole has left modules of it out
                group._to_run.clear()
                if group.reshards:
                    group._let_go()

    def check_reshard(self, name: str, chosen: object) -> None:
        """Refuse, for the call ``name``, what says nothing about the time after ``forward``."""
        size = self.shards.size
        if chosen is None or isinstance(chosen, bool):
            return
        if isinstance(chosen, int) and chosen > 0 and size % chosen == 0:
            return
        raise ArgumentError(
            f"{name}: reshard_after_forward is True, False, None (True but for the outermost module) or a"
            f" number of ranks that divides the {size} among which parameters lie, got {chosen!r}."
        )

    def set_reshard(self, chosen: bool | int | None) -> None:
        """Choose what stays after ``forward``; where ranks nearby keep parts, all ranks call it."""
        size = self.shards.size
        if chosen is not None and not isinstance(chosen, bool):
            if 1 < chosen < size and chosen not in self.nearby:
                ranks = self.shards.ranks
                rows = [[*ranks[k : k + chosen]] for k in range(0, size, chosen)]
                self.nearby[chosen] = DeviceMesh(None, rows).groups[1]
            elif chosen not in self.nearby:
                chosen = chosen > 1  # one rank that keeps all, or all ranks that keep their parts
        self.options.reshard_after_forward = chosen

    @property
    def reshards(self) -> bool:
        """Whether whole parameters go after ``forward``."""
        chosen = self.options.reshard_after_forward
        return self.schedule.root is not self if chosen is None else bool(chosen)

    def _let_go(self) -> None:
        """Give up whole parameters, but for the parts of them that ranks nearby keep."""
        chosen = self.options.reshard_after_forward
        if self._whole is None or self._nearby_parts:
            pass
        elif chosen in self.nearby:
            nearby, self._nearby_parts = self.nearby[chosen], []
            with no_grad():
                whole = {k: self.parts.front(k, part_of(x.detach())) for k, x in enumerate(self._whole)}
                for places in by_kind(whole):
                    flat_parts = self.parts.flat(places, nearby)
                    self._nearby_parts.append(
                        (places, flat_parts.part([whole[k] for k in places], nearby.rank))
                    )
        else:
            self._sources = ()
        self._whole = None

    def take(self, place: int, g: Tensor) -> bool:
        """Keep the gradient of a whole parameter; with the last one the whole ones go."""
        with no_grad():
            self.gradients.take(place, g)
            if self.gradients.are_all_here:
                if self.options.sync:
                    self.gradients.reduce()
                if self.reshards and self.options.reshard_after_backward and self.depth == 0:
                    self._whole, self._nearby_parts, self._sources, self.deferred = None, None, (), False
        return True

    def finish(self) -> list[Tensor]:
        """Reduce what is left, wait for all, and add to the gradients of the parts; return those.

        Where another ``backward`` is the last one, that waits.
        """
        changed: list[Tensor] = []
        waits = self.schedule.is_last_backward or active_tracer() is not None
        try:
            with no_grad():
                if self.options.sync:
                    self.gradients.reduce()
                for group in self.schedule.groups if waits else ():
                    changed += group.gradients.added()
        finally:
            self.gradients.end(waits)
            for group in self.schedule.groups:
                group._end_backward()
            self.schedule.last = None
        return changed

    def drop(self) -> None:
        """Forget the gradients of a ``backward`` that has failed."""
        self.gradients.drop()
        for group in self.schedule.groups:
            group._end_backward()
        self.schedule.last = None

    def _end_backward(self) -> None:
        self.deferred = False
        if self.depth == 0 and self.options.reshard_after_backward:
            self.reshard()
        elif self.depth == 0:
            self._register(self.parameters)

    def _computed(self, x: Tensor) -> Tensor:
        dtype = self.options.param_dtype
        return x.to(dtype) if dtype is not None and x.dtype.is_floating else x

    def _check_homes(self) -> None:
        """Take over a parameter that a module was given, in parts that lie alike; raise for any other."""
        whole = self._whole or self.parameters
        for place, (homes, part, one) in enumerate(zip(self.homes, self.parameters, whole, strict=True)):
            for module, name in homes:
                here = module._parameters.get(name)
                if here is part or here is one:
                    continue
                if isinstance(here, DTensor) and isinstance(here, Parameter) and _lie_alike(here, part):
                    self.parameters[place] = here
                else:
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
        hooks = getattr(node, "hooks", {}).values() if isinstance(node, Leaf) else ()
        places = [hook.place for hook in hooks if type(hook) is ReceiverHook and hook.receiver is self]
        return FromShards(self, places[0], tuple(reversed(plans))) if places else None


def _lie_alike(x: Tensor, other: Tensor) -> bool:
    same: bool = x._value.layout is other._value.layout
    return same
