"""The program of a plan for many sizes: its steps are templates, filled for a size by one generated function.

Preparing launches for each size anew takes longer than running them. Here the steps are made once, on lengths
that are symbols; when a size is met, the numbers of it are computed and nothing else is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..backend_interface.compilation import CompileRequest
from ..backend_interface.graph import Graph
from ..backend_interface.strided_array import StridedArray
from ..devices.device import Device
from ..kernels.generated_program import common_buffer
from ..kernels.size_function import SizeFunction
from ..lowering.ir.builder import Launch
from ..lowering.ir.kernel_task import KernelLaunch, LibraryCall
from ..lowering.ir.layout import Layout, Shape
from ..lowering.program.program import Program, slots_of, steps_of
from ..tracing.sym_int import SymInt, is_open
from .call_template import CallTemplate
from .overwriting import Overwriting
from .slot_memory import FreshMemory, KeptMemory, rooms_of
from .source_program import Buffers, with_readers


class LaunchTemplate(Protocol):
    """A launch whose sizes are open: what a compiler's ``template(source, launch, index)`` returns."""

    def at(self, values: Sequence[Any], grid: tuple[int, ...]) -> Any:
        """Return what ``queue`` needs for a size: the open parameters in order, and the grid."""
        ...

    def queue(self, buffers: Sequence[Any], values: Sequence[Any], size: Any) -> Any:
        """Queue the kernel with what ``at`` returned, and the parameters that come with each run."""
        ...


@dataclass(frozen=True, slots=True)
class Size:
    """The numbers of one size: bytes by slot, strides of inputs, places of outputs, and those of each step.

    ``replaces``: outputs may lie over inputs.
    """

    nbytes: tuple[int, ...]
    strides: tuple[Shape | None, ...]
    outputs: tuple[tuple[Shape, Shape, int], ...]
    steps: tuple[Any, ...]
    replaces: bool


class ProgramTemplate:
    """The steps of a plan: ``at`` returns the numbers of a size, ``run`` queues the program with them.

    Inputs are packed. ``compiler`` has a ``template``; equal launches share one, and their numbers. From the
    second run on temporaries are kept, where the device can tell that nothing else works with them.
    """

    def __init__(
        self, compiler: Any, device: Device, graph: Graph, order: CompileRequest,
        layouts: Sequence[Layout | None], code: tuple[Program, dict[int, str]], symbols: Sequence[str],
    ) -> None:  # fmt: skip
        self._program, self._sources = code
        self._compiler, self._device, self._graph, self._index = compiler, device, graph, order.index
        self._outputs = [
            (x.slot, node.spec.dtype) for x, node in zip(self._program.outputs, graph.outputs, strict=True)
        ]
        bytes_of = {slot: size * dtype.itemsize for slot, (size, dtype) in self._program.sizes.items()}
        self._count = max((len(layouts), *(slot + 1 for slot in bytes_of)))
        self._over = self._overwritten(layouts)
        self._overwriting = Overwriting(compiler, self._index, self._over) if self._over else None
        self._function = SizeFunction(symbols)
        self._steps: list[tuple[Callable[..., object], tuple[int, ...]]] = []
        self._ahead: list[int] = []
        self._templates: dict[Any, LaunchTemplate] = {}
        entries, written = self._filled({*bytes_of})
        self._temporaries = self._memory_of(bytes_of)
        self._has_run = False
        self._empty = tuple({slot for slot, _ in self._outputs if slot in bytes_of} - written)
        numbers = (
            tuple(bytes_of.get(slot, 0) for slot in range(self._count)),
            tuple(None if x is None else x.strides for x in layouts),
            tuple((x.shape, x.strides, x.offset) for x in self._program.outputs),
        )
        texts = [*map(self._function.text, numbers), f"({''.join(f'{entry}, ' for entry in entries)})"]
        texts.append(self._replaces(entries) if self._over else "False")
        self._at = self._function.compiled(f"{self._function.constant(Size)}({', '.join(texts)})")

    def at(self, sizes: Mapping[str, int]) -> Size | None:
        """Return the numbers of a size; None where a parameter has no room for one, or a call has no way."""
        size: Size | None = self._at(**sizes)
        return size

    def _memory_of(self, bytes_of: Mapping[int, Any]) -> KeptMemory | None:
        """Return the memory of temporaries; None where the device does not tell what works with a buffer."""
        is_own, index = getattr(self._compiler, "is_own", None), self._index
        if is_own is None:
            return None
        steps = [
            (slots_of(item)[1], frees)
            for item, frees in zip(self._program.steps, self._program.frees, strict=True)
        ]
        sizes = {slot: self._function.text(nbytes) for slot, nbytes in bytes_of.items()}
        rooms = rooms_of(steps, sizes, {slot for slot, _ in self._outputs})
        return KeptMemory(self._allocate, lambda buffer: is_own(buffer, index), rooms) if rooms else None

    def _filled(self, own: set[int]) -> tuple[list[str], set[int]]:
        """Make the steps. Return the expressions of their numbers, and the slots that they write."""
        entries: list[str] = []
        written: set[int] = set()
        makers: dict[Any, Callable[..., Any]] = {}
        over = {slot for slot, _ in self._over}
        for item, frees in zip(self._program.steps, self._program.frees, strict=True):
            if isinstance(item, LibraryCall):
                call = CallTemplate(item, self._compiler, self._device)
                entries.append(call.entry(self._function, makers))
                self._steps.append((call.run, frees))
                written.update(slots_of(item)[1])
            launches = steps_of(item)
            for step in launches:
                new = tuple(s for s in dict.fromkeys(step.slots) if s in own and s not in written)
                written.update(new)
                if self._ahead or over & set(new):
                    self._ahead += new
                entry, run = self._launch(step, new)
                entries.append(entry)
                self._steps.append((run, frees if step is launches[-1] else ()))
        return entries, written

    def _overwritten(self, layouts: Sequence[Layout | None]) -> list[tuple[int, int]]:
        """Return the slots of outputs that may lie over inputs, and those inputs."""
        if getattr(self._compiler, "is_own", None) is None:
            return []
        return [
            (self._program.outputs[out].slot, place)
            for out, place in self._program.replaceable.items() if layouts[place] is not None
        ]  # fmt: skip

    def _replaces(self, entries: Sequence[str]) -> str:
        """Return the expression that says whether outputs may lie over inputs.

        No eager kernel that makes its results itself and may fail comes after the first writer of them.
        """
        conditions: list[str] = []
        begun, at = False, 0
        over = {slot for slot, _ in self._over}
        for item in self._program.steps:
            if begun and isinstance(item, LibraryCall):
                conditions.append(f"{entries[at]}[0].into is not None")
            begun = begun or bool(over & slots_of(item)[1])
            at += len(steps_of(item)) or 1
        return " and ".join(conditions) or "True"

    def _launch(self, step: KernelLaunch, new: tuple[int, ...]) -> tuple[str, Callable[..., object]]:
        """Return the expression of a launch's numbers, and what queues it, making the buffers in ``new``."""
        launch, late = with_readers(step.launch, self._compiler, self._graph)
        source = self._sources[id(launch.kernel)]
        template = self._template(source, launch)
        function = self._function
        values: Sequence[Any] = launch.values
        for param, value in zip(launch.kernel.params, values, strict=True):
            if type(value) is SymInt:
                function.fits(value, param.dtype)
        if is_open([*values, *launch.grid]):
            numbers = function.text(tuple(x for x in values if type(x) is SymInt)), function.text(launch.grid)
            entry = function.named(f"{function.constant(template)}.at({', '.join(numbers)})")
        else:
            entry = function.constant(template.at((), launch.grid))
        compiler, index, queue, slots = self._compiler, self._index, template.queue, step.slots
        common = [(k, slot) for k, slot in enumerate(slots) if slot < 0]

        def run(values: Sequence[Any], buffers: Buffers, memory: Any, size: Any) -> None:
            for slot in new:
                if buffers[slot] is None:
                    buffers[slot] = memory.of(slot)
            arguments = [buffers[slot] for slot in slots]
            for k, slot in common:
                arguments[k] = common_buffer(compiler, slot, index)
            queue(arguments, [read(values) for read in late] if late else (), size)

        return entry, run

    def _template(self, source: str, launch: Launch) -> LaunchTemplate:
        """Return the template of a launch: that of an earlier one which is the same but for its buffers."""
        texts = self._function.text((launch.values, launch.grid, launch.fills))
        key = id(launch.kernel), launch.tiled, launch.most, texts
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = self._compiler.template(source, launch, self._index)
        return template

    def _allocate(self, nbytes: int) -> Any:
        return self._compiler.allocate(nbytes, self._index)

    def run(self, size: Size, values: Sequence[Any]) -> Sequence[Any]:
        """Queue all steps for a size; return the results."""
        memory = self._temporaries
        if memory is None or not self._has_run or not memory.lock.acquire(blocking=False):
            self._has_run = True
            return self._run(size, values, FreshMemory(self._allocate, size.nbytes))
        try:
            memory.begin(size.nbytes)
            return self._run(size, values, memory)
        finally:
            memory.lock.release()

    def _run(self, size: Size, values: Sequence[Any], memory: FreshMemory | KeptMemory) -> Sequence[Any]:
        buffers: Buffers = [v.buffer if type(v) is StridedArray else None for v in values]
        buffers += [None] * (self._count - len(buffers))
        if size.replaces:
            self._take(values, buffers, memory)
        for (step, frees), numbers in zip(self._steps, size.steps, strict=True):
            step(values, buffers, memory, numbers)
            for slot in frees:
                buffers[slot] = None
        for slot in self._empty:
            buffers[slot] = memory.of(slot)
        return [
            StridedArray(buffers[slot], *place, dtype)
            for (slot, dtype), place in zip(self._outputs, size.outputs, strict=True)
        ]

    def _take(self, values: Sequence[Any], buffers: Buffers, memory: FreshMemory | KeptMemory) -> None:
        """Let outputs lie over inputs; allocate what is needed from the first of them on."""
        assert self._overwriting is not None
        self._overwriting.take(values, buffers)
        for slot in self._ahead:
            if buffers[slot] is None:
                buffers[slot] = memory.of(slot)
