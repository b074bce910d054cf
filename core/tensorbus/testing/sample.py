"""Sample calls: what an op is tested with, as data that needs no array library.

The samples of core's ops lie in ``testing/samples``; the op of a plugin may bring its own. The conformance
kit makes the tensors, for every dtype of the op on every device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..dtypes.definition import DType, Scalar

if TYPE_CHECKING:
    from ..ops.definition import Op, Shape

NAN: Final = float("nan")
INF: Final = float("inf")
EDGES: Final[tuple[Scalar, ...]] = (
    0.0, -0.0, 1, -1, 0.5, -0.5, 2, 3, -3, 100, -100, INF, -INF, NAN, 127, -128, 255, 32767, -32768, 65535,
    2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1, 1j, -1 - 1j,
)  # fmt: skip
"""Values at which definitions differ: zeros, infinities, NaN, the ends of integers. No dtype has them all."""

INTEGER_LIMITS: Final[tuple[Scalar, ...]] = (
    127, 2**31 - 1, 2**32 - 1, 1, 2**63 - 1, 2**64 - 1, 2, -(2**63), 2**63, -(2**31), 255, 0,
)  # fmt: skip
"""Integers at the ends of what dtypes hold, the larger half of unsigned ones among them, not in order."""

LARGE_SHAPE: Final = (300, 500)
"""The shape of large sample calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """A tensor of a sample call. ``dtype`` None is the dtype under test.

    Elements are drawn between ``low`` and ``high``, both included (by default what suits the dtype; for
    complex ones both parts), all different where ``distinct``; or they are ``values``, repeated in C order,
    those left out that the dtype lacks. Beyond 0-dimensional shapes ``matrix`` makes the last two axes
    ``"symmetric"`` (of complex dtypes: Hermitian), ``"definite"`` (and all eigenvalues at least 1),
    ``"regular"`` (far from singular), ``"lower"`` or ``"upper"`` (triangular, and regular).
    """

    shape: Shape
    dtype: DType | None = None
    low: float | None = None
    high: float | None = None
    values: tuple[Scalar, ...] = ()
    distinct: bool = False
    matrix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One call: positional arguments, with a ``Fill`` where a tensor stands (also in lists), and keywords.

    A ``dtype`` of ``...`` among the keywords stands for the dtype under test. ``raises`` is the error that a
    bad call must end in. ``smooth`` is False where the operands lie at places without a derivative, or beyond
    the domain, so that gradients are not compared there. ``dtypes`` are those that the call is meant for;
    None for all of the op's. Of a ``large`` one, which devices may have other kernels for, only the value is
    checked. ``note`` says what is special about it.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    raises: type[Exception] | None = None
    smooth: bool = True
    dtypes: tuple[DType, ...] | None = None
    large: bool = False
    note: str = ""


def samples_of(op: Op[...]) -> tuple[Sample, ...]:
    """Return the sample calls of ``op``: its own, else those of ``testing.samples`` by its name or family.

    An op that nobody wrote samples for has none: ``()``.
    """
    if op.samples is not None:
        return tuple(op.samples())
    from .samples import maker_of

    make = maker_of(op)
    return tuple(make()) if make is not None else ()
