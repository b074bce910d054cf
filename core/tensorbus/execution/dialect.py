"""Programs in a device's own language: generated kernels and eager ones, launched in order.

Nothing waits between launches; the device's queue keeps their order. A program is made for the layouts that
its inputs have, and kept for when they come again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..device import Device
from ..graph.graph import Graph
from ..kernels.from_dialect import Compiler, pack
from ..lowering.builder import Late, Launch, fit
from ..lowering.job import ERROR_SLOT
from ..lowering.layout import Layout, packed
from ..lowering.program import lower
from ..lowering.render import render
from ..lowering.steps import Call, Program, steps_of
from ..lowering.verify import verify
from ..runtime import Executable, Order
from ..strided import StridedArray
from .interpret import Interpreting
from .library import library_call
from .prepared import is_generated, prepared

MANY: Final = 64
Buffers = list[Any]


class DialectLowering:
    """The lowering of a device with a compiler for generated source.

    ``library`` names the ops that its eager kernels do better than what is generated.
    """

    def __init__(self, compiler: Compiler, device_type: str, library: Collection[str] = ()) -> None:
        self.compiler = compiler
        self.device_type = device_type
        self.library = frozenset(library)

    def compile(self, order: Order) -> Executable:
        """Return the executable of a program; of kernels alone where the language lacks one of its dtypes."""
        dialect = self.compiler.dialect(order.index)
        graph = prepared(order.graph, lambda op: op in self.library or is_generated(op))
        if any(node.spec.dtype not in dialect.types for node in graph):
            return Interpreting(self.device_type).compile(order)
        return DialectExecutable(self, graph, order)


class DialectExecutable:
    """A program, called with values of the device: ``StridedArray``, and Python numbers."""

    def __init__(self, lowering: DialectLowering, graph: Graph, order: Order) -> None:
        self._lowering = lowering
        self._graph = graph
        self._order = order
        self._known: dict[Any, _Bound] = {}
        first = self._bound([
            None if "scalar" in node.attrs else packed(k, node.spec.shape)
            for k, node in enumerate(graph.inputs)
        ])  # fmt: skip
        self._known[first.key] = first
        self._stages = {"graph": str(graph), "loops": str(first.program), "code": first.source}

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Queue the program. A bad index is reported when somebody waits for it, as eagerly."""
        key = tuple([(v.strides, v.offset != 0) if type(v) is StridedArray else None for v in values])
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MANY:
                self._known.clear()
            found = self._known[key] = self._bound([
                Layout(k, v.shape, v.strides, 0, k if v.offset else None) if type(v) is StridedArray else None
                for k, v in enumerate(values)
            ])  # fmt: skip
        return found.run(values)

    def stages(self) -> Mapping[str, str]:
        """Return the graph, the loops and the source of the program for packed values."""
        return self._stages

    def _bound(self, layouts: Sequence[Layout | None]) -> _Bound:
        return _Bound(self._lowering, self._graph, self._order, layouts)


class _Bound:
    """A program for one pattern of layouts."""

    def __init__(
        self, lowering: DialectLowering, graph: Graph, order: Order, layouts: Sequence[Layout | None]
    ) -> None:
        self.compiler, self.index = lowering.compiler, order.index
        self._device = Device(lowering.device_type, order.index)
        self._graph = graph
        dialect = self.compiler.dialect(self.index)
        self.key = tuple([None if x is None else (x.strides, x.late is not None) for x in layouts])
        self.program: Program = lower(
            graph, layouts, dialect.target, library=lowering.library, replaces=order.replaces
        )
        self._sources = {id(kernel): render(kernel, dialect) for kernel in self.program.kernels()}
        for kernel in self.program.kernels():
            verify(kernel)
        build = getattr(self.compiler, "build", None)
        if build is not None:
            build(list(self._sources.values()), self.index)
        self._bytes = {slot: size * dtype.itemsize for slot, (size, dtype) in self.program.sizes.items()}
        self._count = max((len(layouts), *(slot + 1 for slot in self._bytes)))
        made: set[int] = set()
        self._steps: list[tuple[Sequence[Callable[[Sequence[Any], Buffers], None]], tuple[int, ...]]] = []
        for item, frees in zip(self.program.steps, self.program.frees, strict=True):
            runs = []
            if isinstance(item, Call):
                runs.append(self._call(item))
                made.update(item.outputs)
            for step in steps_of(item):
                new = tuple(s for s in dict.fromkeys(step.slots) if s in self._bytes and s not in made)
                made.update(new)
                runs.append(self._launch(step.launch, step.slots, new))
            self._steps.append((runs, frees))
        self._empty = tuple({x.slot for x in self.program.outputs if x.slot in self._bytes} - made)

    @property
    def source(self) -> str:
        """The source of all kernels."""
        return "\n".join(self._sources.values())

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        buffers: Buffers = [None] * self._count
        for k, v in enumerate(values):
            if type(v) is StridedArray:
                buffers[k] = v.buffer
        for steps, frees in self._steps:
            for step in steps:
                step(values, buffers)
            for slot in frees:
                buffers[slot] = None
        for slot in self._empty:
            buffers[slot] = self._allocate(slot)
        return [
            StridedArray(
                buffers[x.slot], x.shape, x.strides,
                x.offset if x.late is None else x.offset + values[x.late].offset, node.spec.dtype,
            )
            for x, node in zip(self.program.outputs, self._graph.outputs, strict=True)
        ]  # fmt: skip

    def _allocate(self, slot: int) -> Any:
        nbytes = self._bytes[slot]
        return self.compiler.allocate(nbytes, self.index) if nbytes else None

    def _launch(
        self, launch: Launch, slots: tuple[int, ...], new: tuple[int, ...]
    ) -> Callable[[Sequence[Any], Buffers], None]:
        """Return what launches a kernel, making the buffers in ``new`` first."""
        kernel = launch.kernel
        values: list[Any] = []
        late: list[Callable[[Sequence[Any]], Any]] = []
        for value in launch.values:
            if isinstance(value, Late) and value.what == "code":
                value = self.compiler.error_code(value.op)
            elif isinstance(value, Late):
                late.append(self._reader(value))
            values.append(value)
        source = self._sources[id(kernel)]
        run = self.compiler.prepare(source, replace(launch, values=tuple(values)), self.index)
        allocate, compiler, index = self._allocate, self.compiler, self.index

        def plain(values: Sequence[Any], buffers: Buffers) -> None:
            for slot in new:
                buffers[slot] = allocate(slot)
            run([buffers[s] for s in slots], [read(values) for read in late] if late else ())

        def reporting(values: Sequence[Any], buffers: Buffers) -> None:
            for slot in new:
                buffers[slot] = allocate(slot)
            given = [compiler.errors(index) if s == ERROR_SLOT else buffers[s] for s in slots]
            run(given, [read(values) for read in late])

        return reporting if ERROR_SLOT in slots else plain

    def _reader(self, late: Late) -> Callable[[Sequence[Any]], Any]:
        operand, plus = late.operand, late.plus
        if late.what == "offset":
            return lambda values: values[operand].offset + plus
        dtype = self._graph.inputs[operand].spec.dtype
        return lambda values: fit(values[operand], dtype)

    def _call(self, call: Call) -> Callable[[Sequence[Any], Buffers], None]:
        """Return what runs an eager kernel, whose results are then the buffers of its slots."""
        kernel = library_call(call, self._device)
        inputs, specs, outputs = call.inputs, call.specs, call.outputs
        compiler, index = self.compiler, self.index

        def run(values: Sequence[Any], buffers: Buffers) -> None:
            given = [
                values[x.operand] if isinstance(x, Late) else StridedArray(
                    buffers[x.slot], x.shape, x.strides,
                    x.offset if x.late is None else x.offset + values[x.late].offset, spec.dtype,
                )
                for x, spec in zip(inputs, specs, strict=True)
            ]  # fmt: skip
            for slot, out in zip(outputs, kernel(given), strict=True):
                buffers[slot] = pack(compiler, out, index).buffer

        return run
