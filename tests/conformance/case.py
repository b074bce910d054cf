"""What a test of one op is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from tensorbus.dtypes import DType

from samples import Array

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """Operands as host arrays, and attributes."""

    operands: tuple[Array, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An op's reference and what to try it on.

    ``samples(draw, dtype)`` draws operands and attributes. ``reference(*operands, **attrs)`` takes floats in
    float64 and complex numbers in complex128. ``ulps`` is the error allowed in units in the last place of the
    result, or of what ``scale(*operands, **attrs)`` says where a sum or a difference loses digits. ``result``
    is the dtype rule. ``call`` runs the op; without it, its function is called with the operands and the
    attributes. ``exact`` asks for the same bits.
    """

    samples: Callable[[Draw, DType], Sample]
    reference: Callable[..., Any]
    result: Callable[[DType], DType] = lambda d: d
    ulps: float = 0.0
    scale: Callable[..., Any] | None = None
    call: Callable[..., Any] | None = None
    dtypes: tuple[DType, ...] | None = None
    exact: bool = False
