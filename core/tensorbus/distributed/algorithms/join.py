"""``Join``: ranks that have no more batches take part in the collectives of those that go on.

A rank leaves the block when its data are used up. From then on it shadows each iteration of the others: a
``JoinHook`` makes, with values that change nothing, the calls that the iteration makes. An iteration begins
by one small all-reduce, which counts the ranks that go on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from ...autograd.engine import no_grad
from ...devices.device import Device
from ...errors import ArgumentError, DistributedError
from ...ops.creation.creation import full
from ...tensor.tensor import Tensor
from ..collectives import functional
from ..process_group.group import ProcessGroup


@dataclass(frozen=True)
class JoinConfig:
    """The part of a ``Joinable`` in the block of a ``Join``."""

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False
    """Whether it counts the ranks that go on, for all in the block."""


NOT_JOINED: Final = JoinConfig()


class JoinHook:
    """Calls of a rank that has no more batches: in each iteration of the others, and at the end."""

    def main_hook(self) -> None:
        """Make the calls of one iteration of another rank, with values that change nothing."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Do what is left when all ranks are done; ``is_last_joiner``: this one went on to the end."""


class Joinable(ABC):
    """Base of all that ``Join`` takes: iterations begin with ``Join.notify_join_context(self)``."""

    def __init__(self) -> None:
        super().__init__()
        self._join_config = NOT_JOINED

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return the hook for a block; ``kwargs`` are those of ``Join``."""

    @property
    @abstractmethod
    def join_device(self) -> Device | str:
        """The device of the tensors by which ranks are counted."""

    @property
    @abstractmethod
    def join_process_group(self) -> ProcessGroup:
        """The ranks that wait for each other."""


class Join:
    """A block in which ranks may have different numbers of batches, for modules of ``replicate`` and others.

    ``joinables`` begin each iteration together, with the first of them; all are of one group of ranks. With
    ``throw_on_early_termination`` all ranks raise ``DistributedError`` as soon as one has no more batches.
    ``enable=False`` makes it a block like any other. ``kwargs`` go to the hooks: ``replicate`` knows
    ``divide_by_initial_world_size``.

    Where an error ends the block on a rank, it waits for no other. Raises ``ArgumentError`` for what is no
    ``Joinable``, and for several groups.

    >>> import tensorbus as tb
    >>> from tensorbus.distributed.algorithms.join import Join
    >>> def rank():
    ...     model = tb.distributed.replicate(tb.nn.Linear(1, 1, device="cpu"))
    ...     with Join([model]):
    ...         for _ in range(1 + tb.distributed.get_rank()):
    ...             model.zero_grad()
    ...             model(tb.ones((1, 1), device="cpu")).sum().backward()
    ...     return model.bias.grad.tolist()
    >>> tb.distributed.run_ranks(rank, 2)
    [[1.0], [0.5]]
    """

    def __init__(
        self, joinables: Sequence[Joinable], enable: bool = True, throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        self._joinables = [*joinables]
        wrong = [type(each).__name__ for each in self._joinables if not isinstance(each, Joinable)]
        if wrong or not self._joinables:
            raise ArgumentError(
                f"Join: modules of replicate are needed, or others that are Joinable, got {wrong or 'none'}."
                f" With modules that fully_shard has divided all ranks do as many batches as the one that has"
                f" the fewest: all_reduce(count, 'min') tells."
            )
        first = self._joinables[0]
        self._group, self._device = first.join_process_group, first.join_device
        if any(each.join_process_group.ranks != self._group.ranks for each in self._joinables):
            raise ArgumentError(
                "Join: the joinables are of several groups of ranks; each needs a block of its own."
            )
        self._enable, self._throws = enable, throw_on_early_termination
        self._hooks = [each.join_hook(**kwargs) for each in self._joinables] if enable else []

    def __enter__(self) -> Join:
        if self._enable:
            for each in self._joinables:
                each._join_config = JoinConfig(True, self._throws, each is self._joinables[0])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._enable:
            return
        for each in self._joinables:
            each._join_config = NOT_JOINED
        if kind is not None:
            return
        is_last_joiner = True
        while int(_count(self._group, self._device, 0.0)):
            if self._throws:
                raise DistributedError(
                    f"Join: rank {self._group.rank} has no more batches, and others have; with"
                    f" throw_on_early_termination that ends all."
                )
            is_last_joiner = False
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(is_last_joiner)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> None:
        """Begin an iteration: tell ranks that have no more batches that this one goes on.

        Does nothing out of a block, and of the joinables of one block it is the first that tells. Raises
        ``DistributedError`` where a rank has no more batches and that is to end all.
        """
        config = joinable._join_config
        if not (config.enable and config.is_first_joinable):
            return
        group = joinable.join_process_group
        count = _count(group, joinable.join_device, 1.0)
        if config.throw_on_early_termination and int(count) < group.size:
            raise DistributedError(
                f"Join: rank {group.rank} has batches left, and another has no more; with"
                f" throw_on_early_termination that ends all."
            )


def _count(group: ProcessGroup, device: Device | str, this: float) -> Tensor:
    """Return how many ranks go on, of which ``this`` is one, or none."""
    with no_grad():
        return functional.all_reduce(
            full((), this, device=device), "sum", group, label="ranks that have batches"
        )
