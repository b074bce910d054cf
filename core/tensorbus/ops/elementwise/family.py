"""Elementwise ops: one result element from the elements at the same place, after broadcasting.

The family supplies broadcasting, promotion and weak Python scalars; an op adds its dtypes, its derivative
and, for a composite, its decomposition. Definitions follow the array API standard 2025.12 where it has the
op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec

from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ...dtypes.promotion import common_dtype
from ...errors import DtypeError, ShapeError
from ...tracing.sym_int import distinct
from .. import sharding_rules
from ..batching_rules import aligned
from ..definition import Autocast, Cost, Domain, Jvp, Op, Shape, Spec, ViewRule, table

P = ParamSpec("P")
Operand = Any


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the shape that ``shapes`` broadcast to.

    Raises ``ShapeError`` naming the axis at which they differ.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    if not all(type(shape) is tuple for shape in shapes):
        from ..movement.family import as_shape

        shapes = tuple([as_shape("broadcast_shapes", shape) for shape in shapes])
    rank = max(map(len, shapes), default=0)
    result = []
    for axis in range(-rank, 0):
        lengths = distinct([1, *(shape[axis] for shape in shapes if len(shape) >= -axis)])
        if len(lengths) > 2:
            raise ShapeError(
                f"shapes {', '.join(map(str, shapes))} cannot be broadcast together: axis {axis} has lengths"
                f" {sorted(lengths[1:])}, which must be equal or 1."
            )
        if not hasattr(type(lengths[-1]), "__index__"):
            raise ShapeError(f"broadcast_shapes: a shape is a tuple of integers, got {shapes}.")
        result.append(lengths[-1])
    return tuple(result)


def broadcast_in(op: str, shapes: Sequence[Shape], parts: Sequence[Shape] | None = None) -> Shape:
    """Return what the operands' ``shapes``, or these ``parts`` of them, broadcast to; the error names all."""
    try:
        return broadcast_shapes(*(shapes if parts is None else parts))
    except ShapeError as error:
        raise ShapeError(f"{op}: operands of shapes {', '.join(map(str, shapes))}: {error}") from None


def fit(name: str, common: DType, dtypes: Sequence[DType]) -> DType:
    """Return the dtype an op computes in: ``common``, or the default float for an integer or bool.

    Raises ``DtypeError`` where the op is not defined for it.
    """
    if common in dtypes:
        return common
    takes_integers = any(d.is_integer for d in dtypes)
    if (common.is_integer or (common is dt.bool_ and not takes_integers)) and dt.default_float in dtypes:
        return dt.default_float
    raise DtypeError(
        f"{name}: not defined for {common}; it takes {', '.join(d.name for d in dtypes)}."
        f" Cast the operands with .to(dtype)."
    )


def elementwise_op(
    name: str,
    *,
    arity: int = 1,
    dtypes: tuple[DType, ...],
    result: Callable[[DType], DType] | None = None,
    truth: bool = False,
    decompose: Callable[..., Any] | None = None,
    vjp: Callable[..., tuple[Any, ...]] | None = None,
    jvp: Callable[..., Any] | Jvp | None = None,
    domain: Domain | None = None,
    smooth: bool = True,
    cost: Cost = "light",
    autocast: Autocast | None = None,
    method: bool = True,
    check: Callable[..., None] | None = None,
    view: ViewRule | None = None,
    may_overwrite: tuple[str, ...] = (),
    shard: sharding_rules.ShardRule | None = None,
    doc: str = "",
) -> Op[...]:
    """Return an elementwise op of one, two or three operands ``x``, ``y``, ``z``.

    It is in no table yet: a plugin hands it over by its hook ``tensorbus_ops``.

    One of ``truth`` takes operands of any dtype as what ``bool(x)`` says of each element.
    ``domain`` says between which numbers it is defined and has derivatives: there it is tested.
    One that is not ``smooth`` is defined to have no derivative where it changes: its ``vjp`` gives None.
    ``jvp`` is that of ``Op``, by default ``"pointwise"`` for an op with a vjp.
    ``cost``, ``autocast``, ``method``, ``check``, ``view`` and ``may_overwrite`` are the fields of ``Op``;
    ``shard`` too, by default that of the kind of function which ``jvp`` says.
    """
    operands = ("x", "y", "z")[:arity]

    def compute(operand_dtypes: tuple[DType | type, ...]) -> tuple[DType, ...]:
        return (dt.bool_ if truth else fit(name, common_dtype(operand_dtypes), dtypes),) * arity

    def infer(specs: tuple[Spec, ...]) -> Spec:
        dtype = specs[0].dtype
        return Spec(broadcast_shapes(*(s.shape for s in specs)), result(dtype) if result else dtype)

    return Op(
        name=name, family="elementwise", operands=operands, arguments=_ARGUMENTS[arity], infer=infer,
        compute=compute, decompose=decompose, vjp=vjp, batch=aligned(name), dtypes=dtypes,
        jvp="pointwise" if jvp is None and vjp is not None else jvp,
        domain=domain, smooth=smooth, broadcasts=True, cost=cost, recompute=True, autocast=autocast,
        method=method, check=check, view=view, may_overwrite=may_overwrite, doc=doc,
        shard=shard or sharding_rules.elementwise(jvp if isinstance(jvp, str) else None),
    )  # fmt: skip


def _added(make: Callable[P, Op[...]]) -> Callable[P, Op[...]]:
    @wraps(make)
    def define(*args: P.args, **kwargs: P.kwargs) -> Op[...]:
        return table.add(make(*args, **kwargs))

    return define


elementwise = _added(elementwise_op)
"""Define an elementwise op of core: ``elementwise_op``, put into the table."""


def _one(x: Operand, /) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x,), {}


def _two(x: Operand, y: Operand, /) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x, y), {}


def _three(x: Operand, y: Operand, z: Operand, /) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x, y, z), {}


_ARGUMENTS: dict[int, Callable[..., tuple[tuple[Operand, ...], dict[str, Any]]]] = {
    1: _one,
    2: _two,
    3: _three,
}


def elementwise_composites() -> tuple[str, ...]:
    """Return the names of core's elementwise ops that have a decomposition, in order of definition."""
    ops = (op for op in table if op.family == "elementwise" and not op.is_prim)
    return tuple(op.name for op in ops if table.owner(op.name) == "tensorbus")
