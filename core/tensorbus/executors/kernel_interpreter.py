"""Programs run kernel by kernel: what a device without a lowering of its own gets.

Kernels are chosen once, when the program is compiled; a run is a Python function of one call for each op. It
gives what the same ops give eagerly, bit for bit, and lets every value go after its last use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from types import TracebackType
from typing import Any, Final

from ..backend_interface.compilation import CompileRequest, Executable, ProgramPart
from ..backend_interface.graph import Graph, Node
from ..decompose.decompose import decompose
from ..decompose.tracer import OPS
from ..devices.device import Device, ValueType
from ..dispatch.plan import Plan, plan
from ..dtypes.definition import DType
from ..errors import DeviceError, OutOfMemoryError, TensorbusError
from ..graph.evaluate import evaluate
from ..graph.passes.simplify import frozen
from ..interchange.host_array import asarray
from ..ops.definition import Op, table
from ..ops.fused_update import is_fused_update

_INDENT: Final = "    "


class Interpreting:
    """The lowering of a device type whose kernels are all that it has."""

    modes: Final = {
        "reduce-overhead": "nothing to gain: a run is one Python function already, a call for each kernel"
    }

    def __init__(self, device_type: str) -> None:
        self.device_type = device_type

    def compile(self, order: CompileRequest) -> Executable:
        """Return the program as calls of kernels. Raises ``UnsupportedOpError`` where there is none."""
        graph = decompose(order.graph, lambda op: not is_fused_update(op))
        return Interpreted(graph, Device(self.device_type, order.index))


class Interpreted:
    """A program as a Python function, one line for each kernel."""

    def __init__(self, graph: Graph, device: Device) -> None:
        writer = _Writer(graph, device)
        self.source = writer.source()
        self._nodes = writer.nodes
        self._first = writer.plans
        self._by = writer.by
        self._device = device
        names = dict(writer.names)
        exec(compile(self.source, "<tensorbus program>", "exec"), names)
        self._names = names
        self._run: Callable[[Sequence[Any]], tuple[Any, ...]] = names["run"]
        self._graph = str(graph)

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run the program. Raises what its kernels raise, naming the op."""
        try:
            results = self._run(values)
        except TensorbusError:
            raise
        except Exception as error:
            raise self._explained(error) from error
        if self._first:  # what kernels return has been examined
            self._names.update({name: first.run for name, first in self._first.items()})
            self._first = {}
        return results

    def stages(self) -> Mapping[str, str]:
        """Return the graph and the function."""
        return {"graph": self._graph, "calls": self.source}

    def parts(self) -> Sequence[ProgramPart]:
        """Return the kernels that are called, in order."""
        lines = self.source.splitlines()
        return [
            ProgramPart(name=name, text=f"{node.spec} = {lines[at - 1].strip()}", ops=(node.op,))
            for (at, node), name in zip(self._nodes.items(), self._labels(), strict=True)
        ]

    def times(self, values: Sequence[Any]) -> Mapping[str, float]:
        """Run the program, waiting after each kernel; return the seconds of each."""
        lines = self.source.splitlines()
        for at in sorted(self._nodes, reverse=True):
            lines.insert(at, f"{_INDENT}mark()")
        wait, index = self._device.runtime.synchronize, self._device.index
        ends: list[float] = []

        def mark() -> None:
            wait(index)
            ends.append(perf_counter())

        names = {**self._names, "mark": mark}
        exec(compile("\n".join(lines), "<tensorbus program, timed>", "exec"), names)
        mark()
        names["run"](values)
        return {name: stop - start for name, start, stop in zip(self._labels(), ends, ends[1:], strict=False)}

    def _labels(self) -> list[str]:
        return [f"{k} {node.op}" for k, node in enumerate(self._nodes.values())]

    def _explained(self, error: Exception) -> Exception:
        node = self._nodes.get(_line(error.__traceback__, self._run))
        if node is None:
            return error
        operands = ", ".join(str(x.spec) for x in node.inputs if not _is_number(x))
        where = f"{node.op}({operands}) on {self._device}"
        if isinstance(error, MemoryError):
            return OutOfMemoryError(f"{where}: the device has no memory left for the result. {error}")
        return DeviceError(f"{where}: {self._by[id(node)]} failed with {type(error).__name__}: {error}")


def _line(at: TracebackType | None, function: Any) -> int:
    while at is not None:
        if at.tb_frame.f_code is function.__code__:
            return at.tb_lineno
        at = at.tb_next
    return 0


def _is_number(node: Node) -> bool:
    """Return whether a node is a Python number, of the program or of each run."""
    return node.op == "constant" or (node.op == "input" and "scalar" in node.attrs)


class _Writer:
    """The state of a program that is being written. ``names`` are what its source refers to."""

    def __init__(self, graph: Graph, device: Device) -> None:
        self.graph = graph
        self.device = device
        self.names: dict[str, Any] = {"asarray": self._array}
        self.nodes: dict[int, Node] = {}
        self.plans: dict[str, Plan] = {}
        self.by: dict[int, str] = {}
        self._lines: list[tuple[Node | None, str, tuple[str, ...], str]] = []
        self._arrays: dict[int, str] = {}
        self._alive: list[tuple[Node, ...]] = []  # nodes are known by their ids
        self._plans: dict[Any, Plan] = {}
        self._count = 0

    def source(self) -> str:
        """Return the function's source."""
        inputs = [self._new("a") for _ in self.graph.inputs]
        where = evaluate(self.graph, inputs, self._write)
        results = [self._as_array(node, where) for node in self.graph.outputs]
        head = ["def run(values):" + (f"\n{_INDENT}{', '.join(inputs)}, = values" if inputs else "")]
        head.append(f"{_INDENT}return ({''.join(f'{r}, ' for r in results)})")
        return "\n".join([head[0], *self._body(results, 2 + bool(inputs)), head[1], ""])

    def _body(self, results: Sequence[str], start: int) -> list[str]:
        """Return the lines; each lets go what no later one reads."""
        live = set(results)
        lines: list[str] = []
        for _, out, operands, text in reversed(self._lines):
            ended = sorted({*operands, out} - live)
            live.update(operands)
            lines.append(f"{_INDENT}{out} = {text}" + (f"; del {', '.join(ended)}" if ended else ""))
        for k, (node, *_) in enumerate(self._lines):
            if node is not None:
                self.nodes[start + k] = node
        return lines[::-1]

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _line(self, node: Node | None, operands: Sequence[str], text: str) -> str:
        out = self._new("t")
        self._lines.append((node, out, tuple(operands), text))
        return out

    def _write(self, node: Node, where: Mapping[Node, str]) -> str:
        if node.op == "constant":
            name = self._new("c")
            self.names[name] = node.attrs["value"]
            return name
        if node.op == "result":
            whole = where[node.inputs[0]]
            return self._line(None, (whole,), f"{whole}[{node.attrs['index']}]")
        op = table[node.op]
        kinds: list[ValueType | type] = []
        operands: list[str] = []
        scalars = self._scalars(node)
        for x in node.inputs:
            if id(x) in scalars:
                kinds.append(scalars[id(x)])
                operands.append(where[x])
            else:
                kinds.append(ValueType.of(x.spec.dtype, self.device))
                operands.append(self._as_array(x, where))
        shapes = None if op.broadcasts else [x.spec.shape for x in node.inputs]
        attrs = {**node.attrs, "device": self.device} if op.family == "creation" else node.attrs
        node_plan = self._plan(op, kinds, shapes, attrs, tuple(x.spec.dtype for x in node.inputs))
        if node_plan.run is None:
            return self._decomposed(node, operands)
        kernel = self._new(f"k_{node.op.replace('::', '_')}_")
        self.names[kernel] = node_plan.run
        self.plans[kernel] = node_plan
        self.by[id(node)] = node_plan.kernel or "the kernel"
        local = [x for x in operands if x not in self.names]
        return self._line(node, local, f"{kernel}({', '.join(operands)})")

    def _plan(
        self, op: Op[...], kinds: Sequence[ValueType | type], shapes: Sequence[tuple[int, ...]] | None,
        attrs: Mapping[str, Any], computed: tuple[DType, ...],
    ) -> Plan:  # fmt: skip
        """Return how an op runs: what equal layers do is planned once."""
        try:
            key = (op.name, tuple(kinds), None if shapes is None else tuple(shapes), frozen(attrs), computed)
            node_plan = self._plans.get(key)
        except TypeError:  # an attribute that does not hash
            return plan(op, kinds, shapes, attrs, computed)
        if node_plan is None:
            node_plan = self._plans[key] = plan(op, kinds, shapes, attrs, computed)
        return node_plan

    def _scalars(self, node: Node) -> dict[int, type]:
        """Return the operands that a kernel takes as Python numbers: an elementwise one's, but for one."""
        if table[node.op].family != "elementwise":
            return {}
        scalars = {id(x): _kind(x) for x in node.inputs if _is_number(x)}
        if len({id(x) for x in node.inputs}) == len(scalars):
            return {}
        # A number takes the dtype of the others; where it has another one here, it is an array.
        computed = {x.spec.dtype for x in node.inputs}
        return scalars if len(computed) == 1 else {}

    def _as_array(self, x: Node, where: Mapping[Node, str]) -> str:
        """Return the name of a value of the device, made of a number where need be."""
        if not _is_number(x):
            return where[x]
        known = self._arrays.get(id(x))
        if known is None:
            if x.op == "constant":
                known = self._new("c")
                self.names[known] = self._array(x.attrs["value"], x.spec.dtype)
            else:
                dtype = self._new("d")
                self.names[dtype] = x.spec.dtype
                known = self._line(None, (where[x],), f"asarray({where[x]}, {dtype})")
            self._arrays[id(x)] = known
        return known

    def _array(self, value: Any, dtype: DType) -> Any:
        return asarray(value, dtype=dtype, device=self.device)._value

    def _decomposed(self, node: Node, operands: Sequence[str]) -> str:
        """Write the decomposition of a node, as the eager op would run it."""
        op = table[node.op]
        arguments: list[Any] = []
        inputs: dict[Node, str] = {}
        for x, name in zip(node.inputs, operands, strict=True):
            if x.op == "constant" and op.family == "elementwise":
                arguments.append(x.attrs["value"])
                continue
            stand_in = Node(op="input", spec=x.spec)
            inputs[stand_in] = name
            arguments.append(OPS.wrap(stand_in))
        roots = OPS.run_decomposition(op, arguments, node.attrs)
        self._alive.append(roots)
        where = evaluate(Graph(inputs=tuple(inputs), outputs=roots), [*inputs.values()], self._write)
        results = [self._as_array(x, where) for x in roots]
        if not op.results:
            return results[0]
        local = [x for x in results if x not in self.names]
        return self._line(None, local, f"({', '.join(results)},)")


def _kind(x: Node) -> type:
    """Return the type of a number as dispatch knows it."""
    if x.op == "constant":
        return type(x.attrs["value"])
    kind = x.spec.dtype.kind
    return bool if kind == "bool" else complex if kind == "complex" else float if kind == "float" else int
