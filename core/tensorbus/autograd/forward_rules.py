"""Forward derivatives of ops: from the tangents of operands to those of results.

One mechanism serves every op that has a vjp: that is linear in the gradient ``g``, and the derivative is its
transpose, which walking back through the recorded vjp gives. What an op says in ``Op.jvp`` is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..dispatch.modes import has_history
from ..dtypes.definition import DType
from ..errors import AutogradError
from ..ops.creation.creation import full
from ..ops.definition import Op, table
from ..ops.elementwise.where_cast import cast
from ..ops.movement.movement import broadcast_to
from ..tensor.grad_mode import GradMode, grad_enabled
from ..tensor.tensor import Leaf, Tensor, wrap
from . import engine
from .gradient_shape import checked_gradients

Tangents = Sequence[Tensor | None]


def tangents_of(
    op: Op[...], operands: Sequence[Any], tangents: Tangents, outs: Sequence[Tensor],
    attrs: Mapping[str, Any],
) -> list[Tensor | None]:  # fmt: skip
    """Return the tangent of each result, None for zero, in its shape and dtype.

    ``operands`` are as the op was called, ``attrs`` as kernels see them. Raises ``AutogradError`` for an op
    that has no derivative.
    """
    if not any(out.dtype.is_inexact for out in outs):
        return [None] * len(outs)
    returned = _by_rule(op, operands, tangents, outs, attrs)
    several = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(several) != len(outs):
        raise AutogradError(f"{op.name}: its jvp returned {len(several)} tangents for {len(outs)} results.")
    return [
        fitted(t, out.shape, out.dtype) if t is not None and out.dtype.is_inexact else None
        for t, out in zip(several, outs, strict=True)
    ]


def fitted(t: Tensor, shape: tuple[int, ...], dtype: DType) -> Tensor:
    """Return a tangent in the shape and dtype of what it is the tangent of."""
    if t.shape != shape:
        t = broadcast_to(t, shape)
    return t if t.dtype is dtype else cast(t, dtype)


def _by_rule(
    op: Op[...], operands: Sequence[Any], tangents: Tangents, outs: Sequence[Tensor],
    attrs: Mapping[str, Any],
) -> Any:  # fmt: skip
    rule: Any = op.jvp
    if callable(rule):
        rule = _by_function(op, operands, tangents, outs, attrs)
    if rule is None and callable(op.jvp):
        return [None] * len(outs)
    if not isinstance(rule, str) and rule is not NotImplemented and rule is not None:
        return rule
    # A derivative of complex numbers is no transpose of itself.
    if rule == "pointwise" and any(x.dtype.is_complex for x in (*operands, *outs) if isinstance(x, Tensor)):
        rule = None
    return (
        _RULES[rule](op, operands, tangents, outs, attrs)
        if isinstance(rule, str)
        else transposed(op, operands, tangents, outs, attrs)
    )


def _by_function(
    op: Op[...], operands: Sequence[Any], tangents: Tangents, outs: Sequence[Tensor],
    attrs: Mapping[str, Any],
) -> Any:  # fmt: skip
    arguments = _named(op, operands, outs, attrs)
    for place, name in enumerate(op.operands):
        if name.startswith("*"):
            arguments[f"{name[1:]}_t"] = list(tangents[place:])
        else:
            arguments[f"{name}_t"] = tangents[place]
    assert callable(op.jvp)
    code = op.jvp.__code__
    return op.jvp(**{name: arguments[name] for name in code.co_varnames[: code.co_argcount]})


def _linear(
    op: Op[...], operands: Sequence[Any], tangents: Tangents, outs: Sequence[Tensor],
    attrs: Mapping[str, Any],
) -> Any:  # fmt: skip
    return table.run(
        op.name, [_zero(x) if t is None else t for x, t in zip(operands, tangents, strict=True)], attrs
    )


def _zero(x: Any) -> Any:
    """Return what stands for a tangent of zero; an operand that can have none is what it is."""
    if not isinstance(x, Tensor):
        return 0
    return full(x.shape, 0, dtype=x.dtype, device=x.device) if x.dtype.is_inexact else x


def _multilinear(
    op: Op[...], operands: Sequence[Any], tangents: Tangents, outs: Sequence[Tensor],
    attrs: Mapping[str, Any],
) -> Any:  # fmt: skip
    total: Any = None
    for place, t in enumerate(tangents):
        if t is not None:
            part = table.run(op.name, [*operands[:place], t, *operands[place + 1 :]], attrs)
            total = part if total is None else total + part
    return total


def _pointwise(
    op: Op[...], operands: Sequence[Any], tangents: Tangents, outs: Sequence[Tensor],
    attrs: Mapping[str, Any],
) -> Any:  # fmt: skip
    (out,) = outs
    total: Any = None
    for place, t in enumerate(tangents):
        if t is not None:
            wanted = tuple([k == place for k in range(len(operands))])
            part = _vjp(op, operands, outs, attrs, fitted(t, out.shape, out.dtype), wanted)[place]
            if part is not None:
                total = part if total is None else total + part
    return total


_RULES: Mapping[str, Callable[..., Any]] = {
    "linear": _linear, "multilinear": _multilinear, "pointwise": _pointwise,
}  # fmt: skip


def transposed(
    op: Op[...], operands: Sequence[Any], tangents: Tangents, outs: Sequence[Tensor],
    attrs: Mapping[str, Any],
) -> list[Tensor | None]:  # fmt: skip
    """Return the tangents of the results by walking back through the vjp, as a function of the gradient.

    Raises ``AutogradError`` where there is no vjp.
    """
    if op.vjp is None:
        own = " register_autograd gives it one, or" if "::" in op.name else ""
        raise AutogradError(
            f"{op.name}: this op has no derivative, so a tangent cannot pass it;{own} cut its operands off"
            f" with .detach()."
        )
    wanted = tuple([t is not None for t in tangents])

    def pull(seeds: list[Tensor]) -> list[Tensor | None]:
        backs = _vjp(op, operands, outs, attrs, tuple(seeds) if op.results else seeds[0], wanted)
        return checked_gradients(backs, operands, f"{op.name}: its vjp", tangents)

    record = grad_enabled.get() and any(
        has_history(x) for x in (*operands, *tangents) if isinstance(x, Tensor)
    )
    return transpose(pull, outs, tangents, record)


def transpose(
    pull: Callable[[list[Tensor]], Sequence[Tensor | None]], outs: Sequence[Tensor], tangents: Tangents,
    record: bool,
) -> list[Tensor | None]:  # fmt: skip
    """Return what the transpose of ``pull``, a linear function of gradients of ``outs``, makes of tangents.

    ``pull`` returns a gradient, or None, for each of the tangents. ``record``: with a history.
    """
    with GradMode(True):
        zeros = [full(out.shape, 0, dtype=out.dtype, device=out.device) for out in outs]
        seeds = [wrap(x._value, x._vtype, Leaf() if x.dtype.is_inexact else None) for x in zeros]
        ends = [x._node for x in seeds]
        pairs = [
            (b, t) for b, t in zip(pull(seeds), tangents, strict=True)
            if b is not None and t is not None and b._node is not None
        ]  # fmt: skip
    if not pairs:
        return [None] * len(outs)
    keep = {id(end) for end in ends if end is not None}
    tangents_out = engine.walk([b for b, _ in pairs], [t for _, t in pairs], None, record, keep)
    return [None if end is None else tangents_out.get(end) for end in ends]


def _vjp(
    op: Op[...], operands: Sequence[Any], outs: Sequence[Tensor], attrs: Mapping[str, Any], g: Any,
    wanted: tuple[bool, ...],
) -> Sequence[Any]:  # fmt: skip
    arguments = _named(op, operands, outs, attrs) | {"g": g, "wanted": wanted, "used": (True,) * len(outs)}
    assert op.vjp is not None
    backs = op.vjp(**{name: arguments[name] for name in op.needs})
    if len(backs) != len(operands):
        raise AutogradError(
            f"{op.name}: its vjp returned {len(backs)} gradients for {len(operands)} operands."
        )
    return backs


def _named(
    op: Op[...], operands: Sequence[Any], outs: Sequence[Tensor], attrs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what derivatives may name: ``out``, operands, their shapes, the attributes."""
    arguments: dict[str, Any] = {**attrs, "out": tuple(outs) if op.results else outs[0]}
    shapes = [x.shape if isinstance(x, Tensor) else () for x in operands]
    for place, name in enumerate(op.operands):
        if name.startswith("*"):
            arguments[name[1:]] = list(operands[place:])
            arguments[f"{name[1:]}_shape"] = shapes[place:]
        else:
            arguments[name] = operands[place]
            arguments[f"{name}_shape"] = shapes[place]
    return arguments
