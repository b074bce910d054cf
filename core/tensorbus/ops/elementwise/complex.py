"""Complex numbers by their angle, from polar coordinates, and as pairs of real numbers.

Gradients follow PyTorch: the gradient of a real value with respect to a complex ``z`` is its derivative by
the real part plus ``1j`` times that by the imaginary part.
"""

from __future__ import annotations

import math
from typing import Any

from ...dtypes.definition import FLOATING
from ...errors import DtypeError, ShapeError
from ..call_errors import with_form
from ..definition import Shape, Strides, table
from ..movement.movement import stack
from .arithmetic import complex, imag, real
from .comparison import less, not_equal
from .family import elementwise
from .transcendental import atan2, cos, sin
from .where_cast import tensors, where


@with_form
def angle(x: Any, /) -> Any:
    """Return the angle of each number in the complex plane, in ``[-pi, pi]``; of a real one 0 or pi.

    >>> import tensorbus as tb
    >>> tb.angle(tb.asarray([1j, -1.0])).tolist()
    [1.5707963705062866, 3.1415927410125732]
    """
    return atan2(imag(x), real(x)) if x.dtype.is_complex else _angle(x)


_angle = elementwise(
    "angle", dtypes=FLOATING, vjp=lambda g: (None,),
    decompose=lambda x: where(not_equal(x, x), x, where(less(x, 0), *tensors(x, math.pi, 0.0)[1:])),
    doc="0, or pi for a negative number; NaN stays NaN.",
)  # fmt: skip


@with_form
def polar(absolute: Any, angle: Any, /) -> Any:
    """Return the complex number of a magnitude and an angle.

    >>> import tensorbus as tb
    >>> tb.polar(tb.asarray(2.0), tb.asarray(0.0)).item()
    (2+0j)
    """
    absolute, angle = tensors(absolute, angle)
    return complex(absolute * cos(angle), absolute * sin(angle))


def _pair_strides(strides: Strides, own: Shape, /) -> Strides:
    """Return the strides of pairs of parts, in parts, for those of complex numbers."""
    return (*[2 * stride for stride in strides], 1)


def _number_strides(strides: Strides, own: Shape, /) -> Strides | None:
    """Return the strides of complex numbers for those of their parts; None where parts do not lie so."""
    *outer, inner = strides
    if inner != 1 or any(stride % 2 for stride in outer):
        return None
    return tuple([stride // 2 for stride in outer])


@with_form
def view_as_real(x: Any, /) -> Any:
    """Return real and imaginary parts along a new last axis of length 2, as a view.

    Raises ``DtypeError`` for a real tensor.
    """
    if not x.dtype.is_complex:
        raise DtypeError(f"view_as_real: a complex tensor is needed, got {x.dtype}.")
    parts = stack([real(x), imag(x)], axis=-1)
    return table.link_as(parts, x, "view_as_real", view_as_real, view_as_complex, _pair_strides)


@with_form
def view_as_complex(x: Any, /) -> Any:
    """Return the complex numbers whose parts lie along the last axis, of length 2, as a view.

    Raises ``ShapeError`` for any other length.

    >>> import tensorbus as tb
    >>> tb.view_as_complex(tb.asarray([[1.0, 2.0]])).tolist()
    [(1+2j)]
    """
    if not x.shape or x.shape[-1] != 2:
        raise ShapeError(f"view_as_complex: the last axis must have length 2, got shape {x.shape}.")
    numbers = complex(x[..., 0], x[..., 1])
    return table.link_as(numbers, x, "view_as_complex", view_as_complex, view_as_real, _number_strides)
