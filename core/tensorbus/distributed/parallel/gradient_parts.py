"""Gradients of a group of divided parameters: averaged over ranks, each of which gets its part."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from ...autograd.hooks import gradient_after_hooks
from ...devices.stream import stream
from ...ops.creation.creation import zeros_like
from ...tensor.tensor import Tensor
from ..collectives import functional
from ..process_group.group import ProcessGroup
from ..process_group.work import Work
from ..tensor.dtensor import laid_as, part_of
from .flat_parts import FlatParts, filling
from .gradient_bucket import unflattened
from .gradient_reducer import finished, flattened
from .group_options import GroupOptions
from .group_parts import GroupParts, by_kind, queued


class GradientParts:
    """Takes the gradients of whole parameters, and adds averages to those of the parts.

    ``shards`` is the group of ranks among which parameters are divided, ``replicas`` that of ranks that have
    the same parts, if any.
    """

    def __init__(
        self, parts: GroupParts, shards: ProcessGroup, replicas: ProcessGroup | None, options: GroupOptions,
        label: str,
    ) -> None:  # fmt: skip
        self.shards, self.replicas = shards, replicas
        self._parts, self._options, self._label = parts, options, f"gradients of {label}"
        self._here: dict[int, Tensor] = {}
        """Whole gradients that have come, and are not reduced yet."""
        self._arrived: set[int] = set()
        self._reductions: list[tuple[list[int], bool, Work | Tensor]] = []
        """What is on its way: of which parameters, and whether it has come over ``replicas``."""
        self._averages: dict[int, Tensor] = {}
        """Parts that are still to be averaged over ``replicas``."""

    def take(self, place: int, g: Tensor) -> None:
        """Keep the gradient of a whole parameter; those of several batches add up in ``reduce_dtype``."""
        known, dtype = self._here.get(place), self._options.reduce_dtype
        g = part_of(g.detach())
        if dtype is not None and (known is not None or not self._options.sync):
            g = g.to(dtype)
        self._here[place] = g if known is None else known.to(g.dtype) + g
        self._arrived.add(place)

    @property
    def are_all_here(self) -> bool:
        """Whether this ``backward`` has reached each gradient that is needed."""
        parameters = self._parts.parameters
        return all(k in self._arrived or not p.requires_grad for k, p in enumerate(parameters))

    def reduce(self) -> None:
        """Start the reduce-scatter of the gradients that are here; the module's derivatives are done."""
        dtype, parts = self._options.reduce_dtype, self._parts
        here = {k: parts.front(k, g if dtype is None else g.to(dtype)) for k, g in sorted(self._here.items())}
        self._here.clear()
        over_all = self.replicas is None or self._options.all_reduce
        for places in by_kind(here):
            flat_parts = parts.flat(places, self.shards)
            flat = flat_parts.divided([here[k] for k in places])
            known = self._known(places, flat_parts) if over_all else None
            self._start(places, over_all, flat, flat_parts.lengths, known)
        for places in by_kind(self._averages) if over_all else ():  # of parameters that batches before used
            flat = flattened([self._averages.pop(k) for k in places])
            self._start(places, True, flat, (), None)

    def added(self) -> list[Tensor]:
        """Wait for reductions, and add them to the gradients of the parts; return the parameters.

        Hooks of a parameter see the gradient of the part, which is the average.
        """
        changed: list[Tensor] = []
        for places, over_all, work in self._reductions:
            flat = finished(work)
            if over_all:
                self._call_hook(flat)
            parts = unflattened(flat, [self._parts.part(k) for k in places])
            for place, g in zip(places, parts, strict=True):
                if not over_all:
                    known = self._averages.get(place)
                    self._averages[place] = g if known is None else known + g
                    continue
                p = self._parts.parameters[place]
                part = part_of(p.detach())
                g = _after_hooks(p, self._parts.back(place, g).to(part.device, part.dtype))
                g = g.clone() if p.grad is None else part_of(p.grad) + g
                p.grad = laid_as(g.detach(), p, gradient=True)
                changed.append(p)
        self._reductions.clear()
        return changed

    def drop(self) -> None:
        """Forget the gradients of a ``backward`` that has failed, but for whole ones that are kept."""
        if self._options.sync:
            self._here.clear()
        self.end(True)

    def end(self, forget: bool) -> None:
        """End a ``backward``; ``forget`` what is on its way, which an error has left."""
        self._arrived.clear()
        if forget:
            self._reductions.clear()

    def _start(
        self, places: list[int], over_all: bool, flat: Tensor, lengths: Sequence[int], known: Tensor | None
    ) -> None:
        work = queued(self.shards, self._averaged, flat, lengths, known, over_all, label=self._label)
        self._reductions.append((places, over_all, work))

    def _known(self, places: Sequence[int], flat_parts: FlatParts) -> Tensor | None:
        """Return what this rank has of parameters from batches before, as it lies in a reduction of these."""
        averages = {k: self._averages.pop(k) for k in places if k in self._averages}
        if not averages:
            return None
        dtype = next(iter(averages.values())).dtype
        known = [
            averages[k] if k in averages else zeros_like(self._parts.part(k), dtype=dtype) for k in places
        ]
        return flattened([*known, *filling(known, flat_parts.lengths[self.shards.rank])])

    def _averaged(
        self, flat: Tensor, lengths: Sequence[int], known: Tensor | None, over_all: bool,
        group: ProcessGroup, label: str,
    ) -> Tensor:  # fmt: skip
        """Return this rank's part of the average; without ``lengths`` that over ``group`` is there."""
        options, replicas = self._options, self.replicas
        averages = options.divide_factor is None and not options.only_sums
        reduction = "average" if averages else "sum"
        part = functional.reduce_scatter(flat, reduction, 0, lengths, group, label=label) if lengths else flat
        part = part if known is None else part + known
        if replicas is not None and over_all:
            part = functional.all_reduce(part, reduction, replicas, label=label)
        if averages or not over_all:
            return part
        return part / (options.divide_factor or group.size * (1 if replicas is None else replicas.size))

    def _call_hook(self, flat: Tensor) -> None:
        options: Any = self._options
        if options.all_reduce_hook is not None:
            with ExitStack() as stack:
                if options.all_reduce_stream is not None:
                    stack.enter_context(stream(options.all_reduce_stream))
                options.all_reduce_hook(flat)


def _after_hooks(p: Tensor, g: Tensor) -> Tensor:
    """Return this rank's part of the gradient of ``p`` as the hooks of ``p`` leave it."""
    leaf: Any = p._node
    if not getattr(leaf, "hooks", None):
        return g
    return part_of(leaf.lay_out(gradient_after_hooks(leaf, laid_as(g.detach(), p, gradient=True))))
