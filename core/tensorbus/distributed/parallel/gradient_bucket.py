"""``GradBucket``: gradients that ``replicate`` averages by one collective, as hooks of it get them."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.movement.movement import reshape
from ...tensor.tensor import Tensor
from ..process_group.group import ProcessGroup


class GradBucket:
    """Gradients of several parameters in one tensor of one dimension, before ranks have averaged them.

    ``group`` is the ranks that the module is averaged over, ``label`` what they compare. Hooks of
    ``replicate`` get it, and return what takes its place.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> list[int]:
    ...     model, sizes = dist.replicate(tb.nn.Linear(4, 1, device="cpu")), []
    ...     def average(state: None, bucket: GradBucket) -> tb.Tensor:
    ...         sizes.append(bucket.buffer().size)
    ...         return dist.functional.all_reduce(bucket.buffer(), "average", bucket.group)
    ...     model.register_comm_hook(None, average)
    ...     model(tb.ones((2, 4), device="cpu")).sum().backward()
    ...     return sizes
    >>> dist.run_ranks(rank, 2)
    [[5], [5]]
    """

    def __init__(
        self, index: int, buffer: Tensor, parameters: Sequence[Tensor], parts: Sequence[Tensor],
        is_last: bool, group: ProcessGroup, label: str,
    ) -> None:  # fmt: skip
        self._index, self._buffer, self._is_last = index, buffer, is_last
        self._parameters, self._parts = parameters, parts
        self.group, self.label = group, label

    def index(self) -> int:
        """Return the place among the buckets of a ``backward``; 0 comes first."""
        return self._index

    def is_last(self) -> bool:
        """Return whether no other bucket comes after this one."""
        return self._is_last

    def buffer(self) -> Tensor:
        """Return the gradients in one tensor, which the hook may write into."""
        return self._buffer

    def set_buffer(self, tensor: Tensor) -> None:
        """Let ``buffer`` return ``tensor``, of another dtype, say, from now on."""
        self._buffer = tensor

    def parameters(self) -> list[Tensor]:
        """Return the parameters that the gradients are of, in their order."""
        return [*self._parameters]

    def gradients(self) -> list[Tensor]:
        """Return the gradients, views of the buffer; of a distributed parameter this rank's part."""
        return unflattened(self._buffer, self._parts)


def unflattened(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the parts of ``flat`` in the shapes of the tensors that it holds."""
    parts, start = [], 0
    for x in like:
        parts.append(reshape(flat[start : start + x.size], x.shape))
        start += x.size
    return parts
