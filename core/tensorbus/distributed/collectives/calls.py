"""Calls of a group that put their results into tensors that exist: their arguments, checked, and the run.

Apart from the operations, which users read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.engine import no_grad
from ...dispatch.modes import is_value_mode
from ...errors import ArgumentError, DistributedError, DtypeError, ShapeError
from ...tensor.grad_mode import grad_enabled
from ...tensor.tensor import Tensor
from ...tracing.active_modes import active_modes
from ..process_group.comparison import Parts
from ..process_group.group import ProcessGroup, get_group
from ..process_group.work import Work
from ..process_group.world import current
from . import functional
from .functional import check_tensors


def group_or_all(group: ProcessGroup | None) -> ProcessGroup:
    """Return the group, which this rank has made; None: all ranks of the program."""
    functional._name(group)
    if group is None:
        return get_group()
    if group.world is not current():
        raise DistributedError(f"distributed: {group!r} belongs to another rank; each makes its own.")
    return group


def place_of(name: str, group: ProcessGroup, rank: int | None, place: int | None = None) -> int:
    """Return the place in a group of a rank, which is given so or by its number; by none it is number 0.

    Raises ``ArgumentError`` for one that is not in the group, and where both are given.
    """
    if place is not None:
        if rank is not None:
            raise ArgumentError(
                f"{name}: a rank is given by its number, {rank!r}, and its place in the group, {place!r}; one"
                f" of them is needed."
            )
        if place not in range(group.size):
            raise ArgumentError(f"{name}: a place in the group must be 0 to {group.size - 1}, got {place!r}.")
        return place
    rank = 0 if rank is None else rank
    if rank not in group.ranks:
        raise ArgumentError(f"{name}: rank {rank!r} is not in the group, whose ranks are {[*group.ranks]}.")
    return group.ranks.index(rank)


def alike_tensors(name: str, *xs: Tensor) -> None:
    """Raise ``DtypeError`` or ``ArgumentError`` where tensors of a call differ in dtype or device type."""
    check_tensors(name, *xs)
    for x in xs[1:]:
        if x.dtype != xs[0].dtype:
            raise DtypeError(
                f"{name}: all tensors of a call, results too, have one dtype, got {xs[0].dtype} and"
                f" {x.dtype}."
            )
        if x.device.type != xs[0].device.type:
            raise ArgumentError(
                f"{name}: all tensors of a call, results too, lie on one type of device, got {xs[0].device}"
                f" and {x.device}."
            )


def check_own(name: str, group: ProcessGroup, tensor: Tensor, tensors: Sequence[Tensor]) -> None:
    """Raise ``ShapeError`` where a rank's tensor has another shape than its place in the list."""
    own = tensors[group.rank].shape
    if own != tensor.shape:
        raise ShapeError(
            f"{name}: rank {group.rank}'s tensor has shape {tensor.shape}, but its place in the list {own}."
        )


def one_each(name: str, group: ProcessGroup, tensors: Sequence[Tensor]) -> None:
    """Raise ``ArgumentError`` for another number of tensors than ranks."""
    if len(tensors) != group.size:
        raise ArgumentError(f"{name}: {group.size} tensors are needed, one a rank, got {len(tensors)}.")


def same_size(name: str, tensor: Tensor, size: int) -> None:
    """Raise ``ShapeError`` for an output of another number of elements."""
    if tensor.size != size:
        raise ShapeError(f"{name}: the output must have {size} elements, but its shape is {tensor.shape}.")


def is_eager(*tensors: Tensor) -> bool:
    """Return whether nobody records or changes what is called here: no op is needed then."""
    return not active_modes and all(type(x) is Tensor for x in tensors)


def put(target: Tensor, value: Tensor | Callable[..., Tensor], *arguments: Any) -> None:
    """Make ``target`` hold what a communicator returned, which nobody else has: nothing is copied.

    ``value`` may be what returns that, of the ``arguments``.
    """
    recorded = grad_enabled.set(False)
    try:
        if not isinstance(value, Tensor):
            value = value(*arguments)
        if type(target) is Tensor and type(value) is Tensor:
            if value.shape != target.shape and value.size == target.size:
                value = value.reshape(target.shape)
            if value.shape == target.shape and _alike(target, value):
                target.rebind(value, by="a collective")
                return
        target.copy_(value)
    finally:
        grad_enabled.reset(recorded)


def _alike(x: Tensor, y: Tensor) -> bool:
    return x.dtype is y.dtype and x.device == y.device


def do(
    group: ProcessGroup | None, tensors: Sequence[Tensor], call: Callable[[ProcessGroup], Tensor],
    target: Tensor | None, async_op: bool,
) -> Work | None:  # fmt: skip
    """Run an op of ``functional`` now, or in the group's queue, and put its result into ``target``."""
    ranks = group_or_all(group)

    def finish(value: Tensor) -> None:
        if target is not None:
            put(target, value)

    if async_op and not any(is_value_mode(x.device.type) for x in tensors):
        work = ranks.queue(lambda: call(ranks), finish, tensors)
        work.outputs = () if target is None else (target,)
        return work
    with no_grad():
        finish(call(ranks))
    if not async_op:
        return None
    work = ranks.queue(lambda: None)  # what stands for others is done at once
    work.outputs = () if target is None else (target,)
    return work


def do_raw(
    group: ProcessGroup, name: str, tensors: Sequence[Tensor],
    call: Callable[[Any, list[Tensor]], Sequence[Tensor]], targets: Sequence[Tensor], async_op: bool,
    terms: str, parts: Parts | None = None,
) -> Work | None:  # fmt: skip
    """Run a collective of lists of tensors by the communicator itself."""
    inputs = [x.detach() for x in tensors]

    def finish(values: Sequence[Tensor]) -> None:
        for target, value in zip(targets, values, strict=True):
            put(target, value)

    if group.size == 1:
        finish(inputs if targets else [])
        if not async_op:
            return None
        work = group.queue(lambda: None)
    elif async_op:
        work = group.submit(name, inputs, lambda c: call(c, inputs), finish, terms, parts=parts)
    if async_op:
        work.outputs = targets
        return work
    finish(group.run(name, inputs, lambda c: call(c, inputs), terms, parts=parts))
    return None
