"""Connectionist temporal classification: the likelihood of labels whose places in time nobody knows.

Names, arguments and values are PyTorch's. The derivative is that by the log probabilities as such; through
``log_softmax`` it is the same as PyTorch's, whose formula has the softmax in it already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ...dtypes.definition import int64
from ...errors import ArgumentError, DtypeError, ShapeError
from ..call_errors import with_form
from ..creation.creation import full, iota
from ..elementwise.activation import logaddexp
from ..elementwise.arithmetic import maximum
from ..elementwise.where_cast import cast, narrowed, where, widened
from ..indexing.gather_scatter import gather
from ..indexing.take_along_axis import take_along_axis
from ..movement.movement import broadcast_to, concat, reshape, stack
from ..reduction.reduction import max as largest
from .loss import Reduction, reduced

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

_NEVER: Final = -1e30
"""The logarithm of no chance: finite, so that differences of two of them are numbers."""
_FLOOR: Final = -1e20
"""Where log probabilities end; whatever way takes one of these has no chance."""


@with_form
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: Reduction = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Return the negative log likelihood of label sequences (Graves, Fernandez, Gomez, Schmidhuber 2006).

    ``log_probs`` is ``(time, batch, classes)`` or ``(time, classes)``; ``targets`` is ``(batch, longest)``,
    or all sequences in a row. Lengths are integers, a sequence of them, or a tensor, which is not read back
    to be checked. The mean is over the batch, after each loss is divided by its target's length. What cannot
    be aligned is infinite, or 0 with ``zero_infinity``. Raises ``ShapeError``, ``ArgumentError`` or
    ``DtypeError`` for arguments that do not fit.

    >>> import tensorbus as tb
    >>> even = tb.nn.functional.log_softmax(tb.zeros((3, 1, 2)), 2)  # three steps, blank and one label
    >>> loss = tb.nn.functional.ctc_loss(even, tb.asarray([[1]]), [3], [1])
    >>> round((-loss).exp().item() * 8)  # of 8 ways, those of one run of labels
    6
    """
    alone = len(log_probs.shape) == 2
    if len(log_probs.shape) not in (2, 3):
        raise ShapeError(f"ctc_loss: log_probs is (time, [batch,] classes), got shape {log_probs.shape}.")
    if not log_probs.dtype.is_floating or not targets.dtype.is_integer:
        raise DtypeError(
            f"ctc_loss: floats and integer targets are needed, got {log_probs.dtype} and {targets.dtype}."
        )
    steps, classes = log_probs.shape[0], log_probs.shape[-1]
    if steps < 1 or not 0 <= blank < classes:
        raise ArgumentError(
            f"ctc_loss: blank must be in [0, {classes}) and time >= 1, got {blank!r}, {steps}."
        )
    count = 1 if alone else log_probs.shape[1]
    logs = maximum(widened(reshape(log_probs, (steps, count, classes))), _FLOOR)
    times = _lengths("input_lengths", input_lengths, count, steps, log_probs)
    labels, sizes = _labels(targets, target_lengths, count, alone, log_probs)
    losses = _losses(logs, labels, times, sizes, blank)
    losses = where(losses > -_FLOOR / 10, 0.0 if zero_infinity else float("inf"), losses)
    if reduction == "mean":
        losses = losses / cast(maximum(sizes, 1), losses.dtype)
    out = reduced("ctc_loss", reshape(losses, ()) if alone else losses, reduction)
    result: Tensor = narrowed(out, log_probs.dtype)
    return result


def _lengths(name: str, sizes: Any, count: int, limit: int, like: Tensor) -> Tensor:
    """Return a length for each of the batch, as a tensor."""
    if not hasattr(sizes, "dtype"):
        numbers = [sizes] * count if isinstance(sizes, int) else list(sizes)
        if any(not isinstance(n, int) or not 0 <= n <= limit for n in numbers):
            raise ArgumentError(f"ctc_loss: {name} must be integers in [0, {limit}], got {sizes!r}.")
        sizes = like.tensor_like_device(numbers)
    if not sizes.dtype.is_integer or sizes.size != count:
        raise ShapeError(f"ctc_loss: {name} needs {count} integers, got {sizes.dtype}{list(sizes.shape)}.")
    return cast(reshape(sizes, (count,)), int64)


def _labels(targets: Tensor, lengths: Any, count: int, alone: bool, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the labels as ``(batch, longest)``, and the number of labels of each."""
    if len(targets.shape) == 2 and not alone:
        if targets.shape[0] != count:
            raise ShapeError(f"ctc_loss: targets for {count} inputs are needed, got shape {targets.shape}.")
        longest = targets.shape[1]
        return cast(targets, int64), _lengths("target_lengths", lengths, count, longest, like)
    if len(targets.shape) != 1:
        raise ShapeError(f"ctc_loss: targets are (batch, longest) or (all,), got shape {targets.shape}.")
    if alone:
        length = _lengths("target_lengths", lengths, 1, targets.shape[0], like)
        return reshape(cast(targets, int64), (1, targets.shape[0])), length
    listed = lengths.tolist() if hasattr(lengths, "dtype") else _several(lengths, count)
    numbers = [int(n) for n in listed]
    sizes = _lengths("target_lengths", numbers, count, targets.shape[0], like)
    starts = [0]
    for n in numbers:
        starts.append(starts[-1] + n)
    if starts[-1] != targets.shape[0]:
        raise ShapeError(f"ctc_loss: target_lengths add up to {starts[-1]}, targets have {targets.shape[0]}.")
    longest = max(numbers, default=0)
    if not longest:
        return full((count, 0), 0, dtype=int64, device=like.device), sizes
    places = [
        [start + (j if j < n else 0) for j in range(longest)]
        for start, n in zip(starts[:-1], numbers, strict=True)
    ]
    places = [[at if at < starts[-1] else 0 for at in row] for row in places]
    return gather(cast(targets, int64), like.tensor_like_device(places)), sizes


def _several(lengths: Any, count: int) -> Sequence[int]:
    return [lengths] * count if isinstance(lengths, int) else lengths


def _losses(logs: Tensor, labels: Tensor, times: Tensor, sizes: Tensor, blank: int) -> Any:
    """Return the loss of each of the batch: ``alpha``, summed step by step over blanks and labels."""
    (steps, count, _), longest = logs.shape, labels.shape[1]

    def column(x: Any) -> Any:
        return reshape(x, (count, 1))

    labels = where(iota(longest, device=logs.device) < column(sizes), labels, blank)
    gaps = full((count, longest + 1), blank, dtype=int64, device=logs.device)
    pairs = reshape(stack([gaps[:, :longest], labels], axis=2), (count, 2 * longest))
    states = concat([pairs, gaps[:, longest:]], axis=1)
    places = iota(2 * longest + 1, device=logs.device)
    leaps = (states != blank) & (states != _shifted(states, 2, blank)) & (places >= 2)
    every = broadcast_to(reshape(states, (1, *states.shape)), (steps, *states.shape))
    chances = take_along_axis(logs, every, axis=2)
    alpha: Any = None
    for step, chance in enumerate(chances):
        if alpha is None:
            alpha = where(places < 2, chance, _NEVER)
            continue
        leapt = where(leaps, _shifted(alpha, 2, _NEVER), _NEVER)
        came = logaddexp(logaddexp(alpha, _shifted(alpha, 1, _NEVER)), leapt) + chance
        alpha = where(step < column(times), came, alpha)
    last = [largest(where(places == column(2 * sizes - k), alpha, _NEVER), axis=1) for k in (0, 1)]
    total = logaddexp(*last)
    return where(times == 0, where(sizes == 0, 0.0, -_NEVER), -total)


def _shifted(x: Any, by: int, filling: float) -> Any:
    """Return rows moved to the right, and ``filling`` where nothing comes from."""
    width = x.shape[1]
    left = full((x.shape[0], min(by, width)), filling, dtype=x.dtype, device=x.device)
    return concat([left, x[:, : max(width - by, 0)]], axis=1)
