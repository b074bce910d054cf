"""A lowered program on a device with a compiler for generated source: its steps, and what runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

from ..backend_interface.compilation import CompileRequest, ProgramPart
from ..backend_interface.graph import Graph
from ..backend_interface.strided_array import StridedArray
from ..devices.device import Device
from ..dtypes.definition import float32
from ..errors import DeviceError
from ..kernels.from_dialect import pack
from ..kernels.generated_program import Compiler, common_buffer
from ..lowering.codegen.render import render
from ..lowering.ir.builder import Launch, RuntimeArg, fit
from ..lowering.ir.kernel_task import KernelLaunch, LibraryCall
from ..lowering.ir.layout import Layout
from ..lowering.ir.verify import verify
from ..lowering.library import Library
from ..lowering.program.lower import lower
from ..lowering.program.program import Program, parts_of, slots_of, steps_of
from ..ops.definition import AFTER, table
from .library_call import into_kernel, library_call
from .overwriting import Overwriting
from .replay_interface import Player, Queued, Script

Buffers = list[Any]
Queue = Callable[[Sequence[Any], Buffers], Any]
"""A function that queues a step, of the values and buffers of the run; returns an event, if there are any."""
_CALL_HOOKS: Final = {
    "row_stride": "apart", "axis_orders": "orders", "side_output": "leaves", "prefers_generated": "generates",
}  # fmt: skip
"""What a compiler may say of library calls, see ``Library``, each with its former name."""


def lowered(
    compiler: Compiler, graph: Graph, order: CompileRequest, layouts: Sequence[Layout | None],
    library: frozenset[str],
) -> tuple[Program, dict[int, str]]:  # fmt: skip
    """Return the program of a graph for these layouts, and the source of each kernel by its id."""
    dialect = compiler.dialect(order.index)
    named = {
        name: getattr(compiler, name, None) or getattr(compiler, former, None)
        for name, former in _CALL_HOOKS.items()
    }
    calls = Library(library, dialect.types, **{name: how for name, how in named.items() if how is not None})
    target = dialect.target.tuned(order.chosen)
    program = lower(graph, layouts, target, library=calls, replaces=order.replaces)
    sources = {id(kernel): render(kernel, dialect) for kernel in program.kernels()}
    for kernel in program.kernels():
        verify(kernel)
    build = getattr(compiler, "build", None)
    if build is not None:
        build(list(sources.values()), order.index)
    return program, sources


def with_readers(
    launch: Launch, compiler: Compiler, graph: Graph, most: int = 0
) -> tuple[Launch, list[Callable[[Sequence[Any]], Any]]]:
    """Return a launch with the device's numbers of errors, and what reads the parameters that come late."""
    values: list[Any] = []
    late: list[Callable[[Sequence[Any]], Any]] = []
    for value in launch.values:
        if isinstance(value, RuntimeArg) and value.what == "code":
            value = compiler.error_code(value.op)
        elif isinstance(value, RuntimeArg):
            late.append(_reader(value, graph))
        values.append(value)
    return replace(launch, values=tuple(values), most=most), late


def _reader(late: RuntimeArg, graph: Graph) -> Callable[[Sequence[Any]], Any]:
    operand, plus = late.operand, late.plus
    if late.what == "offset":
        return lambda values: values[operand].offset + plus
    dtype = graph.inputs[operand].spec.dtype
    if dtype.kind == "float":
        return lambda values: float(values[operand].real)
    return lambda values: fit(values[operand], dtype)


class BoundProgram:
    """A program for one pattern of layouts. What plays it as a whole does so from run ``first_play`` on.

    ``places_results``: each call that has to place its results somewhere has a kernel that does. Of a plan
    for many sizes there may be one for those that it was made by, and none for others.
    """

    def __init__(
        self, compiler: Compiler, device: Device, graph: Graph, order: CompileRequest,
        layouts: Sequence[Layout | None], code: tuple[Program, dict[int, str]], first_play: int = 1,
    ) -> None:  # fmt: skip
        self.compiler, self.index = compiler, order.index
        self._device = device
        self._graph = graph
        self._chosen = order.chosen
        self.key = tuple([None if x is None else (x.strides, x.late is not None) for x in layouts])
        self.program, self._sources = code
        self._bytes = {slot: size * dtype.itemsize for slot, (size, dtype) in self.program.sizes.items()}
        self._count = max((len(layouts), *(slot + 1 for slot in self._bytes)))
        self._over = self._overwritten(layouts)
        self._overwriting = Overwriting(compiler, self.index, self._over) if self._over else None
        over = {slot for slot, _ in self._over}
        written: set[int] = set()
        self._ahead: list[int] = []
        self._steps: list[tuple[Sequence[Queue], tuple[int, ...]]] = []
        self._names: list[str] = []
        self._queued: list[Queued] = []
        self.places_results = True
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
        self._script = Script(self.program, self._queued, self._bytes, self.index, order.mode)
        self._player: Player | None = None
        self._unplayed = first_play
        self._empty = tuple({x.slot for x in self.program.outputs if x.slot in self._bytes} - written)
        self.queue = self._single(len(layouts)) or self.run
        """Queues all steps as ``run`` does, with as little as they take."""

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
        if len(outs) == 1:
            ((nbytes, shape, strides, offset, dtype),) = outs
            fresh = getattr(self.compiler, "fresh", None)
            once = fresh is not None and order.count(count) == 1
            start = fresh(launch, order.index(count), nbytes, index) if once and fresh is not None else None
            if start is not None:
                others = [k for k in order if k < count]

                def queue(values: Sequence[Any]) -> Sequence[Any]:
                    block = start([values[k].buffer for k in others], ())
                    return [StridedArray(block, shape, strides, offset, dtype)]

                return queue

            def run_one(values: Sequence[Any]) -> Sequence[Any]:
                block = allocate(nbytes, index)
                launch([values[k].buffer if k < count else block for k in order], ())
                return [StridedArray(block, shape, strides, offset, dtype)]

            return run_one

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
        """Queue all steps; return the results."""
        buffers = self._input_buffers(values)
        if self._overwriting is not None:
            self._overwriting.take(values, buffers)
        if self._unplayed:
            self._count_down()
        if self._player is not None and self._player.play(values, buffers):
            return self._results(values, buffers)
        for slot in self._ahead:  # now: once inputs are written over, there may be no memory
            if buffers[slot] is None:
                buffers[slot] = self._allocate(slot)
        for steps, frees in self._steps:
            for step in steps:
                step(values, buffers)
            for slot in frees:
                buffers[slot] = None
        return self._results(values, buffers)

    def _count_down(self) -> None:
        """Make what plays the program as a whole once it has run often enough."""
        self._unplayed -= 1
        player = getattr(self.compiler, "player", None)
        if not self._unplayed and player is not None:
            self._player = player(self._script)

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
        launch, slots, kernel = step.launch, step.slots, step.launch.kernel
        launch, late = with_readers(launch, self.compiler, self._graph, most)
        source = self._sources[id(kernel)]
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

    def _call(self, call: LibraryCall) -> Queue:
        """Return what runs an eager kernel, whose results are then the buffers of its slots.

        The kernel that makes its results itself is prepared only where none fills the program's buffers, or
        once that one could not: preparing it takes longer than all else of a step.
        """
        way = self._chosen.get(f"way@{self._names[-1]}", self._chosen.get("way", 0))
        into = into_kernel(call, self._device, way)
        inputs, specs, outputs = call.inputs, call.specs, call.outputs
        kernel = library_call(call, self._device) if into is None else None
        places = bool(call.row_stride or call.layouts or call.side_size)
        self.places_results = self.places_results and not (places and into is None)
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
        if AFTER in call.attrs:  # an operand that says the order alone
            read = {x.slot for x in inputs[:-1] if isinstance(x, Layout)}
        slots = (*sorted(read), *sorted(written - read))
        call_of = direct if into is not None else None
        self._queued.append(
            Queued(slots=slots, written=frozenset(written), call=call_of, ordered=table[call.op].ordered)
        )

        def run(values: Sequence[Any], buffers: Buffers) -> None:
            nonlocal kernel
            if into is not None:
                for slot in outputs:
                    if buffers[slot] is None:
                        buffers[slot] = allocate(slot)
                if direct(values, buffers):
                    return
            arguments = operands(values, buffers)
            if places:
                whole = [*[pack(compiler, x, index) for x in arguments], *taken(buffers)]
                if into is None or not into(whole, [buffers[s] for s in outputs]):
                    raise DeviceError(
                        f"{call.op}: the device's kernel does not place its results where they are wanted."
                    )
                return
            if kernel is None:
                kernel = library_call(call, self._device)
            for slot, out in zip(outputs, kernel(arguments), strict=True):
                buffers[slot] = pack(compiler, out, index).buffer

        return run
