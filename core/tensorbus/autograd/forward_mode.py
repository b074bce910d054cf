"""Forward mode: values that carry their derivative along a direction, and the level that runs ops on them.

A dual tensor lies on the pseudo device ``jvp`` and holds two tensors, the primal and its tangent. Ops on it
run on the primal as ever, and by ``forward_rules`` on the tangent, all in the modes below: so directions
nest, and gradients may be taken inside and outside.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

from ..backend_interface.protocols import Call
from ..devices.device import Device, ValueType, get_default_device
from ..dispatch.levels import Level, LevelRules, below_level, creating, inner_of, levels
from ..dispatch.modes import detached_value, register_value_mode
from ..errors import AutogradError, DeviceError
from ..ops.definition import Op, Shape, table
from ..tensor.tensor import Tensor, wrap
from . import function
from .forward_rules import tangents_of
from .view_changes import lent_memory
from .views import members

JVP: Final = "jvp"


class Dual:
    """Value of a tensor inside of forward mode; ``tangent`` is None where it is zero."""

    __slots__ = ("level", "primal", "shape", "tangent")

    def __init__(self, primal: Tensor, tangent: Tensor | None, level: object = None) -> None:
        self.primal, self.tangent, self.level = primal, tangent, level
        self.shape: Shape = primal.shape


class ForwardLevel(Level):
    """One level of forward mode; its device inside is that of the first tensor that gets a tangent."""

    device_type = JVP

    def __init__(self) -> None:
        outside = levels()
        super().__init__(outside[-1].device if outside else get_default_device())
        self.is_empty = True
        self.written: list[weakref.ref[Tensor]] = []
        """The tensors from outside that dual ones were written into: they lose the tangent at the end."""

    def dual(self, primal: Tensor, tangent: Tensor | None) -> Tensor:
        """Return a tensor of this level."""
        if self.is_empty:
            self.inner, self.is_empty = primal.device, False
        return wrap(Dual(primal, tangent, self), ValueType.of(primal.dtype, self.device))

    def parts_of(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the primal and the tangent of a tensor of this level, or of one from outside."""
        if x.device != self.device:
            return x, None
        value: Dual = x._value
        return value.primal, value.tangent if value.level is self else None

    def call_function(self, cls: Any, ctx: Any, args: Sequence[Any], recorded: bool) -> Any:
        """Run it on the primals, in the modes below, and its forward derivative on the tangents."""
        parts = [self.parts_of(x) if isinstance(x, Tensor) else (x, None) for x in args]
        primals, tangents = [p for p, _ in parts], [t for _, t in parts]
        moves = [t is not None for t in tangents]
        with below_level(self.device.index):
            output, inside, saved = function.call(cls, primals, moves)
            results = list(output) if isinstance(output, (tuple, list)) else [output]
            moved: list[Tensor | None] = [None] * len(results)
            if any(moves):
                moved = function.tangents_of_function(cls, inside, primals, output, saved, tangents)
        duals = [self.dual(x, t) if isinstance(x, Tensor) else x for x, t in zip(results, moved, strict=True)]
        out = tuple(duals) if isinstance(output, (tuple, list)) else duals[0]
        ctx._constant.update(id(d) for d, x in zip(duals, results, strict=True) if id(x) in inside._constant)
        if recorded:
            function.fill_context(cls, ctx, args, out, inside, function.places_of(saved, primals, output))
        return out

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        for reference in self.written:
            x = reference()
            if x is not None and x._vtype.device == self.device and x._value.level is self:
                primal = x._value.primal
                x._set_value(primal)
                x._node = primal._node if x._node is None else x._node
        self.written.clear()


class _Rules(LevelRules):
    """Runs ops on dual values."""

    def prepare(self, op: Op[...], call: Call) -> Callable[..., Any] | None:
        if op.family == "creation":
            return creating(op, call, lambda x: Dual(x, None))
        decomposes = op.jvp is None and op.vjp is None and op.decompose is not None

        def run(*values: Any) -> Any:
            here = levels()
            if call.index >= len(here):
                inner_of(Device(JVP, call.index))
            level = here[call.index]
            primals = [v.primal if type(v) is Dual else v for v in values]
            tangents = [v.tangent if type(v) is Dual and v.level is level else None for v in values]
            varies = any(t is not None for t in tangents)
            if varies and decomposes:
                return _decomposed(op, call, values)
            with below_level(call.index):
                out = table.run(op.name, primals, call.attrs)
                outs = list(out) if op.results else [out]
                moved: Sequence[Tensor | None] = [None] * len(outs)
                if varies:
                    moved = tangents_of(op, primals, tangents, outs, call.attrs)
            duals = [Dual(x, t, level) for x, t in zip(outs, moved, strict=True)]
            return tuple(duals) if op.results else duals[0]

        return run

    def lift(self, x: Any, device: Device) -> Any:
        return wrap(Dual(x, None), ValueType.of(x.dtype, device))

    def parts(self, value: Dual) -> tuple[Any, ...]:
        return (value.primal,) if value.tangent is None else (value.primal, value.tangent)

    def map_parts(self, value: Dual, function: Callable[[Any], Any]) -> Dual:
        tangent = None if value.tangent is None else function(value.tangent)
        return Dual(function(value.primal), tangent, value.level)

    def detach(self, value: Dual) -> Dual:
        return Dual(wrap(detached_value(value.primal), value.primal._vtype), None)

    def readable(self, value: Dual) -> Tensor:
        return value.primal


def _decomposed(op: Op[...], call: Call, values: Sequence[Any]) -> Any:
    """Return the result of a composite that has no derivative of its own, by what it is made of."""
    assert op.decompose is not None
    device = levels()[call.index].device
    operands = []
    for v, dtype in zip(values, call.dtypes, strict=True):
        if type(v) is Dual:
            v = wrap(v, ValueType.of(v.primal.dtype, device))
            v = v if v.dtype is dtype else table.run("cast", (v,), {"dtype": dtype})
        operands.append(v)
    out = op.decompose(*operands, **call.attrs)
    duals = [x._value if x.device == device else Dual(x, None) for x in (out if op.results else (out,))]
    return tuple(duals) if op.results else duals[0]


register_value_mode(JVP, _Rules())


def written_from(x: Tensor, other: Tensor) -> bool:
    """Note that a dual tensor is written into one from outside, ``x``; return whether that may be.

    It may where all levels between the two are of forward mode, and nobody else sees the memory.
    """
    if lent_memory(x) is not None:
        return False
    between: list[Level] = []
    here, device = levels(), other.device
    while device != x.device:
        if device.type != JVP or device.index >= len(here):
            return False
        between.append(here[device.index])
        value: Any = other._value
        other = value.primal
        device = other.device
    for level in between:
        assert isinstance(level, ForwardLevel)
        level.written += [weakref.ref(each) for each in (x, *members(x))]
    return True


def check_tangent(who: str, primal: Any, tangent: Any) -> None:
    """Raise for what is no tangent of ``primal``: another shape, dtype or device."""
    if not isinstance(primal, Tensor) or not isinstance(tangent, Tensor):
        got = f"{type(primal).__name__} and {type(tangent).__name__}"
        raise AutogradError(f"{who}: a primal and its tangent are tensors, got {got}.")
    if not primal.dtype.is_inexact:
        raise AutogradError(
            f"{who}: only floating-point and complex tensors have tangents, this one is {primal.dtype}."
        )
    if (primal.shape, primal.dtype) != (tangent.shape, tangent.dtype):
        raise AutogradError(
            f"{who}: a tangent has its primal's shape and dtype, here {primal.dtype}{list(primal.shape)};"
            f" got {tangent.dtype}{list(tangent.shape)}."
        )
    inner, outer = primal.device, tangent.device
    if inner != outer and not {inner.type, outer.type} & _levels_types():
        raise DeviceError(
            f"{who}: a tangent lies on the device of its primal, here {inner}; got one on {outer}. Move it"
            f" with .to({str(inner)!r})."
        )


def _levels_types() -> set[str]:
    return {level.device_type for level in levels()}
