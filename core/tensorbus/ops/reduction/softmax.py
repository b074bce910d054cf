"""Ops that normalize along one axis: softmax, its logarithm, and the logarithm of a sum of exponentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dtypes.definition import FLOATING, DType
from .. import sharding_rules
from ..batching_rules import shifted
from ..call_errors import flags, with_form
from ..definition import Op, Spec, table
from ..elementwise.arithmetic import real
from ..elementwise.comparison import equal, isfinite
from ..elementwise.family import Operand, fit
from ..elementwise.transcendental import exp, log
from ..elementwise.where_cast import cast, narrowed, where, widened
from ..movement.family import normalize_axis
from ..movement.movement import reshape
from .reduction import Axis, keep, max, normalize_axes, reduced_shape, sum


def _softmax_arguments(
    x: Operand, /, axis: int = -1, dtype: DType | str | None = None
) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x if dtype is None else cast(x, dtype),), {"axis": axis}


def _along(
    name: str,
    *,
    decompose: Callable[..., Any],
    vjp: Callable[..., tuple[Any, ...]],
    jvp: Callable[..., Any],
    doc: str,
) -> Op[...]:
    """Define an op that normalizes along one axis and keeps the shape."""
    return table.add(
        Op(
            name=name, family="softmax", operands=("x",), arguments=_softmax_arguments,
            normalize=lambda specs, axis: {"axis": normalize_axis(name, axis, len(specs[0].shape))},
            infer=lambda specs, axis: specs[0],
            compute=lambda operand_dtypes, **_: (fit(name, operand_dtypes[0], FLOATING),),
            decompose=decompose, vjp=vjp, jvp=jvp, batch=shifted(name, "axis"), dtypes=FLOATING,
            shard=sharding_rules.besides(reduces=True),
            autocast="wide", memoize=True, unsqueezes=True, doc=doc,
        )
    )  # fmt: skip


def _softmax(x: Any, axis: int) -> Any:
    if not x.shape[axis]:
        return +x
    wide = widened(x)
    powers = exp(wide - max(wide, axis=axis, keepdims=True))
    return narrowed(powers / sum(powers, axis=axis, keepdims=True), x.dtype)


def _log_softmax(x: Any, axis: int) -> Any:
    if not x.shape[axis]:
        return +x
    wide = widened(x)
    centred = wide - max(wide, axis=axis, keepdims=True)
    return narrowed(centred - log(sum(exp(centred), axis=axis, keepdims=True)), x.dtype)


softmax = _along(
    "softmax", decompose=_softmax,
    vjp=lambda g, out, axis: (out * (g - sum(g * out, axis=axis, keepdims=True)),),
    jvp=lambda x_t, out, axis: out * (x_t - sum(x_t * out, axis=axis, keepdims=True)),
    doc="``exp(x)`` divided by its sum along ``axis``; ``x`` is first cast to ``dtype``.",
)  # fmt: skip
log_softmax = _along(
    "log_softmax", decompose=_log_softmax,
    vjp=lambda g, out, axis: (g - exp(out) * sum(g, axis=axis, keepdims=True),),
    jvp=lambda x_t, out, axis: x_t - sum(exp(out) * x_t, axis=axis, keepdims=True),
    doc="The logarithm of ``softmax``, without its loss of precision.",
)  # fmt: skip


def _logsumexp(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    wide = widened(x)
    if any(not x.shape[a] for a in axis):
        return narrowed(log(sum(wide, axis=axis, keepdims=keepdims)), x.dtype)
    top = max(wide, axis=axis, keepdims=True).detach()
    top = where(top - top == 0, top, 0.0)
    total = narrowed(log(sum(exp(wide - top), axis=axis, keepdims=True)) + top, x.dtype)
    return total if keepdims else reshape(total, reduced_shape(x.shape, axis, False))


def _logsumexp_vjp(g: Any, out: Any, x: Any, axis: tuple[int, ...]) -> tuple[Any, ...]:
    """Give each element its share of the sum; where all are ``-inf`` none has one."""
    level = keep(out, x.shape, axis)
    level = where(equal(level, float("-inf")), 0.0, level)
    return (keep(g, x.shape, axis) * exp(x - level),)


def _logsumexp_arguments(
    x: Operand, /, axis: Axis = None, keepdims: bool = False
) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x,), {
        "axis": tuple(axis) if isinstance(axis, list) else axis,
        **flags("logsumexp", keepdims=keepdims),
    }


@with_form
def logsumexp(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Any:
    """Return ``log(sum(exp(x)))`` along ``axis``, finite wherever the result is.

    Complex numbers are shifted by their largest real part, as real ones by the largest of them.

    >>> import tensorbus as tb
    >>> tb.logsumexp(tb.asarray([1000.0, 1000.0])).item() > 1000.6
    True
    """
    if not getattr(getattr(x, "dtype", None), "is_complex", False):
        return logsumexp_op.function(x, axis, keepdims)
    axes = normalize_axes("logsumexp", axis, len(x.shape))
    sizes = real(x).detach()
    if 0 in (x.shape[a] for a in axes):
        return log(sum(exp(x), axis=axes, keepdims=keepdims))
    top = max(sizes, axis=axes, keepdims=True)
    top = where(isfinite(top), top, 0.0)
    logs = log(sum(exp(x - top), axis=axes, keepdims=True)) + top
    return logs if keepdims else reshape(logs, reduced_shape(x.shape, axes, False))


logsumexp_op = table.add(
    Op(
        name="logsumexp", family="softmax", operands=("x",), arguments=_logsumexp_arguments,
        normalize=lambda specs, axis, keepdims: {
            "axis": normalize_axes("logsumexp", axis, len(specs[0].shape)), "keepdims": keepdims
        },
        infer=lambda specs, axis, keepdims: Spec(
            reduced_shape(specs[0].shape, axis, keepdims), specs[0].dtype
        ),
        compute=lambda dtypes, **_: (fit("logsumexp", dtypes[0], FLOATING),),
        decompose=_logsumexp, vjp=_logsumexp_vjp, batch=shifted("logsumexp", "axis"),
        shard=sharding_rules.reduction(None), dtypes=FLOATING,
        autocast="wide", memoize=True,
        doc="``log(sum(exp(x)))`` along ``axis``, finite wherever the result is.",
    )
)  # fmt: skip
