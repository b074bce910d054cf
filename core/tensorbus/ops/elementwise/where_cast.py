"""Casting to another dtype, and choosing between two tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dtypes import definition as dt
from ...dtypes.definition import ALL, DType
from ...dtypes.promotion import common_dtype
from ...errors import DtypeError
from .. import sharding_rules
from ..batching_rules import aligned, unchanged
from ..definition import Op, Spec, table
from .family import Operand, broadcast_shapes


def _cast_arguments(x: Operand, /, dtype: DType | str) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x,), {"dtype": dt.dtype(dtype)}


def _cast_infer(specs: tuple[Spec, ...], *, dtype: DType) -> Spec:
    if specs[0].dtype.is_complex and not dtype.is_complex and dtype is not dt.bool_:
        raise DtypeError(f"cast: {specs[0].dtype} does not fit in {dtype}; take .real or abs() first.")
    return Spec(specs[0].shape, dtype)


cast = table.add(
    Op(
        name="cast",
        family="cast",
        operands=("x",),
        arguments=_cast_arguments,
        infer=_cast_infer,
        vjp=lambda g: (g,),
        jvp="linear",
        batch=unchanged("cast"),
        shard=sharding_rules.cast,
        dtypes=ALL,
        cost="light",
        recompute=True,
        memoize=True,
        broadcasts=True,
        doc="``x`` with another dtype. Floats become integers by truncation, saturating; NaN gives 0.",
    )
)


def widened(x: Any) -> Any:
    """Return ``x`` in float32 where its own dtype has too few bits to add up many elements."""
    return cast(x, dt.float32) if getattr(x, "dtype", None) in dt.NARROW else x


def narrowed(x: Any, dtype: DType) -> Any:
    """Return a result that was computed on a ``widened`` operand of ``dtype`` in that dtype."""
    return cast(x, dtype) if dtype in dt.NARROW else x


def wide(decompose: Callable[..., Any]) -> Callable[..., Any]:
    """Make a decomposition compute narrow dtypes in float32, rounding once at the end."""

    def decomposition(*xs: Any) -> Any:
        dtype: DType = next(x.dtype for x in xs if hasattr(x, "dtype"))
        return narrowed(decompose(*map(widened, xs)), dtype)

    return decomposition


def tensors(*xs: Any) -> list[Any]:
    """Return operands as tensors: numbers among them take the dtype and device of the first tensor."""
    like = next(x for x in xs if hasattr(x, "dtype"))
    full = table.function("full")
    return [x if hasattr(x, "dtype") else full((), x, dtype=like.dtype, device=like.device) for x in xs]


def _where_compute(dtypes: tuple[DType | type, ...]) -> tuple[DType, ...]:
    if dtypes[0] is not dt.bool_ and dtypes[0] is not bool:
        raise DtypeError(f"where: the condition must be bool, got {dtypes[0]}; compare it with something.")
    common = common_dtype(dtypes[1:])
    return (dt.bool_, common, common)


def _where_infer(specs: tuple[Spec, ...]) -> Spec:
    return Spec(broadcast_shapes(*(s.shape for s in specs)), specs[1].dtype)


def _where_arguments(
    condition: Operand, x: Operand, y: Operand, /
) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (condition, x, y), {}


where: Op[...] = table.add(
    Op(
        name="where",
        family="elementwise",
        operands=("condition", "x", "y"),
        arguments=_where_arguments,
        infer=_where_infer,
        compute=_where_compute,
        batch=aligned("where"),
        shard=sharding_rules.elementwise(),
        vjp=lambda g, condition: (None, where(condition, g, 0), where(condition, 0, g)),
        jvp="linear",
        dtypes=ALL,
        cost="light",
        recompute=True,
        broadcasts=True,
        doc="``x`` where ``condition`` is true, ``y`` elsewhere.",
    )
)
