"""The derivative of one op as one program, where a device makes programs of several ops.

What ``autograd`` does for a recorded op, its ``vjp`` or its decomposition walked back, sums to the operands'
shapes and casts, is traced once for each signature; nothing of it is known here. Gradients that shall have
a history are left to ``autograd``, as is everything while somebody captures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ..autograd import engine
from ..backend_interface.graph import Node
from ..decompose.tracer import OPS
from ..devices.device import ValueType
from ..dispatch import kernel_preference
from ..dispatch.plan import Plan
from ..eager.runner import fail
from ..errors import TensorbusError
from ..graph.rewrite import rebuild, topological
from ..ops.definition import Spec
from ..ops.fused_function import saving
from ..tensor.tensor import Tensor, materialize, wrap
from ..tracing.lazy_value import LazyValue
from .fused_function import FusedProgram, Run, compile_program, is_small, memoize, programs_on
from .planned_program import planned_program

_NEVER: Final = "never"
"""A key of ``Plan.backward_programs``: there is no program, however the gradient and the operands lie."""
_ONCE: Final = "once"
"""In the place of a program: the derivative was asked for once."""
_LINEAR: Final = frozenset({"matmul", "convolution"})


def derivative(node: engine.Node, g: Any) -> list[Any] | None:
    """Return the gradient for each operand of ``node``, by a program; None where there is none.

    ``g`` is the gradient of the result; of several results, a list with None for those that have none.
    """
    plan = node.plan
    if plan.op.late or node.values is engine.FREED or kernel_preference.active():
        return None  # what is told late would have a program for each place: one op, which is no less
    if _NEVER in plan.backward_programs:
        return None
    device = plan.out.device
    seeds = list(g) if plan.op.results else [g]
    if plan.programs is not None and plan.programs.least and _is_small(node, seeds):
        return None  # before a key is made, which takes longer than all of this
    values: list[Any] = []
    kinds: list[Any] = [node.shapes]
    numbers: list[str] = []
    for x in seeds:
        if x is None:
            kinds.append(None)
            continue
        there = x._vtype.device
        if there is not device and there != device:
            return None
        value = materialize(x)
        values.append(value)
        kinds.append(x._vtype)
        kinds.append(value.shape)
    for value, kind, parent in zip(node.values, plan.operands, node.parents, strict=True):
        kinds.append(parent is None)
        if not isinstance(kind, ValueType):
            (numbers if kind is float else kinds).append(repr(value))
        elif value is not None:
            values.append(value)
    if plan.keeps_out:
        values += node.out if plan.op.results else [node.out]
    if LazyValue in map(type, values):
        return None
    key = tuple(kinds), tuple(numbers)
    programs = plan.backward_programs
    program = programs.get(key)
    if program is None and _calls_itself(plan):  # lengths that come once only are not worth a trace
        programs[key] = _ONCE
        return None
    if program is None or program is _ONCE:
        program = memoize(programs, key, lambda: _derived(node, seeds))
        if program is False and _calls_itself(plan):
            programs[_NEVER] = False
    if program is False:
        return None
    try:
        grads = program.run(values)
    except Exception as error:
        fail(plan, [x for x in seeds if x is not None], {}, error)
    return [
        None if place is None else wrap(values[~place] if place < 0 else grads[place], kind)
        for place, kind in zip(program.places, program.kinds, strict=True)
    ]


def _is_small(node: engine.Node, seeds: Sequence[Tensor | None]) -> bool:
    """Return whether nothing that the derivative takes is large."""
    plan = node.plan
    values = [x._value for x in seeds if x is not None]
    pairs = zip(node.values, plan.operands, strict=True)
    values += [value for value, kind in pairs if value is not None and isinstance(kind, ValueType)]
    if plan.keeps_out:
        values += node.out if plan.op.results else [node.out]
    return is_small(plan.out.device, values)


def _calls_itself(plan: Plan) -> bool:
    """Return whether a derivative is made of what the op is, which no program of its device holds."""
    maker, op = plan.programs, plan.op
    return maker is not None and op.family in _LINEAR and not maker.keeps(op.name, plan.out.device.index)


def _derived(node: engine.Node, grads_in: Sequence[Tensor | None]) -> FusedProgram | None:
    """Return the program of the derivative of what ``node`` recorded."""
    plan, device = node.plan, node.plan.out.device
    op, where = plan.op, OPS.device
    pairs: list[tuple[Any, Any]] = list(zip(node.values, plan.operands, strict=True))
    is_tensor = [value is not None and isinstance(kind, ValueType) for value, kind in pairs]
    specs = [Spec(x.shape, x.dtype) for x in grads_in if x is not None]
    seeds = len(specs)
    specs += [Spec(v.shape, k.dtype) for (v, k), keep in zip(pairs, is_tensor, strict=True) if keep]
    if plan.keeps_out and op.results:
        specs += [Spec(v.shape, k.dtype) for v, k in zip(node.out, plan.outs, strict=True)]
    elif plan.keeps_out:
        specs.append(Spec(node.out.shape, plan.out.dtype))

    def there(kind: Any) -> Any:
        return ValueType.of(kind.dtype, where) if isinstance(kind, ValueType) else kind

    def inner(*xs: Any) -> Any:
        left = iter(xs[:seeds])
        seed = [None if x is None else next(left) for x in grads_in]
        left = iter(xs[seeds:])
        traced_node = engine.Node()
        traced_node.plan = replace(
            plan, operands=tuple(map(there, plan.operands)), out=there(plan.out),
            outs=tuple(map(there, plan.outs)), programs=None,
        )  # fmt: skip
        traced_node.order, traced_node.parents, traced_node.shapes = node.order, node.parents, node.shapes
        traced_node.values = tuple(
            [next(left)._value if keep else v for keep, v in zip(is_tensor, node.values, strict=True)]
        )
        rest = tuple([x._value for x in left])
        traced_node.out = None if not plan.keeps_out else rest if op.results else rest[0]
        return engine.vjp_of(traced_node, seed if op.results else seed[0], False)

    try:
        with saving() as saved:
            inputs, backs = OPS.trace(inner, specs)
    except TensorbusError:
        return None
    last = seeds + sum(is_tensor)
    known = {x._value: operand for x, operand in zip(saved, inputs[last - plan.saved : last], strict=False)}
    values = [None if back is None else back._value for back in backs]
    if len(saved) == plan.saved > 0:  # what the call left is not computed again
        values = _with(known, values)
    places: list[int | None] = []
    nodes: list[Node] = []
    for value in values:
        if value is None:
            places.append(None)
        elif value in inputs:
            places.append(~inputs.index(value))
        else:
            places.append(len(nodes))
            nodes.append(value)
    maker = programs_on(device)
    least = (
        1 if maker is not None and not maker.least else 2
    )  # what has the fewest steps, where no library is
    name = f"derivative of {op.name}"
    run: Run | None = _nothing if not nodes else compile_program(name, inputs, nodes, device, least)
    if run is None and _calls_itself(plan):
        run = planned_program(inputs, nodes, device)
    if run is None:
        return None
    kinds = tuple([plan.out if x is None else ValueType.of(x.dtype, device) for x in backs])
    return FusedProgram(run, tuple(places), kinds)


def _with(known: dict[Node, Node], values: Sequence[Node | None]) -> list[Node | None]:
    """Return the values computed from what is ``known`` of the nodes that they are computed from."""
    roots = [value for value in values if value is not None]
    done = rebuild(topological(roots), lambda node, inputs: None, dict(known))
    return [None if value is None else done[value] for value in values]


def _nothing(values: Sequence[Any]) -> Sequence[Any]:
    return ()
