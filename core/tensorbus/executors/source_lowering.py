"""Programs in a device's own language: generated kernels and eager ones, launched in order.

Nothing waits between launches; the device's queue keeps their order. A program is made for the layouts that
its inputs have, and kept for when they come again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

from ..backend_interface.compilation import CompileRequest, Executable, Knob, ProgramPart
from ..backend_interface.graph import Graph
from ..backend_interface.strided_array import StridedArray
from ..devices.device import Device
from ..dtypes.definition import DType, float32
from ..errors import DeviceError
from ..kernels.from_dialect import Compiler, common_buffer, pack
from ..lowering.codegen.render import render
from ..lowering.ir.builder import RuntimeArg, fit
from ..lowering.ir.kernel_task import KernelLaunch, LibraryCall
from ..lowering.ir.layout import Layout, packed
from ..lowering.ir.verify import verify
from ..lowering.library import Library
from ..lowering.program.lower import lower
from ..lowering.program.program import Program, parts_of, slots_of, steps_of
from ..ops.matmul.matmul_epilogue import NAME as AFFINE
from .legalize import LegalizeContext, is_generated, legalize
from .library_call import has_kernel, into_kernel, library_call
from .replay_interface import Player, Queued, Script

MAX_KNOWN_PROGRAMS: Final = 64
Buffers = list[Any]
Queue = Callable[[Sequence[Any], Buffers], Any]
"""A function that queues a step, of the values and buffers of the run; returns an event, if there are any."""
_CALL_HOOKS: Final = {
    "row_stride": "apart", "axis_orders": "orders", "side_output": "leaves", "prefers_generated": "generates",
}  # fmt: skip
"""What a compiler may say of library calls, see ``Library``, each with its former name."""
_HELD: Final = (3, 3)
"""References to an input, and to its buffer, where a tensor's cell, the values and ``run`` hold them."""


class DialectLowering:
    """The lowering of a device with a compiler for generated source.

    ``library`` names the ops that its eager kernels do better than what is generated; ``served`` those for
    which that holds in programs in which a kernel of the device serves every one. The compiler may have
    ``knobs(index)``, choices for core to measure: fields of the dialect's target by their names, and
    ``most``, the most items of a group in each launch; ``player(script)``, which says of a program how it
    is run as a whole, or None; and ``row_stride``, ``axis_orders``, ``side_output`` and
    ``prefers_generated``, those of ``Library``.
    """

    def __init__(
        self, compiler: Compiler, device_type: str, library: Collection[str] = (),
        served: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.compiler = compiler
        self.device_type = device_type
        self.library = frozenset(library)
        self.served = frozenset(served)
        self.modes: Mapping[str, str] = getattr(compiler, "modes", {})

    def knobs(self, order: CompileRequest) -> Sequence[Knob]:
        """Return what the device leaves to measuring."""
        declared = getattr(self.compiler, "knobs", None)
        every: Sequence[Knob] = declared(order.index) if declared is not None else ()
        ops = {node.op for node in order.graph} if any(knob.ops for knob in every) else frozenset()
        return [knob for knob in every if not knob.ops or knob.ops & ops]

    def compile(self, order: CompileRequest) -> Executable:
        """Return the executable of a program; where the language lacks a dtype, its ops are eager kernels."""
        dialect = self.compiler.dialect(order.index)
        nodes = [node for node in order.graph if node.op in self.served]
        device = Device(self.device_type, order.index)
        left = {node.op for node in nodes if not has_kernel(node, device)}
        library = self.library | order.calls | ({node.op for node in nodes} - left)
        fuses = AFFINE in self.served
        library |= {AFFINE} if fuses else set()
        context = LegalizeContext(
            keeps=lambda op: op in library or is_generated(op, dialect), dtypes=dialect.types,
            serves=(lambda node: has_kernel(node, device)) if fuses else None,
            row_per_task=dialect.target.row_per_task,
        )  # fmt: skip
        graph = legalize(order.graph, context)
        return DialectExecutable(self, graph, order, library)


class DialectExecutable:
    """A program, called with values of the device: ``StridedArray``, and Python numbers."""

    def __init__(
        self, lowering: DialectLowering, graph: Graph, order: CompileRequest, library: frozenset[str]
    ) -> None:
        self._lowering = lowering
        self._library = library
        self._graph = graph
        self._order = order
        self._known: dict[Any, _Bound] = {}
        first = self._bound([
            None if "scalar" in node.attrs else packed(k, node.spec.shape)
            for k, node in enumerate(graph.inputs)
        ])  # fmt: skip
        self._known[first.key] = self._packed = first
        self._arrays = [k for k, node in enumerate(graph.inputs) if "scalar" not in node.attrs]
        self._last: tuple[Any, _Bound] = (None, first)
        program = first.program
        self._stages = {
            "graph": str(graph), "schedules": program.schedules(), "loops": str(program), "code": first.source
        }  # fmt: skip

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Queue the program. A bad index is reported when somebody waits for it, as eagerly."""
        # Weights lie where they lay: the same tuples are equal at once, and a key of all takes long to make.
        lies = [values[k].strides for k in self._arrays], [values[k].offset for k in self._arrays]
        known, bound = self._last
        if lies != known:
            bound = self._for_layouts(values)
            self._last = lies, bound
        return bound.run(values)

    def _for_layouts(self, values: Sequence[Any]) -> _Bound:
        """Return the program for values that lie like these."""
        key = tuple([(v.strides, v.offset != 0) if type(v) is StridedArray else None for v in values])
        bound = self._known.get(key)
        if bound is None:
            if len(self._known) >= MAX_KNOWN_PROGRAMS:
                self._known.clear()
            bound = self._known[key] = self._bound([
                Layout(k, v.shape, v.strides, 0, k if v.offset else None) if type(v) is StridedArray else None
                for k, v in enumerate(values)
            ])  # fmt: skip
        return bound

    def stages(self) -> Mapping[str, str]:
        """Return the graph, the loops and the source of the program for packed values."""
        return self._stages

    def parts(self) -> Sequence[ProgramPart]:
        """Return the steps of the program for packed values."""
        return self._packed.parts()

    def times(self, values: Sequence[Any]) -> Mapping[str, float]:
        """Run the program for packed values; return the seconds of each step on the device."""
        compiler, index = self._lowering.compiler, self._order.index
        return self._packed.times(
            [pack(compiler, v, index) if type(v) is StridedArray else v for v in values]
        )

    def _bound(self, layouts: Sequence[Layout | None]) -> _Bound:
        return _Bound(self._lowering, self._graph, self._order, layouts, self._library)


class _Bound:
    """A program for one pattern of layouts."""

    def __init__(
        self, lowering: DialectLowering, graph: Graph, order: CompileRequest,
        layouts: Sequence[Layout | None], library: frozenset[str],
    ) -> None:  # fmt: skip
        self.compiler, self.index = lowering.compiler, order.index
        self._device = Device(lowering.device_type, order.index)
        self._graph = graph
        self._chosen = order.chosen
        dialect = self.compiler.dialect(self.index)
        target = dialect.target.tuned(order.chosen)
        self.key = tuple([None if x is None else (x.strides, x.late is not None) for x in layouts])
        self.program: Program = lower(
            graph, layouts, target, library=self._calls(library, dialect.types), replaces=order.replaces
        )
        self._sources = {id(kernel): render(kernel, dialect) for kernel in self.program.kernels()}
        for kernel in self.program.kernels():
            verify(kernel)
        build = getattr(self.compiler, "build", None)
        if build is not None:
            build(list(self._sources.values()), self.index)
        self._bytes = {slot: size * dtype.itemsize for slot, (size, dtype) in self.program.sizes.items()}
        self._count = max((len(layouts), *(slot + 1 for slot in self._bytes)))
        self._over = self._overwritten(layouts)
        over = {slot for slot, _ in self._over}
        written: set[int] = set()
        self._ahead: list[int] = []
        self._steps: list[tuple[Sequence[Queue], tuple[int, ...]]] = []
        self._names: list[str] = []
        self._queued: list[Queued] = []
        for item, frees in zip(self.program.steps, self.program.frees, strict=True):
            runs: list[Queue] = []
            if isinstance(item, LibraryCall):
                self._names.append(f"{len(self._names)} call {item.op}")
                runs.append(self._call(item))
                written.update(slots_of(item)[1])
            for step in steps_of(item):
                self._names.append(f"{len(self._names)} {step.launch.kernel.name}")
                new = tuple(s for s in dict.fromkeys(step.slots) if s in self._bytes and s not in written)
                written.update(new)
                if self._ahead or over & set(new):
                    self._ahead += new
                runs.append(self._launch(step, new))
            self._steps.append((runs, frees))
        player = getattr(self.compiler, "player", None)
        script = Script(self.program, self._queued, self._bytes, self.index, order.mode)
        self._player: Player | None = player(script) if player is not None else None
        self._empty = tuple({x.slot for x in self.program.outputs if x.slot in self._bytes} - written)
        self._alone = self._single(len(layouts))

    def _calls(self, ops: frozenset[str], dtypes: Collection[DType]) -> Library:
        named = {
            name: getattr(self.compiler, name, None) or getattr(self.compiler, former, None)
            for name, former in _CALL_HOOKS.items()
        }
        return Library(ops, dtypes, **{name: how for name, how in named.items() if how is not None})

    def _overwritten(self, layouts: Sequence[Layout | None]) -> list[tuple[int, int]]:
        """Return the slots of outputs that may lie over inputs, and those inputs.

        No eager kernel that makes its results itself and may fail comes after the first writer of them.
        """
        if getattr(self.compiler, "is_own", None) is None:
            return []
        pairs: list[tuple[int, int]] = []
        for out, place in self.program.replaceable.items():
            layout = layouts[place]
            if layout is not None and layout.is_contiguous and layout.late is None:
                pairs.append((self.program.outputs[out].slot, place))
        slots = {slot for slot, _ in pairs}
        begun = False
        for item in self.program.steps:
            if begun and isinstance(item, LibraryCall) and into_kernel(item, self._device) is None:
                return []
            begun = begun or any(slots & set(step.slots) for step in steps_of(item))
        return pairs

    @property
    def source(self) -> str:
        """The source of all kernels."""
        return "\n".join(self._sources.values())

    def _single(self, count: int) -> Callable[[Sequence[Any]], Sequence[Any]] | None:
        """Return what runs a program that is one launch of arrays, with as little as that takes."""
        outputs, step = self.program.outputs, self.program.steps[0] if self.program.steps else None
        if len(self.program.steps) != 1 or not isinstance(step, KernelLaunch) or self._over or self._empty:
            return None
        (queued,) = self._queued
        launch, late = queued.launch, any(x.late is not None for x in outputs) or queued.late
        own = [x.slot for x in outputs]
        if launch is None or late or None in self.key or {*self._bytes} != {*own} or len({*own}) < len(own):
            return None
        if not {*step.slots} <= {*range(count), *own} or not all(self._bytes.values()):
            return None
        order = [s if s < count else count + own.index(s) for s in step.slots]
        outs = [
            (self._bytes[x.slot], x.shape, x.strides, x.offset, node.spec.dtype)
            for x, node in zip(outputs, self._graph.outputs, strict=True)
        ]
        allocate, index = self.compiler.allocate, self.index

        def run(values: Sequence[Any]) -> Sequence[Any]:
            blocks = [v.buffer for v in values]
            blocks += [allocate(nbytes, index) for nbytes, *_ in outs]
            launch([blocks[k] for k in order], ())
            return [
                StridedArray(block, shape, strides, offset, dtype)
                for block, (_, shape, strides, offset, dtype) in zip(blocks[count:], outs, strict=True)
            ]

        return run

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        if self._alone is not None:
            return self._alone(values)
        buffers = self._input_buffers(values)
        if self._over:
            self._take(values, buffers)
        if self._player is not None and self._player.play(values, buffers):
            return self._results(values, buffers)
        for steps, frees in self._steps:
            for step in steps:
                step(values, buffers)
            for slot in frees:
                buffers[slot] = None
        return self._results(values, buffers)

    def _input_buffers(self, values: Sequence[Any]) -> Buffers:
        """Return the buffers by slot, as they are before the first step."""
        buffers: Buffers = [v.buffer if type(v) is StridedArray else None for v in values]
        return buffers + [None] * (self._count - len(buffers))

    def parts(self) -> Sequence[ProgramPart]:
        """Return the steps in order."""
        return parts_of(self.program, self._sources)

    def times(self, values: Sequence[Any]) -> Mapping[str, float]:
        """Run the program; return the seconds of each step: the device's own, or those until it is done."""
        seconds = getattr(self.compiler, "seconds", None)
        wait = self._device.runtime.synchronize
        buffers = self._input_buffers(values)
        wait(self.index)
        marks: list[Any] = []
        for steps, frees in self._steps:
            for step in steps:
                start = perf_counter()
                event = step(values, buffers)
                if seconds is None or event is None:
                    wait(self.index)
                    event = perf_counter() - start
                marks.append(event)
            for slot in frees:
                buffers[slot] = None
        wait(self.index)
        durations = [x if seconds is None or isinstance(x, float) else seconds(x) for x in marks]
        return dict(zip(self._names, durations, strict=True))

    def _take(self, values: Sequence[Any], buffers: Buffers) -> None:
        """Let outputs lie over inputs that nobody else holds.

        What is made from the first of them on is made now: afterwards there may be no memory for it.
        """
        held, is_own, index = sys.getrefcount, self.compiler.is_own, self.index  # type: ignore[attr-defined]
        for slot, place in self._over:
            buffer = buffers[place]
            if held(values[place]) == _HELD[0] and held(buffer) == _HELD[1] + 1 and is_own(buffer, index):
                buffers[slot] = buffer
        for slot in self._ahead:
            if buffers[slot] is None:
                buffers[slot] = self._allocate(slot)

    def _results(self, values: Sequence[Any], buffers: Buffers) -> Sequence[Any]:
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

    def _launch(self, step: KernelLaunch, new: tuple[int, ...]) -> Queue:
        """Return what launches a kernel, making the buffers in ``new`` first."""
        most = self._chosen.get(f"most@{self._names[-1]}", self._chosen.get("most", 0))
        launch, slots = replace(step.launch, most=most), step.slots
        kernel = launch.kernel
        values: list[Any] = []
        late: list[Callable[[Sequence[Any]], Any]] = []
        for value in launch.values:
            if isinstance(value, RuntimeArg) and value.what == "code":
                value = self.compiler.error_code(value.op)
            elif isinstance(value, RuntimeArg):
                late.append(self._reader(value))
            values.append(value)
        source = self._sources[id(kernel)]
        launch = replace(launch, values=tuple(values))
        run = self.compiler.prepare(source, launch, self.index)
        allocate, compiler, index = self._allocate, self.compiler, self.index

        def plain(values: Sequence[Any], buffers: Buffers) -> Any:
            for slot in new:
                if buffers[slot] is None:
                    buffers[slot] = allocate(slot)
            return run([buffers[s] for s in slots], [read(values) for read in late] if late else ())

        def shared(values: Sequence[Any], buffers: Buffers) -> Any:
            for slot in new:
                if buffers[slot] is None:
                    buffers[slot] = allocate(slot)
            arguments = [common_buffer(compiler, s, index) if s < 0 else buffers[s] for s in slots]
            return run(arguments, [read(values) for read in late])

        self._queued.append(
            Queued(
                slots=slots, written=frozenset(slots_of(step)[1]), launch=run, late=tuple(late),
                source=source, what=launch,
            )
        )  # fmt: skip
        return shared if min(slots, default=0) < 0 else plain

    def _reader(self, late: RuntimeArg) -> Callable[[Sequence[Any]], Any]:
        operand, plus = late.operand, late.plus
        if late.what == "offset":
            return lambda values: values[operand].offset + plus
        dtype = self._graph.inputs[operand].spec.dtype
        if dtype.kind == "float":
            return lambda values: float(values[operand].real)
        return lambda values: fit(values[operand], dtype)

    def _call(self, call: LibraryCall) -> Queue:
        """Return what runs an eager kernel, whose results are then the buffers of its slots."""
        kernel = library_call(call, self._device)
        way = self._chosen.get(f"way@{self._names[-1]}", self._chosen.get("way", 0))
        into = into_kernel(call, self._device, way)
        inputs, specs, outputs = call.inputs, call.specs, call.outputs
        if call.side_output is not None:
            outputs = (*outputs, call.side_output)
        compiler, index, allocate = self.compiler, self.index, self._allocate

        def operands(values: Sequence[Any], buffers: Buffers) -> list[Any]:
            return [
                values[x.operand] if isinstance(x, RuntimeArg) else StridedArray(
                    buffers[x.slot], x.shape, x.strides,
                    x.offset if x.late is None else x.offset + values[x.late].offset, spec.dtype,
                )
                for x, spec in zip(inputs, specs, strict=True)
            ]  # fmt: skip

        def taken(buffers: Buffers) -> list[Any]:
            if call.side_input is None:
                return []
            return [StridedArray(buffers[call.side_input], (call.side_size,), (1,), 0, float32)]

        def direct(values: Sequence[Any], buffers: Buffers) -> bool:
            arguments = [*operands(values, buffers), *taken(buffers)]
            return into is not None and into(arguments, [buffers[s] for s in outputs])

        read, written = slots_of(call)
        slots = (*sorted(read), *sorted(written - read))
        call_of = direct if into is not None else None
        self._queued.append(Queued(slots=slots, written=frozenset(written), call=call_of))

        def run(values: Sequence[Any], buffers: Buffers) -> None:
            if into is not None:
                for slot in outputs:
                    if buffers[slot] is None:
                        buffers[slot] = allocate(slot)
                if direct(values, buffers):
                    return
            arguments = operands(values, buffers)
            if call.row_stride or call.layouts or call.side_size:
                whole = [*[pack(compiler, x, index) for x in arguments], *taken(buffers)]
                if into is None or not into(whole, [buffers[s] for s in outputs]):
                    raise DeviceError(
                        f"{call.op}: the device's kernel does not place its results where they are wanted."
                    )
                return
            for slot, out in zip(outputs, kernel(arguments), strict=True):
                buffers[slot] = pack(compiler, out, index).buffer

        return run
