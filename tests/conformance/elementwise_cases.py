"""What is drawn for elementwise ops: shapes that broadcast, and any numbers that an op is defined for."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType
from tensorbus.ops import lazy_families
from tensorbus.ops.definition import table

from case import Case, Draw, Sample
from samples import Kind, arrays, broadcastable

lazy_families.load_all()
KINDS: dict[str, Kind | tuple[Kind, ...]] = {
    "sin": "moderate", "cos": "moderate", "tan": "moderate", "gelu_erf": "moderate", "gelu_tanh": "moderate",
    "mish": "moderate", "silu": "finite", "hardswish": "finite", "softsign": "finite", "sinc": "near",
    "erfinv": "unit", "logit": "unit", "bernoulli_loss": "chance", "elu": ("any", "moderate"),
    "celu": ("any", "positive"), "softshrink": ("any", "positive"), "leaky_relu": ("finite", "moderate"),
    "lerp": "near",
}  # fmt: skip
"""Which numbers the operands of an op are, where it is not ``any``."""


def case(arity: int, kinds: Kind | tuple[Kind, ...] = "any") -> Case:
    """Make the case of an op of ``arity`` operands of one dtype whose shapes broadcast."""
    each = (kinds,) * arity if isinstance(kinds, str) else kinds

    def samples(draw: Draw, dtype: DType) -> Sample:
        result = draw(broadcastable(arity))
        return Sample(tuple(draw(arrays(s, dtype, k)) for s, k in zip(result, each, strict=True)))

    return Case(samples=samples)


def _shift_samples(draw: Draw, dtype: DType) -> Sample:
    result = draw(broadcastable(2))
    y = draw(arrays(result[1], dtype))
    return Sample((draw(arrays(result[0], dtype)), np.where(y < 0, 5, y).astype(y.dtype)))


def _where_samples(draw: Draw, dtype: DType) -> Sample:
    result = draw(broadcastable(3))
    return Sample((draw(arrays(result[0], dt.bool_)), *(draw(arrays(s, dtype)) for s in result[1:])))


def _cast_samples(draw: Draw, dtype: DType) -> Sample:
    (result,) = draw(broadcastable(1))
    targets = [d for d in dt.ALL if d.is_complex or d is dt.bool_ or not dtype.is_complex]
    return Sample((draw(arrays(result, dtype)),), args=(draw(st.sampled_from(targets)),))


def _power_samples(draw: Draw, dtype: DType) -> Sample:
    first, second = draw(broadcastable(2))
    x = draw(arrays(first, dtype, "any" if dtype.is_integer else "positive"))
    y = draw(arrays(second, dtype, "moderate"))
    return Sample((np.where(np.abs(x) < 0.1, 1, x).astype(x.dtype) if dtype.is_complex else x, y))


ELEMENTWISE: dict[str, Case] = {
    **{
        op.name: case(len(op.operands), KINDS.get(op.name, "any"))
        for op in table
        if op.family == "elementwise" and table.owner(op.name) == "tensorbus"
    },
    "bitwise_left_shift": Case(samples=_shift_samples),
    "bitwise_right_shift": Case(samples=_shift_samples),
    "where": Case(samples=_where_samples),
    "power": Case(samples=_power_samples),
    "cast": Case(samples=_cast_samples),
}
