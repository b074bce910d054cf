"""Programs of a few ops, made while Python runs: fused functions, and the derivatives of ops.

Where the kernels of a device are generated (``Kernel.programs``) several ops are one program of few launches,
by the same lowering as each of them alone. A function is traced once for each signature. Nothing is fused
where a kernel of another package serves one of the ops, or where a mode sees each op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any, Final, cast

from ..autograd import engine
from ..backend_interface.compilation import FusedKernels, OpenFusedKernels, OpenRun
from ..backend_interface.graph import Graph, Node
from ..backend_interface.protocols import Call, Kernel
from ..decompose.decompose import decompose
from ..decompose.tracer import OPS
from ..devices.device import Device, ValueType
from ..dispatch import kernel_preference
from ..dispatch.candidates import Verdict
from ..dispatch.kernel_tables import fused_kernels, owner_of, tables_of
from ..dispatch.modes import is_value_mode
from ..dispatch.plan import Plan
from ..dispatch.selection import notify
from ..dtypes.definition import DType
from ..eager.runner import fail
from ..errors import TensorbusError
from ..graph.passes.simplify import simplify
from ..graph.rewrite import topological
from ..ops.definition import Op, Spec
from ..ops.fused_function import saving
from ..tensor.tensor import Tensor, materialize, wrap

_CONSTANT_TYPES: Final = frozenset({type(None), bool, int, float, str, DType})
_MAX_PROGRAMS: Final = 256
"""How many programs of one function, or of one op's derivative, are kept."""
_MAX_FLOATS: Final = 16
"""For how many different floats programs are made while all else stays alike: more will come once each."""
_VIEWS: Final = frozenset({"broadcast_to", "permute_dims", "reshape", "slice", "flip", "windows"})
_GRAPH_OPS: Final = frozenset({"input", "constant", "result"})
_FREE_OPS: Final = _VIEWS | _GRAPH_OPS | {"full"}
_INTEGERS: Final = {int}
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})
_ANY_SHAPES: Final = "any shapes"
"""What the key of a program that serves any shapes begins with."""
Run = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class FusedProgram:
    """A fused program: what runs it, where each result is (None: no result), and the plan of its history.

    ``saved`` are the places of what it leaves for its derivative. ``opens`` is the ``run`` of values of any
    shapes, None where results and histories depend on them. ``detached`` are the results without a history,
    ``untracked`` the operands that only these depend on, or which the call itself made.
    """

    run: Run
    places: tuple[int | None, ...]
    kinds: tuple[ValueType, ...]
    plan: Plan | None = None
    saved: tuple[int, ...] = ()
    opens: OpenRun | None = None
    detached: frozenset[int] = frozenset()
    untracked: frozenset[int] = frozenset()


def programs_on(device: Device) -> FusedKernels | None:
    """Return what makes programs for a device: None for values of a mode, and without generated kernels."""
    return None if is_value_mode(device.type) else fused_kernels(device.type)


def is_small(device: Device, values: Sequence[Any], of: Callable[[Any], int] = max) -> bool:
    """Return whether no operand has as many elements as a program on a device is worth making for.

    With ``sum`` for ``of``: whether all of them together have not.
    """
    maker = fused_kernels(device.type)
    if maker is None or not maker.least:
        return False
    return of([prod(value.shape) for value in values]) < maker.least


def call_fused(
    function: Callable[..., Any], known: dict[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Run a fused function by its program, as it is where there is none. ``known`` are those it has."""
    if kernel_preference.active():
        return function(*args, **kwargs)
    tensors: list[Tensor] = []
    kinds: list[Any] = [len(args), *kwargs]
    shapes: list[Any] = []
    numbers: list[Any] = []
    tracked = False
    for x in (*args, *kwargs.values()) if kwargs else args:
        kind = type(x)
        if x is None:
            kinds.append(None)
        elif kind is float:
            kinds.append(float)
            numbers.append(x if x and x == x else repr(x))  # 0.0 and -0.0 are equal as keys, nan is not
        elif kind is Tensor or isinstance(x, Tensor):
            if x._vtype.materialized is not x._vtype:
                materialize(x)
            tensors.append(x)
            kinds.append(x._vtype)
            shapes.append(x._value.shape)
            if x._node is not None:
                tracked = True
        elif kind is tuple and {*map(type, x)} == _INTEGERS:
            kinds.append(x)
        elif _is_constant(x):
            kinds.append(repr(x))
        else:
            return function(*args, **kwargs)
    key = (*kinds, *shapes), tuple(numbers)
    program = known.get(key)
    if program is None:
        if not tensors or is_small(tensors[0].device, [x._value for x in tensors]):
            return function(*args, **kwargs)
        of_any = (_ANY_SHAPES, *kinds), tuple(numbers)
        like = known.get(of_any)
        if like is not None and like.opens.serves([x._value for x in tensors]):
            program = replace(like, plan=replace(like.plan))
            if len(known) >= _MAX_PROGRAMS:
                _forget(known)
            known[key] = program
        else:
            make = partial(build_program, function, tensors, args, kwargs, like)
            program = memoize(known, key, make)
            if like is None and program is not False and program.opens is not None:
                known[of_any] = program
    if program is False:
        return function(*args, **kwargs)
    try:
        values = program.run([x._value for x in tensors])
    except Exception as error:
        fail(program.plan, tensors, {}, error)
    if tracked and program.saved:
        kinds = program.plan.operands[-len(program.saved) :]
        tensors += [wrap(values[place], kind) for place, kind in zip(program.saved, kinds, strict=True)]
    if not program.plan.op.results:
        out = wrap(values[program.places[0]], program.kinds[0])
        if tracked:
            engine.record(program.plan, tensors, out)
        return out
    outs = [wrap(values[place], kind) for place, kind in zip(program.places, program.kinds, strict=True)]
    if tracked:
        engine.record_several(program.plan, tensors, outs, program.detached, program.untracked)
    return tuple(outs)


def memoize(known: dict[Any, Any], key: tuple[Any, Any], make: Callable[[], FusedProgram | None]) -> Any:
    """Return the program of ``key``, False where there is none; too many floats in turn have none.

    They are the second part of the key, and everything else the first.
    """
    if len(known) >= _MAX_PROGRAMS:
        _forget(known)
    kinds, _ = key
    count = known[kinds] = known.get(kinds, 0) + 1
    if count > _MAX_FLOATS:
        return False
    program = known[key] = make() or False
    return program


def _forget(known: dict[Any, Any]) -> None:
    """Drop programs, but for those of any shapes, unless they are what there are so many of."""
    programs = {key: x for key, x in known.items() if isinstance(x, FusedProgram)}
    lasting = {key: x for key, x in programs.items() if key[0][0] == _ANY_SHAPES}
    known.clear()
    known.update(lasting if len(lasting) < _MAX_PROGRAMS // 2 else {})


def _is_constant(x: Any) -> bool:
    return type(x) in _CONSTANT_TYPES or (type(x) in (list, tuple) and all(map(_is_constant, x)))


def build_program(
    function: Callable[..., Any], tensors: Sequence[Tensor], args: Sequence[Any], kwargs: Mapping[str, Any],
    like: FusedProgram | None = None,
) -> FusedProgram | None:  # fmt: skip
    """Return the program of a fused function for arguments like these.

    ``like`` is that for other shapes of the same arguments, if they had any.
    """
    device = tensors[0].device
    if any(x.device != device for x in tensors):
        return None
    template = [None if isinstance(x, Tensor) else (x,) for x in (*args, *kwargs.values())]
    names, count = tuple(kwargs), len(args)

    def inner(*xs: Any) -> Any:
        left = iter(xs)  # behind the operands is what a call saves: here it is computed
        filled = [next(left) if x is None else x[0] for x in template]
        return function(*filled[:count], **dict(zip(names, filled[count:], strict=True)))

    traced = _traced(inner, [Spec(x.shape, x.dtype) for x in tensors])
    if traced is None:
        return None
    inputs, nodes, results, saved, several = traced
    name = function.__name__
    opens: OpenRun | None = None
    if several or nodes[len(results) :] or not hasattr(programs_on(device), "prepare_open"):
        run: Run | None = compile_program(name, inputs, nodes, device)
    elif like is not None:
        run = opens = like.opens
    else:
        run = opens = _open_program(name, inputs, nodes, device, inner)
    if run is None:
        return None
    outs = tuple([ValueType.of(x.dtype, device) for x in results])
    plan = Plan(
        op=_op(function.__name__, len(outs) if several else 0, inner),
        operands=tuple([x._vtype for x in tensors] + [ValueType.of(x.dtype, device) for x in saved]),
        run=None, out=outs[0], casts=(None,) * (len(tensors) + len(saved)), saved=len(saved),
        attrs={}, outs=outs if several else (), shapes=tuple([x.shape for x in results]) if several else (),
        programs=programs_on(device),
    )  # fmt: skip
    places = tuple([nodes.index(x._value) for x in saved])
    detached: frozenset[int] = getattr(function, "without_history", frozenset())
    read = {*topological([node for k, node in enumerate(nodes[: len(outs)]) if k not in detached])}
    untracked = frozenset([k for k, node in enumerate(inputs) if node not in read] if detached else ())
    untracked |= {*range(len(inputs), len(inputs) + len(saved))}
    return FusedProgram(run, tuple(range(len(outs))), outs, plan, places, opens, detached, untracked)


def _traced(
    inner: Callable[..., Any], specs: Sequence[Spec]
) -> tuple[tuple[Node, ...], list[Node], list[Tensor], list[Any], bool] | None:
    """Return the inputs of a function's graph, its outputs, and the results that were traced.

    The outputs are the results, then what the function saves that is no result. Also what it saves, and
    whether its results are a tuple. None where it cannot be one program, or does not take such operands.
    """
    try:
        with saving() as saved:
            inputs, traced = OPS.trace(inner, specs)
    except TensorbusError:
        return None  # the function says it in the words of the device
    several = isinstance(traced, tuple)
    results = list(traced) if several else [traced]
    nodes = [x._value for x in results]
    if any(node in inputs for node in nodes):
        return None
    nodes += dict.fromkeys([x._value for x in saved if x._value not in nodes])
    return inputs, nodes, results, saved, several


def _open_program(
    name: str, inputs: tuple[Node, ...], nodes: Sequence[Node], device: Device, inner: Callable[..., Any]
) -> OpenRun | None:  # fmt: skip
    """Return what runs a function of one result for operands of any shapes; None where nothing does."""
    maker = cast(OpenFusedKernels, programs_on(device))
    graph = _program_graph(inputs, nodes, device, maker, 1)
    if graph is None:
        return None

    def trace(specs: Sequence[Spec]) -> Graph | None:
        traced = _traced(inner, specs)
        return None if traced is None else _program_graph(traced[0], traced[1], device, maker, 1)

    run = maker.prepare_open(name, object(), trace, graph, device.index)
    if run is not None:
        _notify(name, graph, device)
    return run


def compile_program(
    name: str, inputs: tuple[Node, ...], outputs: Sequence[Node], device: Device, least: int = 1,
    replaces: Mapping[int, int] = _NOTHING,
) -> Run | None:  # fmt: skip
    """Return what runs a graph; None where the device has better, or there are fewer ops than ``least``.

    ``replaces``: see ``FusedKernels.prepare``.
    """
    maker = programs_on(device)
    graph = None if maker is None else _program_graph(inputs, outputs, device, maker, least)
    if maker is None or graph is None:
        return None
    run = maker.prepare(name, graph, device.index, replaces)
    if run is not None:
        _notify(name, graph, device)
    return run


def _program_graph(
    inputs: tuple[Node, ...], outputs: Sequence[Node], device: Device, maker: FusedKernels, least: int
) -> Graph | None:  # fmt: skip
    """Return a graph in the ops that programs keep; None where it has others, or fewer than ``least``."""
    graph = Graph(inputs=inputs, outputs=tuple(outputs))
    if not all(_is_generated(op, device) for op in {node.op for node in graph} - _GRAPH_OPS):
        return None

    def keeps(op: str) -> bool:
        return maker.keeps(op, device.index)

    graph = simplify(decompose(graph, keeps))
    ops = [node.op for node in graph if node.op not in _FREE_OPS]
    return graph if len(ops) >= least and all(map(keeps, {*ops})) else None


def _is_generated(op: str, device: Device) -> bool:
    """Return whether nobody has a kernel of another kind for an op: one that a program would pass over."""
    offers, mine = tables_of(device.type).candidates(op), owner_of(device)
    return all(owner == mine and (kernel.programs is not None or op in _VIEWS) for owner, kernel in offers)


def _notify(name: str, graph: Graph, device: Device) -> None:
    """Tell those who look on that a function is one program."""
    specs, out = [x.spec for x in graph.inputs], graph.outputs[0].spec
    call = Call(
        op=name, dtypes=tuple([s.dtype for s in specs]), shapes=tuple([s.shape for s in specs]), attrs={},
        out_dtype=out.dtype, out_shape=out.shape, index=device.index,
    )  # fmt: skip
    op = _op(name, 0, None)
    verdict = Verdict(owner=owner_of(device), kernel=Kernel(name="generated", function=_notify), reason=None)
    notify(op, call, device, [verdict], verdict)


def _op(name: str, results: int, decompose: Callable[..., Any] | None) -> Op[...]:
    """Return an op that is in no table: what histories, and those who look on, know a program as.

    ``results`` is how many there are in a tuple; 0: the one is none.
    """
    return Op(
        name=name, family="joined", operands=("*xs",), arguments=lambda *xs: (xs, {}), infer=tuple,
        results=tuple([f"result_{k}" for k in range(results)]), decompose=decompose, dtypes=(),
    )  # fmt: skip
