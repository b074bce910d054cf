"""``linear_cross_entropy``: the loss of a last layer with many classes, without all of its logits in memory.

Names, arguments and values are PyTorch's. The batch goes through layer and loss in chunks, whose logits are
let go and computed again for the gradient (``checkpoint``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ...errors import ArgumentError, DtypeError, ShapeError
from ...func.checkpoint import checkpoint
from ...ops.call_errors import with_form
from ...ops.elementwise.where_cast import narrowed, widened
from ...ops.matmul.linear import linear
from ...ops.movement.movement import concat, reshape
from ...ops.movement.tile_roll_split import split
from ...ops.nn.loss import Reduction, check_weight, class_factors, cross_entropy, reduced
from ...ops.reduction.reduction import sum
from ...tensor.tensor import Tensor

_UNCHUNKED_MAX_LOGITS = 2**20
"""Logits that are worth no chunk of their own: 4 MB of float32."""


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """The chunks of a batch in ``linear_cross_entropy``: of ``batch_chunk_size`` rows, or by a rule.

    ``chunking_method`` ``"aspect_ratio:N"`` makes the logits of a chunk about as large as 1 / N of the input
    (``"aspect_ratio"``: N is 1); ``"auto"`` is ``"aspect_ratio:2"``, with a million logits or more in a
    chunk; None, without a size, is one chunk. A size counts before ``"auto"``. Raises ``ArgumentError`` for
    anything else, and for a size beside an aspect ratio.

    >>> import tensorbus as tb
    >>> tb.nn.LinearCrossEntropyOptions(batch_chunk_size=512)
    LinearCrossEntropyOptions(batch_chunk_size=512, chunking_method='auto')
    """

    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"

    def __post_init__(self) -> None:
        size, method = self.batch_chunk_size, self.chunking_method
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise ArgumentError(
                f"LinearCrossEntropyOptions: batch_chunk_size must be an integer >= 1 or None, got {size!r}."
            )
        if method not in (None, "auto"):
            if _divisor(method) is None:
                raise ArgumentError(
                    "LinearCrossEntropyOptions: chunking_method must be None, 'auto', 'aspect_ratio' or"
                    f" 'aspect_ratio:N' with an integer N >= 1, got {method!r}."
                )
            if size is not None:
                raise ArgumentError(
                    f"LinearCrossEntropyOptions: give either batch_chunk_size or chunking_method={method!r}."
                )

    def rows(self, batch: int, in_features: int, logits: int) -> int:
        """Return the rows of a chunk, for ``logits`` numbers in a row of logits."""
        if self.batch_chunk_size is not None:
            return self.batch_chunk_size
        if self.chunking_method is None:
            return max(batch, 1)
        auto = self.chunking_method == "auto"
        chunks = -(-logits // in_features) * (2 if auto else _divisor(self.chunking_method) or 1)
        rows = max(-(-batch // chunks), 1)
        return max(rows, -(-_UNCHUNKED_MAX_LOGITS // logits)) if auto else rows


def _divisor(method: Any) -> int | None:
    """Return N of ``"aspect_ratio:N"``, None where it is something else."""
    name, _, factor = method.partition(":") if isinstance(method, str) else ("", "", "")
    factor = "1" if method == name else factor
    return int(factor) if name == "aspect_ratio" and factor.isdecimal() and int(factor) else None


@with_form
def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: Reduction = "mean", ignore_index: int | None = None,
    label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None,
) -> Tensor:  # fmt: skip
    """Return ``cross_entropy(linear(input, linear_weight, linear_bias), target)``, computed in chunks.

    ``input`` is ``(batch, in)`` or ``(in,)``, ``linear_weight`` ``(classes, *space, in)``, ``linear_bias``
    ``(classes, *space)``. ``target`` holds class indices ``(batch, *space)``, or probabilities of the shape
    of the logits, ``(batch, classes, *space)``; without a batch there is no space. The other arguments are
    those of ``cross_entropy``; ``ignore_index`` is -100 where None is given. ``options`` say how large chunks
    are. Weight gradients of 16-bit layers are added up in float32. Raises
    ``ShapeError`` where shapes do not fit, ``DtypeError`` for other targets, ``ArgumentError`` for an
    ``ignore_index`` beside probabilities and for settings out of range.

    >>> import tensorbus as tb
    >>> x, weight, target = tb.ones((4, 3)), tb.zeros((10, 3)), tb.asarray([1, 0, 9, 3])
    >>> round(tb.nn.functional.linear_cross_entropy(x, weight, target).item(), 4)
    2.3026
    """
    name = "linear_cross_entropy"
    input, linear_weight = input._apart(), linear_weight._apart()
    _check(name, input, linear_weight, linear_bias)
    check_weight(name, weight, linear_weight.shape[0])
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"{name}: label_smoothing lies in [0, 1], got {label_smoothing!r}.")
    if not target.dtype.is_floating and not target.dtype.is_integer:
        raise DtypeError(f"{name}: the target holds class indices or probabilities, got {target.dtype}.")
    if not input.shape[:-1]:
        batch, targets = reshape(input, (1, *input.shape)), reshape(target, (1, *target.shape))
    else:
        batch, targets = input, target
    classes, *space = linear_weight.shape[:-1]
    logits_shape = (batch.shape[0], classes, *space)
    if target.dtype.is_floating and ignore_index is not None:
        raise ArgumentError(f"{name}: ignore_index is for class indices, the target holds probabilities.")
    wanted = logits_shape if target.dtype.is_floating else (batch.shape[0], *space)
    if targets.shape != wanted:
        raise ShapeError(
            f"{name}: an input of shape {input.shape} and a linear_weight of shape {linear_weight.shape} need"
            f" a target of shape {wanted[len(batch.shape) - len(input.shape) :]}, got {target.shape}."
        )
    ignored = -100 if ignore_index is None else ignore_index
    numbers = prod(space, start=classes)
    wide_weight = widened(reshape(linear_weight, (numbers, input.shape[-1])))
    wide_bias = None if linear_bias is None else widened(reshape(linear_bias, (numbers,)))

    def losses_of(rows: Tensor, matrix: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
        layer = narrowed(matrix, linear_weight.dtype)
        logits = linear(rows, layer, None if bias is None else narrowed(bias, linear_weight.dtype))
        return cross_entropy(
            reshape(logits, (rows.shape[0], classes, *space)), targets, weight, ignore_index=ignored,
            reduction="none", label_smoothing=label_smoothing,
        )  # fmt: skip

    chunking = LinearCrossEntropyOptions() if options is None else options
    size = chunking.rows(batch.shape[0], input.shape[-1], max(numbers, 1))
    if batch.shape[0] <= size:
        losses = losses_of(batch, wide_weight, wide_bias, targets)
    else:
        pairs = zip(split(batch, size), split(targets, size), strict=True)
        losses = concat([checkpoint(losses_of, x, wide_weight, wide_bias, y) for x, y in pairs])
    if reduction == "none":
        return losses if input.shape[:-1] else reshape(losses, ())
    if target.dtype.is_floating:
        return reduced(name, losses, reduction, losses.size)
    factors, _, _ = class_factors(targets, weight, ignored, losses.dtype)
    return reduced(name, losses, reduction, sum(factors))


def _check(name: str, input: Tensor, matrix: Tensor, bias: Tensor | None) -> None:
    """Raise ``ShapeError`` unless the layer fits the input."""
    if len(input.shape) not in (1, 2):
        raise ShapeError(f"{name}: an input of shape (batch, in) or (in,) is needed, got {input.shape}.")
    if len(matrix.shape) < 2 or matrix.shape[-1] != input.shape[-1]:
        raise ShapeError(
            f"{name}: a linear_weight of shape (classes, *space, {input.shape[-1]}) is needed for an input of"
            f" shape {input.shape}, got {matrix.shape}."
        )
    if len(matrix.shape) > 2 and len(input.shape) == 1:
        raise ShapeError(
            f"{name}: a linear_weight of shape {matrix.shape} has space, which needs an input of shape"
            f" (batch, in), got {input.shape}."
        )
    if bias is not None and bias.shape != matrix.shape[:-1]:
        raise ShapeError(f"{name}: a linear_bias of shape {matrix.shape[:-1]} is needed, got {bias.shape}.")
