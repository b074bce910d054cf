"""Gradients that are averaged over ranks while ``backward`` goes on: in buckets, as they arrive.

``replicate`` hangs on it. A bucket is one tensor and one collective; all ranks start buckets in the same
order, whatever the order in which their gradients arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Final

from ...autograd.engine import no_grad
from ...autograd.hooks import add_receiver
from ...dtypes.definition import DType
from ...errors import ArgumentError, DistributedError
from ...interchange.host_array import asarray
from ...ops.creation.creation import zeros_like
from ...ops.movement.movement import concat, reshape
from ...tensor.tensor import Tensor
from ...tracing.active_tracer import active_tracer
from ..collectives import functional
from ..process_group.future import Future, tensor_of
from ..process_group.group import ProcessGroup
from ..process_group.work import Work
from ..tensor.dtensor import laid_as, part_of
from .gradient_bucket import GradBucket, unflattened
from .labels import numbered

FIRST_BUCKET: Final = 1 << 20
"""Bytes of the first bucket: small, so that communication begins early."""


def flattened(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of tensors of one dtype and device, one after the other, in C order."""
    parts = [reshape(x, (x.size,)) for x in tensors]
    return parts[0] if len(parts) == 1 else concat(parts)


def finished(work: Work | Tensor) -> Tensor:
    """Return the result of a collective: of one beside the program once it is there."""
    return work.wait() if isinstance(work, Work) else work


CommHook = Callable[[Any, GradBucket], "Future | Work | Tensor"]
"""Called with a state and a bucket: what becomes of gradients in place of the average."""


def buckets_of(parameters: Sequence[Tensor], limit: int) -> list[list[int]]:
    """Return the numbers of parameters in buckets of at most ``limit`` bytes, the last ones first.

    Gradients arrive about in that order. A bucket has one dtype and device.
    """
    buckets: list[list[int]] = []
    filling: dict[object, list[int]] = {}
    sizes: dict[object, int] = {}
    for place in reversed(range(len(parameters))):
        x = parameters[place]
        kind = x._vtype.materialized
        most = limit if buckets else min(FIRST_BUCKET, limit)
        if kind not in filling or sizes[kind] + x.nbytes > most:
            filling[kind], sizes[kind] = [], 0
            buckets.append(filling[kind])
        filling[kind].append(place)
        sizes[kind] += x.nbytes
    return buckets


class GradientReducer:
    """Averages the gradients of ``parameters``, which have ``names``, over the ranks of ``group``.

    ``label`` is what ranks compare, so that none averages gradients of another module.

    ``sync`` False leaves gradients to their leaves, where they add up. ``find_unused``: parameters that a
    rank did not use count as zeros there, and those that no rank used keep what they have. ``dtype`` is what
    gradients are averaged in; None: their own.
    """

    def __init__(
        self, names: Sequence[str], parameters: Sequence[Tensor], group: ProcessGroup, *, bucket_bytes: int,
        find_unused: bool, views: bool, label: str, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        self.sync, self.label = True, label
        self.hook: tuple[CommHook, Any] | None = None
        """What averages a bucket in place of an all-reduce, and its state."""
        self.present: Tensor | None = None
        """How many ranks take part in averages, where that is not all of the group."""
        self.group, self._bucket_bytes = group, bucket_bytes
        self._names: list[str] = []
        self._parameters: list[Tensor] = []
        self._find_unused, self._views, self._dtype = find_unused, views, dtype
        self._arrived: dict[int, Tensor] = {}
        self._started: list[Future | Work | Tensor] = []
        self._resting = [*zip(names, parameters, strict=True)]
        """Parameters that have required no gradient yet, with their names."""
        self.note_new()

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters, those that require no gradient too."""
        return [*self._parameters, *(p for _, p in self._resting)]

    def note_new(self) -> None:
        """Average the gradients of parameters that require one since they were looked at last, too."""
        awake = [(name, p) for name, p in self._resting if p.requires_grad]
        if not awake:
            return
        self._resting = [(name, p) for name, p in self._resting if not p.requires_grad]
        for name, p in awake:
            add_receiver(p, self, len(self._parameters))
            self._names.append(name)
            self._parameters.append(p)
        self._buckets = buckets_of([part_of(p.detach()) for p in self._parameters], self._bucket_bytes)

    def __deepcopy__(self, memo: dict[int, Any]) -> GradientReducer:
        """Return a reducer of the copied parameters' gradients."""
        resting = [name for name, _ in self._resting], [p for _, p in self._resting]
        parameters = deepcopy([*self._parameters, *resting[1]], memo)
        copied = GradientReducer(
            [*self._names, *resting[0]], parameters, self.group, bucket_bytes=self._bucket_bytes,
            find_unused=self._find_unused, views=self._views,
            label=numbered(self.group, f"copy of {self.label}"), dtype=self._dtype,
        )  # fmt: skip
        copied.sync, copied.hook = self.sync, self.hook
        return copied

    def take(self, place: int, g: Tensor) -> bool:
        """Take a gradient, and start the bucket that it completes."""
        if not self.sync:
            return False
        with no_grad():
            known = self._parameters[place].grad
            g = part_of(g.detach())
            self._arrived[place] = g if known is None else part_of(known) + g
            while self._is_full(len(self._started)):
                self._start(len(self._started))
        return True

    def finish(self) -> list[Tensor]:
        """Start the buckets that are left, wait for all, set the gradients; return the tensors that have one.

        Hooks of gradients have seen this rank's; those that are called with the tensor find the average.
        """
        changed: list[Tensor] = []
        try:
            with no_grad():
                missing = [
                    k for k, p in enumerate(self._parameters) if p.requires_grad and k not in self._arrived
                ]
                if missing and not self._find_unused:
                    raise DistributedError(
                        f"replicate: backward reached no gradient of {self._listed(missing)}, for which other"
                        f" ranks wait: every rank must use every parameter that requires a gradient, or"
                        f" replicate(module, find_unused_parameters=True) lets it count as zero."
                    )
                while len(self._started) < len(self._buckets):
                    self._start(len(self._started))
                used = self._used_anywhere()
                for bucket, started in zip(self._buckets, self._started, strict=True):
                    parameters = [self._parameters[k] for k in bucket]
                    like = [part_of(p.detach()) for p in parameters]
                    flat = self._result(started, sum(x.size for x in like)).to(like[0].dtype)
                    parts = unflattened(flat, like)
                    for place, p, g in zip(bucket, parameters, parts, strict=True):
                        if p.requires_grad and used[place]:
                            p.grad = laid_as(g.detach() if self._views else g.clone(), p, gradient=True)
                            changed.append(p)
        finally:
            self.drop()
        return changed

    def drop(self) -> None:
        """Forget the gradients of a ``backward`` that has failed."""
        self._arrived.clear()
        self._started.clear()
        self.present = None

    def shadow(self, present: Tensor | None) -> None:
        """Take part in the averages of other ranks' ``backward``, by zeros, and keep nothing of them."""
        self.note_new()
        self.present = present
        try:
            with no_grad():
                self._arrived |= {k: zeros_like(part_of(p.detach())) for k, p in enumerate(self._parameters)}
                while len(self._started) < len(self._buckets):
                    self._start(len(self._started))
                if self._find_unused:
                    self._used([0] * len(self._parameters))
                for started in self._started:
                    tensor_of(started.wait() if isinstance(started, Work) else started)
        finally:
            self.drop()

    def _is_full(self, number: int) -> bool:
        return number < len(self._buckets) and all(
            k in self._arrived or not self._parameters[k].requires_grad for k in self._buckets[number]
        )

    def _start(self, number: int) -> None:
        """Start the collective of a bucket: beside the program, or as a node of what is captured."""
        group, label = self.group, f"gradients of {self.label}, bucket {number}"
        flat = flattened([self._gradient(k) for k in self._buckets[number]])
        reduction = "average" if self.present is None else "sum"
        if self._dtype is not None and flat.dtype.is_floating:
            flat = flat.to(self._dtype)
        if self.hook is not None:
            self._started.append(self._hooked(self.hook, number, flat, label))
        elif active_tracer() is None:
            average = lambda: functional.all_reduce(flat, reduction, group, label=label)  # noqa: E731
            self._started.append(group.queue(average, tensors=[flat]))
        else:
            self._started.append(functional.all_reduce(flat, reduction, group, label=label))

    def _hooked(
        self, hook: tuple[CommHook, Any], number: int, flat: Tensor, label: str
    ) -> Future | Work | Tensor:
        """Return what the hook makes of a bucket, of which it has a copy to write into."""
        parameters = [self._parameters[k] for k in self._buckets[number]]
        parts = [part_of(p.detach()) for p in parameters]
        bucket = GradBucket(
            number, flat.clone() if len(parts) == 1 else flat, parameters, parts,
            number == len(self._buckets) - 1, self.group, label,
        )  # fmt: skip
        function, state = hook
        result = function(state, bucket)
        return result.get_future() if isinstance(result, Work) else result

    def _result(self, started: Future | Work | Tensor, size: int) -> Tensor:
        """Return the average of a bucket, once it is there. Raises ``ArgumentError`` for what is none."""
        x = finished(started) if isinstance(started, Work) else tensor_of(started)
        if not isinstance(x, Tensor) or x.size != size:
            got = f"a tensor of {x.size}" if isinstance(x, Tensor) else repr(x)
            raise ArgumentError(
                f"register_comm_hook: the hook returns the average of bucket.buffer(), a tensor of {size}"
                f" elements or the future of one, got {got}."
            )
        if self.present is not None and self.hook is None:
            x = x / self.present.to(x.device)
        return reshape(x, (size,))

    def _gradient(self, place: int) -> Tensor:
        arrived = self._arrived.get(place)
        if arrived is not None:
            return arrived
        known = self._parameters[place].grad
        return zeros_like(part_of(self._parameters[place].detach())) if known is None else part_of(known)

    def _used_anywhere(self) -> list[bool]:
        """Return of each parameter whether any rank had a gradient of it."""
        if not self._find_unused:
            return [True] * len(self._parameters)
        return self._used(
            [int(k in self._arrived or p.grad is not None) for k, p in enumerate(self._parameters)]
        )

    def _used(self, here: list[int]) -> list[bool]:
        device = part_of(self._parameters[0]).device
        label = f"which are used of {self.label}"
        used = functional.all_reduce(asarray(here, device=device), "max", self.group, label=label)
        return [bool(x) for x in used.tolist()]

    def _listed(self, places: Sequence[int]) -> str:
        names = ", ".join(repr(self._names[k]) for k in places[:8])
        return names if len(places) <= 8 else f"{names} and {len(places) - 8} more"
