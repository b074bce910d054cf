"""Communication hooks of ``replicate``: how the gradients in a bucket become their average over ranks.

A hook is called as ``hook(state, bucket)``. The state of these is the group of ranks that take part; None:
those that the module is averaged over. They return at once what is averaged beside the program, and are nodes
of a program of ``tensorbus.compile``.
"""

from __future__ import annotations

from typing import Any

from ....dtypes import definition as dt
from ....tensor.tensor import Tensor
from ...collectives import functional
from ...parallel.gradient_bucket import GradBucket
from ...parallel.gradient_reducer import CommHook
from ...parallel.group_parts import queued
from ...process_group.future import Future, tensor_of
from ...process_group.group import ProcessGroup
from ...process_group.work import Work


def allreduce_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future | Tensor:
    """Average the gradients of ``bucket`` as they are: what is done without a hook.

    >>> import tensorbus as tb
    >>> from tensorbus.distributed.algorithms.ddp_comm_hooks import default_hooks
    >>> def rank():
    ...     model = tb.distributed.replicate(tb.nn.Linear(2, 1, device="cpu"))
    ...     model.register_comm_hook(None, default_hooks.allreduce_hook)
    ...     model(tb.ones((1, 2), device="cpu") * tb.distributed.get_rank()).sum().backward()
    ...     return model.weight.grad.tolist()
    >>> tb.distributed.run_ranks(rank, 2)
    [[[0.5, 0.5]], [[0.5, 0.5]]]
    """
    group = bucket.group if process_group is None else process_group
    mine = bucket.buffer() / group.size  # before the sum, which float16 may not hold
    sums = queued(group, functional.all_reduce, mine, "sum", label=bucket.label)
    return sums.get_future() if isinstance(sums, Work) else sums


def fp16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Any:
    """Average the gradients of ``bucket`` in float16, and return them in their own dtype."""
    return fp16_compress_wrapper(allreduce_hook)(process_group, bucket)


def bf16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Any:
    """Average the gradients of ``bucket`` in bfloat16, and return them in their own dtype."""
    return bf16_compress_wrapper(allreduce_hook)(process_group, bucket)


def fp16_compress_wrapper(hook: CommHook) -> CommHook:
    """Return the hook that lets ``hook`` have gradients in float16, and returns them in their own dtype."""
    return _compressing(hook, dt.float16)


def bf16_compress_wrapper(hook: CommHook) -> CommHook:
    """Return the hook that lets ``hook`` have gradients in bfloat16, and returns them in their own dtype."""
    return _compressing(hook, dt.bfloat16)


def _compressing(hook: CommHook, dtype: dt.DType) -> CommHook:
    def compressing(state: Any, bucket: GradBucket) -> Future | Work | Tensor:
        own = bucket.buffer().dtype
        bucket.set_buffer(bucket.buffer().to(dtype))
        result = hook(state, bucket)
        if isinstance(result, Work):
            result = result.get_future()
        if isinstance(result, Future):
            return result.then(lambda known: tensor_of(known).to(own))
        return result.to(own)

    return compressing
