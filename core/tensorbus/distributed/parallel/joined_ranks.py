"""Replicated modules in the block of a ``Join``: ranks without batches shadow those that go on.

Each run begins by one small all-reduce of flags: which ranks go on, whether ``backward`` averages, and
whether buffers become those of the first rank that goes on. Ranks that go on leave them on the device: a
compiled step has them as well.
"""

from __future__ import annotations

from ...autograd.engine import no_grad
from ...interchange.host_array import asarray
from ...nn.module import Module
from ...tensor.tensor import Tensor
from ..algorithms.join import JoinHook
from ..collectives import functional
from ..tensor.dtensor import part_of
from .gradient_reducer import GradientReducer
from .shared_state import share


def flags_of(reducer: GradientReducer, *, here: bool, averages: bool, shares: bool) -> Tensor:
    """Tell other ranks how this one goes on, and return of each whether it does, and what they will do."""
    group = reducer.group
    mine = [float(here and rank == group.rank) for rank in range(group.size)]
    with no_grad():
        flags = asarray([*mine, float(averages), float(shares)], device=part_of(reducer.parameters[0]).device)
        return functional.all_reduce(flags, "sum", group, label=f"ranks that run {reducer.label}")


def share_buffers(module: Module, reducer: GradientReducer, flags: Tensor | None = None) -> None:
    """Make buffers those of the first rank, with ``flags`` of the first that goes on."""
    group, label = reducer.group, f"buffers of {reducer.label}"
    if flags is None:
        share([*module.buffers()], group, label)
        return
    with no_grad():
        is_source = (flags[: group.rank].sum() == 0) & (flags[group.rank] > 0)
    share([*module.buffers()], group, label, is_source=is_source)


class ShadowingHook(JoinHook):
    """Takes part in the runs of a replicated module on other ranks."""

    def __init__(self, module: Module, reducer: GradientReducer, divides_by_all: bool) -> None:
        self._module, self._reducer, self._divides_by_all = module, reducer, divides_by_all

    def main_hook(self) -> None:
        """Take part in the averages of a run of other ranks, by zeros."""
        flags = flags_of(self._reducer, here=False, averages=False, shares=False)
        *_, averages, shares = flags.tolist()
        if shares:
            share_buffers(self._module, self._reducer, flags)
        if averages:
            self._reducer.shadow(None if self._divides_by_all else flags[: self._reducer.group.size].sum())

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take over the state of a rank that has gone on to the end."""
        group, reducer = self._reducer.group, self._reducer
        here = asarray(group.rank if is_last_joiner else -1, device=part_of(reducer.parameters[0]).device)
        last = functional.all_reduce(here, "max", group, label=f"the last rank that ran {reducer.label}")
        cells = [*reducer.parameters, *self._module.buffers()]
        share(cells, group, f"state of {reducer.label}", int(last))
