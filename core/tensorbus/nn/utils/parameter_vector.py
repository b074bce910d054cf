"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ...autograd.engine import no_grad
from ...errors import ShapeError
from ...ops.movement.movement import concat, reshape
from ...tensor.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return all elements of tensors of one device as one vector, in order; gradients flow through.

    Raises ``ShapeError`` where there is none.

    >>> import tensorbus as tb
    >>> tb.nn.utils.parameters_to_vector(tb.nn.Linear(2, 3).parameters()).shape
    (9,)
    """
    flat = [reshape(x, (-1,)) for x in parameters]
    if not flat:
        raise ShapeError("parameters_to_vector: there is no parameter.")
    return concat(flat, axis=0)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make tensors hold the elements of ``vec``, in order, each in its dtype; no history is recorded.

    Raises ``ShapeError`` unless ``vec`` is a vector of as many elements, and then has changed nothing.
    """
    tensors = list(parameters)
    count = sum(x.size for x in tensors)
    if vec.shape != (count,):
        raise ShapeError(
            f"vector_to_parameters: the parameters have {count} elements, got a tensor of shape {vec.shape}."
        )
    with no_grad():
        start, parts = 0, []
        for x in tensors:
            parts.append(reshape(vec[start : start + x.size], x.shape).to(x.dtype))
            start += x.size
        for x, part in zip(tensors, parts, strict=True):
            x.rebind(part, by="vector_to_parameters")
