"""``explain``: which kernel runs for a call, and why not another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..decompose.tracer import trace
from ..devices.device import ValueType
from ..dispatch.candidates import HostFallback
from ..dispatch.decision_log import Decision, listening
from ..dispatch.modes import is_value_mode
from ..dispatch.plan import invalidate, plan
from ..dispatch.remarks import remarks
from ..errors import ArgumentError, TensorbusError, UnsupportedOpError
from ..ops.definition import Op, Spec, table
from ..plugins import host_type
from ..tensor.tensor import Tensor
from .runner import operands_of

_PASSED_OVER: Final = "not taken: comes later, or is not preferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The result of ``explain``. ``str()`` gives the text that it printed.

    ``decisions`` holds one entry for each op that was looked at, in order, ``into`` the prims that the op
    decomposes into where it has no kernel. ``remarks`` are what else the run tells: how tensors on a mesh are
    redistributed, and every collective.
    """

    decisions: tuple[Decision, ...]
    into: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = []
        for decision in self.decisions:
            lines.append(f"{decision.signature}: {decision.outcome}")
            lines += _candidates(decision)
        if self.into:
            lines.append(f"  into {', '.join(self.into)}")
        lines += self.remarks
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<explanation of {', '.join(dict.fromkeys(d.op.name for d in self.decisions))}>"


def _candidates(decision: Decision) -> list[str]:
    rows = []
    host = host_type()
    for place, candidate in enumerate(decision.candidates, 1):
        if isinstance(candidate, HostFallback) and decision.device.type == host:
            continue  # this is the host
        verdict = f"not taken: {candidate.reason}" if candidate.reason else _PASSED_OVER
        if candidate is decision.taken:
            verdict = "taken"
        rows.append((f"  {place}.", candidate.name, f"of {candidate.owner}", verdict))
    widths = [max((len(row[k]) for row in rows), default=0) for k in range(4)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def explain(op: str | Op[...] | Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explanation:
    """Print, and return, how a call would run: the candidates in order, each with why it is taken or not.

    They are the kernels, then the op's decomposition, then the host.

    ``op`` is the name of an op, or a function of ``tensorbus``. A function that is no op itself (such as
    ``nn.functional.layer_norm``) is run, and every op that it calls is explained; so is an op on tensors that
    stand for others, as distributed ones do.

    Raises what the call itself would raise for bad arguments; a missing kernel is part of the explanation.

    >>> import tensorbus as tb
    >>> x = tb.asarray([1.0, 2.0], device="cpu")
    >>> explanation = tb.explain("add", x, x)
    add(float32, float32) on cpu:0: kernel 'numpy' of tensorbus-cpu 0.1.0
      1.  numpy  of tensorbus-cpu 0.1.0  taken
    """
    name = op if isinstance(op, str) else op.name if isinstance(op, Op) else _name(op)
    stand_ins = [x for x in args if isinstance(x, Tensor) and is_value_mode(x.device.type)]
    if name is not None and not stand_ins:
        explanation = _explain_op(table[name], args, kwargs)
    else:
        op = op if name is None else table.function(name)
        if not callable(op):
            raise ArgumentError(
                f"explain: 'op' must be an op, its name or a function, got {type(op).__name__}."
            )
        with listening() as decisions, remarks() as noted:
            invalidate()
            op(*args, **kwargs)
        explanation = Explanation(decisions=tuple(decisions), remarks=tuple(noted))
    print(f"{explanation}\n", end="", flush=True)  # in one write, as ranks that are threads print at once
    return explanation


def _name(function: Callable[..., Any]) -> str | None:
    schema = getattr(function, "schema", None)  # of a custom op
    name = getattr(function if schema is None else schema, "name" if schema is not None else "__name__", "")
    known = name in table and (schema is not None or table.function(name) is function)
    return name if known else None


def _explain_op(op: Op[...], args: Sequence[Any], kwargs: dict[str, Any]) -> Explanation:
    operands, attrs = operands_of(op, args, kwargs)
    kinds = [x._vtype if isinstance(x, Tensor) else type(x) for x in operands]
    if op.broadcasts and operands and not any(isinstance(k, ValueType) for k in kinds):
        raise UnsupportedOpError(f"explain: {op.name} runs on the device of its operands; pass a tensor.")
    shapes = None if op.broadcasts else [x.shape for x in operands]
    with listening() as decisions:
        try:
            plan(op, kinds, shapes, attrs)
        except UnsupportedOpError:
            if not decisions:
                raise
    own = [d for d in decisions if d.op is op]
    into: tuple[str, ...] = ()
    if own and own[-1].chosen is None and op.decompose is not None:
        call = own[-1].call
        operand_shapes = call.shapes or [getattr(x, "shape", ()) for x in operands]
        specs = [Spec(s, d) for s, d in zip(operand_shapes, call.dtypes, strict=True)]
        try:
            into = tuple(dict.fromkeys(n.op for n in trace(op.name, specs, call.attrs) if n.op in table))
        except TensorbusError:  # a decomposition that looks at values has no graph
            into = ()
    return Explanation(decisions=tuple(own), into=into)
