"""``x.view``: PyTorch's name for another shape, or for complex numbers as pairs of real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ...errors import DtypeError, ShapeError
from ..definition import Shape
from ..elementwise.complex import view_as_complex, view_as_real
from .movement import reshape

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


def view(x: Tensor, /, shape_or_dtype: Shape | DType | type) -> Any:
    """Return ``x`` in another shape, or its numbers in another dtype without changing their bits.

    Another shape is a view where the elements lie in its order, else a copy. Complex numbers become real ones
    along a last axis of twice the length, and back. Raises ``DtypeError`` for any other pair of dtypes.

    >>> import tensorbus as tb
    >>> tb.asarray([1 + 2j, 3 + 4j]).view(tb.float32).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    if not isinstance(shape_or_dtype, (DType, type)):
        return reshape(x, shape_or_dtype)
    target = dt.dtype(shape_or_dtype)
    if target is x.dtype:
        return x.clone()
    if not x.shape:
        raise ShapeError(
            f"view: a tensor without axes has no last one to see as {target}; reshape it to (1,)."
        )
    *rest, length = x.shape
    if x.dtype.is_complex and target is dt.real_of(x.dtype):
        return reshape(view_as_real(x), (*rest, 2 * length))
    if target.is_complex and x.dtype is dt.real_of(target) and length % 2 == 0:
        return view_as_complex(reshape(x, (*rest, length // 2, 2)))
    raise DtypeError(
        f"view: {x.dtype}{list(x.shape)} is not seen as {target}: complex numbers are seen as their parts, an"
        f" even number of parts as complex numbers. Bits of other dtypes can be seen in host memory alone:"
        f" asarray(x.numpy().view(...)). .to({target.name!r}) converts the numbers, which is something else."
    )
