"""``loss_parallel``: losses of logits whose classes are split over ranks, which no rank gathers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..tensor.implicit_replication import implicit_replication


@contextmanager
def loss_parallel() -> Iterator[None]:
    """Compute ``cross_entropy`` of a distributed tensor of logits, and go back through it, inside of it.

    The target, and weights of classes, may be ordinary tensors, which are the same on each rank. Where the
    logits are ``Shard`` along their classes, as a ``ColwiseParallel`` last layer with
    ``use_local_output=False`` leaves them, ranks exchange a few numbers for each row and never logits: the
    maximum, the sum of the exponentials, the logit of the target, and going back the sum of a row's gradient.
    Usable as a decorator too.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank():
    ...     mesh = dist.init_device_mesh("cpu", (2,))
    ...     logits = dist.distribute_tensor(tb.zeros((3, 8), device="cpu"), mesh, [dist.Shard(1)])
    ...     with dist.loss_parallel():
    ...         loss = tb.nn.functional.cross_entropy(logits, tb.asarray([1, 7, 0], device="cpu"))
    ...     return round(loss.item(), 4)
    >>> dist.run_ranks(rank, 2)
    [2.0794, 2.0794]
    """
    with implicit_replication():
        yield
