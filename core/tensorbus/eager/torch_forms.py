"""Functions and methods in the forms that PyTorch has them, each one expression of this library's own.

Imported when one of them is first looked up; ``compat/torch_names.py`` lists which. What is only another
name of a function stands there as an alias.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..autograd.views import is_in_order
from ..dtypes import definition as dt
from ..dtypes.definition import DType, Scalar
from ..errors import ShapeError
from ..ops.call_errors import with_form
from ..ops.creation import creation
from ..ops.definition import Shape, table
from ..ops.elementwise.arithmetic import conj
from ..ops.elementwise.comparison import equal
from ..ops.indexing.take_along_axis import take_along_axis
from ..ops.matmul.matmul import matrix_transpose
from ..ops.movement import tile_roll_split
from ..ops.movement.family import as_shape, normalize_axis
from ..ops.movement.movement import broadcast_to, permute_dims, reshape
from ..ops.ordering.sorting import sort
from ..ops.reduction.reduction import argmax, argmin
from ..ops.reduction.scan import Extremes
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from ..devices.device import Device


def _extreme(name: str, search: Callable[..., Any]) -> Callable[..., Extremes]:
    def function(x: Any, /, axis: int, keepdims: bool = False) -> Extremes:
        if not x.shape:
            indices = search(x, axis)
            return Extremes(+x if x.dtype is not dt.bool_ else x.clone(), indices)
        place = normalize_axis(name, axis, len(x.shape))
        indices = search(x.detach(), axis=place, keepdims=True)
        values = take_along_axis(x, indices, axis=place)
        if keepdims:
            return Extremes(values, indices)
        shape = tuple(n for k, n in enumerate(x.shape) if k != place)
        return Extremes(reshape(values, shape), reshape(indices, shape))

    function.__name__ = function.__qualname__ = name
    return with_form(function)


max_with_indices = _extreme("max_with_indices", argmax)
max_with_indices.__doc__ = """Return the largest elements along ``axis``, and where: of equal ones the first.

    ``max`` of PyTorch with an axis; NaN counts as the largest, and the whole gradient goes to the element
    that the index names.

    >>> import tensorbus as tb
    >>> values, indices = tb.max_with_indices(tb.asarray([[1.0, 3.0], [2.0, 0.0]]), 1)
    >>> values.tolist(), indices.tolist()
    ([3.0, 2.0], [1, 0])
    """
min_with_indices = _extreme("min_with_indices", argmin)
min_with_indices.__doc__ = """Return the smallest elements along ``axis``, and where: of equal ones the first.

    ``min`` of PyTorch with an axis: see ``max_with_indices``.
    """


@with_form
def t(x: Any, /) -> Any:
    """Return the transpose of a matrix, and tensors of fewer axes as they are."""
    if len(x.shape) > 2:
        raise ShapeError(f"t: at most 2 dimensions are possible, got shape {x.shape}; use .mT.")
    return permute_dims(x, tuple(reversed(range(len(x.shape)))))


@with_form
def adjoint(x: Any, /) -> Any:
    """Return the conjugate transpose of the last two axes.

    >>> import tensorbus as tb
    >>> tb.adjoint(tb.asarray([[1j, 2.0]])).tolist()
    [[-1j], [(2-0j)]]
    """
    return conj(matrix_transpose(x))


@with_form
def expand(x: Any, /, *shape: Any) -> Any:
    """Return ``x`` broadcast to ``shape``, given as one tuple or one by one; -1 keeps an axis' length.

    >>> import tensorbus as tb
    >>> tb.ones((2, 1)).expand(-1, 3).shape
    (2, 3)
    """
    wanted = as_shape("expand", shape[0] if len(shape) == 1 else shape)
    lead = len(wanted) - len(x.shape)
    lengths = tuple(x.shape[k - lead] if n == -1 and k >= lead else n for k, n in enumerate(wanted))
    return broadcast_to(x, lengths)


@with_form
def expand_as(x: Any, other: Any, /) -> Any:
    """Return ``x`` broadcast to the shape of ``other``."""
    return broadcast_to(x, other.shape)


@with_form
def unflatten(x: Any, /, axis: int, sizes: Sequence[int]) -> Any:
    """Return ``x`` with ``axis`` in several of lengths ``sizes``, one of which may be -1.

    >>> import tensorbus as tb
    >>> tb.unflatten(tb.ones((2, 6)), 1, (3, -1)).shape
    (2, 3, 2)
    """
    place = normalize_axis("unflatten", axis, len(x.shape))
    lengths = as_shape("unflatten", sizes)
    known = 1
    for n in lengths:
        known *= n if n != -1 else 1
    filled = tuple(x.shape[place] // max(known, 1) if n == -1 else n for n in lengths)
    return reshape(x, (*x.shape[:place], *filled, *x.shape[place + 1 :]))


@with_form
def fliplr(x: Any, /) -> Any:
    """Return ``x`` backwards along axis 1."""
    return table["flip"](x, axis=1)


@with_form
def flipud(x: Any, /) -> Any:
    """Return ``x`` backwards along axis 0."""
    return table["flip"](x, axis=0)


@with_form
def msort(x: Any, /) -> Any:
    """Return ``x`` sorted along its first axis."""
    return sort(x, axis=0)


@with_form
def take_along_dim(x: Any, indices: Any, /, axis: int | None = None) -> Any:
    """Return ``take_along_axis``; without an axis, of both flattened."""
    if axis is None:
        return take_along_axis(reshape(x, (-1,)), reshape(indices, (-1,)), axis=0)
    return take_along_axis(x, indices, axis=axis)


take_along_dim = with_form(take_along_dim)


@with_form
def isposinf(x: Any, /) -> Any:
    """Return where ``x`` is positive infinity."""
    return equal(x, float("inf")) if x.dtype.is_floating else creation.zeros_like(x, dtype=dt.bool_)


@with_form
def isneginf(x: Any, /) -> Any:
    """Return where ``x`` is negative infinity."""
    return equal(x, float("-inf")) if x.dtype.is_floating else creation.zeros_like(x, dtype=dt.bool_)


@with_form
def numel(x: Tensor, /) -> int:
    """Return the number of elements."""
    return int(x.size)


def is_tensor(x: object, /) -> bool:
    """Return whether ``x`` is a tensor."""
    return isinstance(x, Tensor)


@with_form
def is_complex(x: Tensor, /) -> bool:
    """Return whether the dtype is complex."""
    return x.dtype.is_complex


@with_form
def is_floating_point(x: Tensor, /) -> bool:
    """Return whether the dtype is a real floating-point one."""
    return x.dtype.is_floating


@with_form
def dim(x: Tensor, /) -> int:
    """Return the number of axes."""
    return x.ndim


@with_form
def element_size(x: Tensor, /) -> int:
    """Return the number of bytes of an element."""
    return x.dtype.itemsize


@with_form
def get_device(x: Tensor, /) -> int:
    """Return the number of the device among those of its type."""
    return x.device.index


@with_form
def contiguous(x: Tensor, /) -> Tensor:
    """Return the tensor, or a copy of a view whose elements lie in another order than the C order."""
    return x if is_in_order(x) else x.clone()


@with_form
def is_contiguous(x: Tensor, /) -> bool:
    """Return whether the elements lie in C order: those of a view as its base and its op have it."""
    return is_in_order(x)


@with_form
def cpu(x: Tensor, /) -> Tensor:
    """Return the tensor on the cpu."""
    return x.to("cpu")


@with_form
def cuda(x: Tensor, /, device: Device | str | int | None = None) -> Tensor:
    """Return the tensor on a cuda device, the first if none is named."""
    return x.to(f"cuda:{device}" if isinstance(device, int) else device or "cuda")


@with_form
def type_as(x: Tensor, other: Tensor, /) -> Tensor:
    """Return the tensor in the dtype and on the device of ``other``."""
    return x.to(other.device, other.dtype)


@with_form
def type(x: Tensor, /, dtype: DType | str) -> Tensor:
    """Return the tensor in another dtype."""
    return x.to(dtype)


@with_form
def tile(x: Tensor, /, *repetitions: Any) -> Any:
    """Return the tensor beside itself, as often as ``repetitions`` says, one tuple or one by one.

    >>> import tensorbus as tb
    >>> tb.asarray([1, 2]).tile(2, 2).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    single = len(repetitions) == 1 and not hasattr(repetitions[0], "__index__")
    return tile_roll_split.tile(x, repetitions[0] if single else repetitions)


@with_form
def view_as(x: Tensor, other: Tensor, /) -> Any:
    """Return the tensor in the shape of ``other``."""
    return reshape(x, other.shape)


def _new(name: str, value: Scalar) -> Callable[..., Tensor]:
    def method(
        x: Tensor, /, shape: Any, *more: int, dtype: Any = None, device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        lengths = as_shape(name, (shape, *more) if more else shape)
        return new_full(x, lengths, value, dtype=dtype, device=device, requires_grad=requires_grad)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Return a tensor of a shape, in the dtype and on the device of ``x``, full of {value}."
    return with_form(method)


@with_form
def new_full(
    x: Tensor, /, shape: Shape, fill_value: Scalar, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return a tensor of ``shape`` full of a number, in the dtype and on the device of ``x``."""
    lengths = as_shape("new_full", shape)
    if x._vtype.cell is not None and lengths == x.shape:
        return creation.full_like(x, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)
    filled = creation.full(
        lengths, fill_value, dtype=x.dtype if dtype is None else dtype,
        device=x.device if device is None else device,
    )  # fmt: skip
    return creation.asked(filled, requires_grad)


@with_form
def new_tensor(
    x: Tensor, /, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return host data as a tensor, in the dtype and on the device of ``x``."""
    from ..interchange.host_array import asarray

    copied = asarray(
        data, dtype=x.dtype if dtype is None else dtype, device=x.device if device is None else device,
        copy=True,
    )  # fmt: skip
    return creation.asked(copied, requires_grad)


new_zeros, new_ones, new_empty = _new("new_zeros", 0), _new("new_ones", 1), _new("new_empty", 0)


def _cast_method(name: str, dtype: DType) -> Callable[[Tensor], Tensor]:
    def method(x: Tensor, /) -> Tensor:
        return x.to(dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Return the tensor in {dtype.name}."
    return method


CASTS: Final = {
    "bfloat16": dt.bfloat16, "bool": dt.bool_, "byte": dt.uint8, "cdouble": dt.complex128,
    "cfloat": dt.complex64, "char": dt.int8, "double": dt.float64, "float": dt.float32, "half": dt.float16,
    "int": dt.int32, "long": dt.int64, "short": dt.int16,
}  # fmt: skip
"""Methods that cast, by their names in PyTorch."""
METHODS: Final = {name: _cast_method(name, dtype) for name, dtype in CASTS.items()}
"""Methods whose names mean something else in this module."""
