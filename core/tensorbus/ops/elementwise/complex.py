"""Complex numbers by their angle, from polar coordinates, and as pairs of real numbers.

Gradients follow PyTorch: the gradient of a real value with respect to a complex ``z`` is its derivative by
the real part plus ``1j`` times that by the imaginary part.
"""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import definition as dt
from ...dtypes.definition import COMPLEX, FLOATING
from ...errors import DtypeError, ShapeError
from .. import sharding_rules
from ..batching_rules import unchanged
from ..call_errors import with_form
from ..definition import Op, Shape, Spec, Strides, ViewRule, table
from ..movement.movement import reshape, slice, stack
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
    absolute, angle = [x._apart() for x in tensors(absolute, angle)]
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


def _alone(x: Any, /) -> tuple[tuple[Any], dict[str, Any]]:
    return (x,), {}


def _parts_infer(specs: tuple[Spec, ...]) -> Spec:
    if not specs[0].dtype.is_complex:
        raise DtypeError(f"view_as_real: a complex tensor is needed, got {specs[0].dtype}.")
    return Spec((*specs[0].shape, 2), dt.real_of(specs[0].dtype))


def _numbers_infer(specs: tuple[Spec, ...]) -> Spec:
    shape = specs[0].shape
    if not shape or shape[-1] != 2:
        raise ShapeError(f"view_as_complex: the last axis must have length 2, got shape {shape}.")
    return Spec(shape[:-1], dt.complex_of(specs[0].dtype))


def _part(x: Any, place: int) -> Any:
    lead = x.shape[:-1]
    none, one = (0,) * len(lead), (1,) * len(x.shape)
    return reshape(slice(x, (*none, place), (*lead, 1), one), lead)


def _from_parts(base: Any, value: Any, own: Shape) -> Any:
    return _view_as_complex(value)


def _into_parts(base: Any, value: Any, own: Shape) -> Any:
    return _view_as_real(value)


_view_as_real: Op[...] = table.add(
    Op(
        name="view_as_real", family="movement", operands=("x",), arguments=_alone,
        dtypes=COMPLEX, infer=_parts_infer, decompose=lambda x: stack([real(x), imag(x)], axis=-1),
        vjp=lambda g: (_view_as_complex(g),), jvp="linear", batch=unchanged("view_as_real"),
        shard=sharding_rules.batched(0), cost="light", recompute=True, method=False,
        view=ViewRule(put=_from_parts, strides=_pair_strides),
        doc="Real and imaginary parts along a new last axis of length 2, as a view.",
    )
)  # fmt: skip
_view_as_complex: Op[...] = table.add(
    Op(
        name="view_as_complex", family="movement", operands=("x",), arguments=_alone,
        dtypes=(dt.float32, dt.float64), infer=_numbers_infer,
        decompose=lambda x: complex(_part(x, 0), _part(x, 1)),
        vjp=lambda g: (_view_as_real(g),), jvp="linear", batch=unchanged("view_as_complex"),
        shard=sharding_rules.batched(1), cost="light", recompute=True, method=False,
        view=ViewRule(put=_into_parts, strides=_number_strides),
        doc="The complex numbers whose parts lie along the last axis, of length 2, as a view.",
    )
)  # fmt: skip


@with_form
def view_as_real(x: Any, /) -> Any:
    """Return real and imaginary parts along a new last axis of length 2, as a view.

    Raises ``DtypeError`` for a real tensor.
    """
    return _view_as_real(x)


@with_form
def view_as_complex(x: Any, /) -> Any:
    """Return the complex numbers whose parts lie along the last axis, of length 2, as a view.

    Raises ``ShapeError`` for any other length.

    >>> import tensorbus as tb
    >>> tb.view_as_complex(tb.asarray([[1.0, 2.0]])).tolist()
    [(1+2j)]
    """
    return _view_as_complex(x)
