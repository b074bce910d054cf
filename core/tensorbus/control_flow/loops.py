"""The kernels of control flow: each step is a program of the device, the host goes from one to the next.

They serve every device type. A function's graph is lowered by the device as any program, once for equal ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from .. import plugins
from ..backend_interface.compilation import CompileRequest
from ..backend_interface.graph import Graph, Node, SubGraph
from ..backend_interface.protocols import Call, Kernel
from ..devices.device import Device, ValueType
from ..dispatch.kernel_tables import OwnedKernel
from ..dispatch.modes import below_modes
from ..dtypes.definition import DType, int32
from ..executors.kernel_interpreter import Interpreting
from ..executors.library_call import called
from ..graph.rewrite import rebuild
from ..ops.definition import Spec, table
from ..system import fork_safe_locks
from ..tensor.grad_mode import GradMode
from ..tensor.tensor import Tensor, wrap
from .sized_runs import SizedRuns, check_size

MAX_STEPS: Final = 256
"""The number of graphs whose programs are kept."""
Values = Sequence[Any]
Run = Callable[[Values], Values]
_steps: OrderedDict[Any, StepProgram] = OrderedDict()
_lock = fork_safe_locks.simple()


class StepProgram:
    """The program of a graph on a device: takes values of the device, and returns some.

    Results that are operands, or equal to other results, are passed on without the device. ``lock`` is held
    while it runs: an executable serves one run at a time. ``make`` makes the executable of a request.
    """

    def __init__(
        self, graph: Graph, device: Device, make: Callable[[CompileRequest], Run] | None = None
    ) -> None:
        own: dict[Node, int] = {}
        self._sources: list[tuple[bool, int]] = []
        places = {node: k for k, node in enumerate(graph.inputs)}
        for node in graph.outputs:
            if node in places:
                self._sources.append((True, places[node]))
            else:
                self._sources.append((False, own.setdefault(node, len(own))))
        self._lock = fork_safe_locks.simple()
        self._run: Run = lambda values: ()
        if own:
            outputs = tuple([_as_value(node) for node in own])
            graph = Graph(inputs=graph.inputs, outputs=outputs)
            request = CompileRequest(graph=graph, index=device.index, calls=called(graph, device))
            lowering = plugins.backend(device.type).lowering() or Interpreting(device.type)
            self._run = (make or lowering.compile)(request)
        self._plain = self._sources == [(False, k) for k in range(len(own))]

    def __call__(self, values: Values) -> Values:
        """Run it."""
        with self._lock:
            results = self._run(values)
        if self._plain:
            return results
        return [values[k] if passed else results[k] for passed, k in self._sources]


def _as_value(node: Node) -> Node:
    """Return a node that a program may return: a constant is no value of a device."""
    if node.op != "constant":
        return node
    attrs = {"shape": (), "value": node.attrs["value"], "dtype": node.spec.dtype}
    return Node(op="full", attrs=attrs, spec=node.spec)


def step_program(graph: SubGraph, device: Device) -> StepProgram:
    """Return the program of a graph, compiled unless it is known. Open lengths are its last value."""
    key = (graph, device)
    with _lock:
        known = _steps.get(key)
        if known is not None:
            _steps.move_to_end(key)
            return known
    program = StepProgram(
        graph.graph,
        device,
        ((lambda request: SizedRuns(graph.symbols, request, device)) if graph.symbols else None),
    )
    with _lock:
        known = _steps.setdefault(key, program)
        while len(_steps) > MAX_STEPS:
            _steps.popitem(last=False)
    return known


def clear() -> None:
    """Drop every program: plugins came or went."""
    with _lock:
        _steps.clear()


plugins.on_change(clear)


def _is_true(value: Any, device: Device, dtype: DType) -> bool:
    """Return a condition: the host waits for it."""
    return bool(below_modes(lambda: wrap(value, ValueType.of(dtype, device)).item()))


def _cond(call: Call, device: Device) -> Callable[..., Any]:
    branches = call.attrs["false"], call.attrs["true"]
    dtype = call.dtypes[0]

    def run(pred: Any, *operands: Any) -> Any:
        taken = branches[_is_true(pred, device, dtype)]
        return tuple(step_program(taken, device)(operands))

    return run


def _while_loop(call: Call, device: Device) -> Callable[..., Any]:
    of_condition, of_body, _ = call.attrs["layout"]
    condition, body = (step_program(call.attrs[name], device) for name in ("condition", "body"))
    dtype = call.attrs["condition"].outputs[0].dtype

    def run(*operands: Any) -> Any:
        asked, captured = operands[:of_condition], operands[of_condition : of_condition + of_body]
        carried: Values = operands[of_condition + of_body :]
        while _is_true(condition((*asked, *carried))[0], device, dtype):
            carried = body((*captured, *carried))
        return tuple(carried)

    return run


def _scan(call: Call, device: Device) -> Callable[..., Any]:
    body: SubGraph = call.attrs["body"]
    (captured, carried, _), length, reverse = (
        call.attrs["layout"],
        call.attrs["length"],
        call.attrs["reverse"],
    )
    keep = call.attrs["keep"]
    assert call.shapes is not None
    rows = list(zip(call.shapes, call.dtypes, strict=True))[captured + carried :]
    step = _row_program(body, captured + carried, [Spec(*x) for x in rows], device)
    specs = [*body.outputs[carried:], *(body.outputs[:carried] if keep else ())]

    def run(*operands: Any) -> Any:
        consts, xs = operands[:captured], operands[captured + carried :]
        carry: Values = operands[captured : captured + carried]
        lines: list[list[Any]] = [[] for _ in specs]
        for t in range(length - 1, -1, -1) if reverse else range(length):
            results = step((*consts, *carry, *xs, t))
            ys = [*results[carried:], *(carry if keep else ())]
            carry = results[:carried]
            for line, y in zip(lines, ys, strict=True):
                line.append(y)
        if reverse:
            for line in lines:
                line.reverse()
        return (*carry, *[_stacked(line, spec, device) for line, spec in zip(lines, specs, strict=True)])

    return run


def _row_program(body: SubGraph, first: int, rows: Sequence[Spec], device: Device) -> StepProgram:
    """Return the program of one step: of the whole of what is scanned, and the number of the step."""
    inputs = [
        Node(op="input", attrs={"index": k}, spec=spec)
        for k, spec in enumerate([*body.inputs[:first], *rows])
    ]
    number = Node(op="input", attrs={"index": len(inputs), "scalar": True}, spec=Spec((), int32))
    done: dict[Node, Node] = {}
    for k, node in enumerate(body.graph.inputs):
        if k < first:
            done[node] = inputs[k]
        else:
            done[node] = Node(op="gather", inputs=(inputs[k], number), spec=node.spec)
    rebuild(body.graph, lambda node, operands: node.of(operands), done)
    graph = Graph(inputs=(*inputs, number), outputs=tuple([done[x] for x in body.graph.outputs]))
    return step_program(SubGraph(graph), device)


def _stacked(values: Values, spec: Spec, device: Device) -> Any:
    """Return values of one shape along a new axis 0."""
    kind = ValueType.of(spec.dtype, device)

    def stack() -> Tensor:
        if not values:
            attrs = {"shape": (0, *spec.shape), "value": 0, "dtype": spec.dtype, "device": device}
            empty: Tensor = table.run("full", (), attrs)
            return empty
        rows = [table.run("reshape", (wrap(v, kind),), {"shape": (1, *spec.shape)}) for v in values]
        out: Tensor = table.run("concat", rows, {"axis": 0}) if len(rows) > 1 else rows[0]
        return out

    with GradMode(False):
        return below_modes(stack)._value


def _with_size(call: Call, device: Device) -> Callable[..., Any]:
    body: SubGraph = call.attrs["body"]
    outside, most = dict(call.attrs["sizes"]), call.attrs["most"]
    dtype = call.dtypes[0]
    program = step_program(body, device)
    sizes = [outside.get(name) for name, *_ in body.symbols]

    def run(size: Any, *operands: Any) -> Any:
        number = check_size(int(below_modes(lambda: wrap(size, ValueType.of(dtype, device)).item())), most)
        return tuple(program((*operands, tuple([number if n is None else n for n in sizes]))))

    return run


_PREPARE: Final[Mapping[str, Callable[[Call, Device], Callable[..., Any]]]] = {
    "cond": _cond, "while_loop": _while_loop, "scan": _scan, "with_size": _with_size,
}  # fmt: skip


class LoopKernels(Mapping[str, OwnedKernel]):
    """The kernels of one op of control flow: there is one for every device type."""

    def __init__(self, op: str) -> None:
        self._op = op

    def __getitem__(self, device_type: str) -> OwnedKernel:
        prepare = _PREPARE[self._op]
        kernel = Kernel(name="steps", prepare=lambda call: prepare(call, Device(device_type, call.index)))
        return "tensorbus", kernel

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
