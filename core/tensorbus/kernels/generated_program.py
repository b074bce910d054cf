"""A program of generated kernels, bound to a device: what an eager call runs.

It is lowered for one pattern of operands; what a call takes beyond that comes late.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Protocol

from ..backend_interface.graph import Graph
from ..backend_interface.strided_array import StridedArray
from ..dtypes.definition import DType, Scalar
from ..lowering.codegen.dialect import Dialect
from ..lowering.codegen.render import render
from ..lowering.ir.builder import Launch, RuntimeArg, fit
from ..lowering.ir.kernel_task import COUNTS_SLOT, ERROR_SLOT
from ..lowering.ir.layout import Layout
from ..lowering.ir.verify import verify
from ..lowering.program.lower import lower
from ..lowering.program.memory_planner import plan_memory
from ..lowering.program.program import Program, steps_of
from ..ops.definition import table

_verified: Final[set[str]] = set()
NOTHING: Final[Mapping[int, int]] = MappingProxyType({})
Run = Callable[[Sequence[Any], Sequence[Scalar]], Any]


class Compiler(Protocol):
    """Turns source into launches on a device, and supplies its memory. ``index`` is the unit."""

    def dialect(self, index: int) -> Dialect:
        """Return the language as the unit speaks it."""
        ...

    def describe(self, index: int) -> str:
        """Return the unit's name, for messages."""
        ...

    def allocate(self, nbytes: int, index: int) -> Any:
        """Return a new buffer. Raises ``OutOfMemoryError``."""
        ...

    def prepare(self, source: str, launch: Launch, index: int) -> Run:
        """Return what runs a kernel with its grid and its static parameters.

        It takes the buffers in order (None for an empty one) and the values of the parameters that are
        ``RuntimeArg``, in order; it may return an event.
        """
        ...

    def errors(self, index: int) -> Any:
        """Return the buffer that kernels report data-dependent errors in, which is looked at when waiting."""
        ...

    def error_code(self, op: str) -> int:
        """Return the number under which kernels report errors of ``op``."""
        ...

    # Where its target has ``counts`` it has ``counts(index)``: the buffer of so many int32, all of them 0, in
    # which what is queued now counts its groups; nothing that may run beside it counts in the same one.
    # It may have ``is_own(buffer, index) -> bool``: whether what is queued next may write over a buffer that
    # nobody else refers to. Without it changes in place make new values. ``are_own(buffers, index)`` asks
    # about many. It may have ``template(source, launch, index)``, a launch for many sizes, see
    # ``executors.program_template``: without it each size is prepared. It may have ``sequence(runs, slots,
    # late, arena, index)``: what queues several of what ``prepare`` returned in one call. It takes buffers by
    # slot, the late parameters, of which ``late`` are those of each, and the block in which the slots of the
    # arena lie. None: each is queued by itself. It may have ``allocate_several(sizes, index)``, which takes
    # less time than one after the other, and ``fresh(run, place, nbytes, index)``: what queues what
    # ``prepare`` returned with a new buffer at a place among those that it takes, and returns that; None:
    # there is no way to that takes less time.


def common_buffer(compiler: Any, slot: int, index: int) -> Any:
    """Return the buffer of a slot that is no program's own: where errors are reported, or groups counted."""
    return compiler.counts(index) if slot == COUNTS_SLOT else compiler.errors(index)


def _held(values: Sequence[Any]) -> int:
    """Return how many references a value has that one other holds, if they are counted; -1: they are not."""
    uncounted = sys.implementation.name != "cpython" or "t" in getattr(sys, "abiflags", "")
    return -1 if uncounted else sys.getrefcount(values[0])


_ONE_REFERENCE: Final[tuple[list[int]]] = ([],)
_UNSHARED: Final = _held([_ONE_REFERENCE[0]])
"""References to what one other and a list of values hold."""


class GeneratedProgram:
    """A program bound to a device: what one pattern of operands runs.

    ``code``: it is lowered already, and these are the sources of its kernels by their ids.
    """

    def __init__(
        self, compiler: Compiler, op: str, graph: Graph, values: Sequence[Any], index: int,
        replaces: Mapping[int, int] = NOTHING, code: tuple[Program, Mapping[int, str]] | None = None,
    ) -> None:  # fmt: skip
        dialect = compiler.dialect(index)
        layouts = [
            Layout(k, v.shape, v.strides, 0, k if v.offset else None) if type(v) is StridedArray else None
            for k, v in enumerate(values)
        ]
        sized = op not in table or table[op].family != "elementwise"
        if code is None:
            code = lower(graph, layouts, dialect.target, sized, replaces=replaces), {}
        program, self._sources = code
        self.compiler = compiler
        self.index = index
        self.sizes = {
            slot: max(size, 1) * d.itemsize if size else 0 for slot, (size, d) in program.sizes.items()
        }
        self.program: Program = program
        self.dtypes: list[DType] = [x.spec.dtype for x in graph.outputs]
        self._late: dict[RuntimeArg, Callable[[Sequence[Any]], Any]] = {}
        steps = [step for item in program.steps for step in steps_of(item)]
        self.steps = [self._bind(op, step.launch, step.slots, graph, dialect) for step in steps]
        last = max([*self.sizes, *[x.slot for x in program.outputs]], default=-1)
        self._room = [None] * (max(last + 1 - len(values), 0) - min(ERROR_SLOT, COUNTS_SLOT))
        self._readers = list(dict.fromkeys([read for _, _, late in self.steps for read in late]))
        self._schedule = self._scheduled(len(values))
        self._over = self._overwritten(values)
        self._sequence = self._in_sequence() if len(self.steps) > 1 else None
        self._results = [
            (x.slot, x.shape, x.strides, x.offset, x.late, dtype)
            for x, dtype in zip(program.outputs, self.dtypes, strict=True)
        ]
        single = self._single()
        run = single or self._one_launch()
        self.run: Callable[[Sequence[Any]], StridedArray] = run or self._first
        self.all: Callable[[Sequence[Any]], list[StridedArray]] = self.every
        """Runs all launches, and returns all results."""
        if single is not None and not self._over and len(self._results) == 1:
            self.all = lambda values: [single(values)]

    def _bind(
        self, op: str, launch: Launch, slots: tuple[int, ...], graph: Graph, dialect: Dialect
    ) -> tuple[Run, tuple[int, ...], tuple[Callable[[Sequence[Any]], Any], ...]]:
        late: list[Callable[[Sequence[Any]], Any]] = []
        values: list[Any] = []
        for value in launch.values:
            if isinstance(value, RuntimeArg) and value.what == "code":
                value = self.compiler.error_code(op)
            elif isinstance(value, RuntimeArg):
                known = self._late.get(value)
                if known is None:
                    known = self._late[value] = reader_of(value, graph)
                late.append(known)
            values.append(value)
        bound = replace(launch, values=tuple(values))
        source = self._sources.get(id(launch.kernel)) or render(launch.kernel, dialect)
        if source not in _verified:
            verify(launch.kernel)
            _verified.add(source)
        return self.compiler.prepare(source, bound, self.index), slots, tuple(late)

    def _single(self) -> Callable[[Sequence[Any]], StridedArray] | None:
        """Return the short way for one launch into one new buffer, which most calls are."""
        out = self.program.outputs[0]
        if len(self.steps) != 1 or len(self.sizes) != 1 or out.slot not in self.sizes:
            return None
        launch, slots, late = self.steps[0]
        compiler, index, nbytes = self.compiler, self.index, self.sizes[out.slot]
        if ERROR_SLOT in slots:
            return None
        shape, strides, offset, dtype, own = out.shape, out.strides, out.offset, self.dtypes[0], out.slot
        others = [s for s in slots if s != own]
        fresh = getattr(compiler, "fresh", None)
        start = fresh(launch, slots.index(own), nbytes, index) if fresh and slots.count(own) == 1 else None
        if start is not None:

            def queue(values: Sequence[Any]) -> StridedArray:
                buffers = [values[s].buffer for s in others]
                buffer = start(buffers, [read(values) for read in late] if late else ())
                return StridedArray(buffer, shape, strides, offset, dtype)

            return queue

        def run(values: Sequence[Any]) -> StridedArray:
            buffer = compiler.allocate(nbytes, index)
            launch(
                [buffer if s == own else values[s].buffer for s in slots],
                [read(values) for read in late] if late else (),
            )
            return StridedArray(buffer, shape, strides, offset, dtype)

        return run

    def _one_launch(self) -> Callable[[Sequence[Any]], StridedArray] | None:
        """Return the short way for one launch that needs more memory than its result, which is new."""
        out = self.program.outputs[0]
        if len(self.steps) != 1 or out.late is not None or not self.sizes.get(out.slot):
            return None
        launch, slots, late = self.steps[0]
        compiler, index, dtype = self.compiler, self.index, self.dtypes[0]
        shape, strides, offset = out.shape, out.strides, out.offset
        inputs = [s for s in slots if s >= 0 and s not in self.sizes]
        own = [*dict.fromkeys([out.slot, *(s for s in slots if s in self.sizes)])]
        common = [s for s in slots if s < 0]
        nbytes = [self.sizes[s] for s in own]
        order = [[*own, *inputs, *common].index(s) for s in slots]

        def run(values: Sequence[Any]) -> StridedArray:
            blocks = [compiler.allocate(n, index) if n else None for n in nbytes]
            buffer = blocks[0]
            blocks += [values[s].buffer for s in inputs]
            blocks += [common_buffer(compiler, s, index) for s in common]
            launch([blocks[k] for k in order], [read(values) for read in late] if late else ())
            return StridedArray(buffer, shape, strides, offset, dtype)

        return run

    def written(self, values: Sequence[Any]) -> bool:
        """Write the result over the operand that it replaces; return whether that can be done."""
        (out,), over = self.program.outputs, self.program.replaceable.get(0)
        if over is None or len(self.steps) != 1 or ERROR_SLOT in self.steps[0][1]:
            return False
        launch, slots, late = self.steps[0]
        launch([values[over if s == out.slot else s].buffer for s in slots], [read(values) for read in late])
        return True

    def _first(self, values: Sequence[Any]) -> StridedArray:
        return self.every(values)[0]

    def every(self, values: Sequence[Any]) -> list[StridedArray]:
        """Run all launches; return all results."""
        compiler, index = self.compiler, self.index
        buffers: list[Any] = [v.buffer if type(v) is StridedArray else None for v in values]
        buffers += self._room
        numbers = [read(values) for read in self._readers] if self._readers else ()
        sequence = self._sequence
        if sequence is not None:
            if sequence.plain:
                blocks = sequence.allocate(sequence.sizes, index)
                for slot, block in zip(sequence.slots, blocks, strict=False):
                    buffers[slot] = block
                room = blocks[-1] if sequence.room else None
            else:
                self._take(values, buffers)
                room = compiler.allocate(sequence.room, index) if sequence.room else None
            for slot in sequence.common:
                buffers[slot] = common_buffer(compiler, slot, index)
            sequence.queue(buffers, numbers, room)
        else:
            if self._over:
                self._take(values, buffers)
            self._one_by_one(buffers, numbers)
        return [
            StridedArray(
                buffers[slot], shape, strides, offset if place is None else offset + values[place].offset, d
            )
            for slot, shape, strides, offset, place, d in self._results
        ]  # fmt: skip

    def _one_by_one(self, buffers: list[Any], numbers: Sequence[Any]) -> None:
        """Queue the steps, each by itself; what a step was the last to use is free behind it."""
        compiler, index = self.compiler, self.index
        for launch, slots, late, new, common, frees in self._schedule:
            for slot, nbytes in new:
                if buffers[slot] is None:
                    buffers[slot] = compiler.allocate(nbytes, index)
            for slot in common:
                buffers[slot] = common_buffer(compiler, slot, index)
            launch([buffers[s] for s in slots], [numbers[k] for k in late] if late else ())
            for slot in frees:
                buffers[slot] = None

    def _overwritten(self, values: Sequence[Any]) -> list[tuple[int, int, int]]:
        """Return the slot of each result, its bytes, and the operand it may lie over (-1: none).

        None where there are other buffers: all are allocated before anything is written over.
        """
        outs, over = self.program.outputs, self.program.replaceable
        own = getattr(self.compiler, "is_own", None)
        if _UNSHARED < 0 or own is None or len(outs) != len(self.sizes) or not over:
            return []
        packed = {
            k: place for k, place in over.items() if values[place].is_contiguous and not values[place].offset
        }
        return [(x.slot, self.sizes.get(x.slot, 0), packed.get(k, -1)) for k, x in enumerate(outs)]

    def _take(self, values: Sequence[Any], buffers: list[Any]) -> None:
        """Let results lie over operands that one tensor and ``values`` hold; make the others' buffers."""
        compiler, index = self.compiler, self.index
        is_own, count = compiler.is_own, sys.getrefcount  # type: ignore[attr-defined]
        for slot, nbytes, place in self._over:
            if (
                place >= 0 and count(values[place]) == _UNSHARED and count(buffers[place]) == _UNSHARED
                and is_own(buffers[place], index)
            ):  # fmt: skip
                buffers[slot] = buffers[place]
            elif nbytes:
                buffers[slot] = compiler.allocate(nbytes, index)

    def _scheduled(self, count: int) -> list[Any]:
        """Return each step with the buffers that it is the first to use, what is common, and what it frees.

        Buffers are a list by slot, of ``count`` operands and ``_room``; slots below 0 count from its end.
        """
        seen = {*range(count)}
        schedule: list[Any] = []
        for (launch, slots, late), frees in zip(self.steps, self.program.frees, strict=True):
            new = [s for s in dict.fromkeys(slots) if s >= 0 and s not in seen]
            seen.update(new)
            sized = tuple([(s, self.sizes[s]) for s in new if self.sizes[s]])
            common = tuple(dict.fromkeys([s for s in slots if s < 0]))
            places = tuple([self._readers.index(read) for read in late])
            schedule.append((launch, slots, places, sized, common, tuple(frees)))
        return schedule

    def _in_sequence(self) -> _Sequence | None:
        """Return what queues all steps at once. None where the device has no way to: each is by itself."""
        compiler, index = self.compiler, self.index
        sequence = getattr(compiler, "sequence", None)
        if sequence is None:
            return None
        arena = plan_memory(self.program)
        runs, slots, places, new, common, _ = zip(*self._schedule, strict=True)
        queue = sequence(runs, slots, places, arena, index)
        if queue is None:
            return None
        results = dict([one for each in new for one in each if one[0] not in arena.offsets])
        return _Sequence(
            queue=queue, allocate=getattr(compiler, "allocate_several", None) or self._allocated,
            slots=(*results,), sizes=(*results.values(), *([arena.total] if arena.total else [])),
            room=arena.total, common=(*dict.fromkeys([slot for each in common for slot in each]),),
            plain=not self._over,
        )  # fmt: skip

    def _allocated(self, sizes: Sequence[int], index: int) -> list[Any]:
        return [self.compiler.allocate(nbytes, index) for nbytes in sizes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequence:
    """The call that queues all steps of a program, and the memory that is new: results', and the arena.

    ``queue(buffers, numbers, room)`` takes buffers by slot. ``slots`` are those of results, ``sizes`` the
    bytes of each, and behind them of the arena, ``room``, if there is one. ``plain``: no result lies over an
    operand.
    """

    queue: Callable[[Sequence[Any], Sequence[Any], Any], None]
    allocate: Callable[[Sequence[int], int], list[Any]]
    slots: tuple[int, ...]
    sizes: tuple[int, ...]
    room: int
    common: tuple[int, ...]
    plain: bool


def reader_of(late: RuntimeArg, graph: Graph) -> Callable[[Sequence[Any]], Any]:
    """Return what reads a parameter that comes with each call, of the operands of a graph."""
    operand, plus = late.operand, late.plus
    if late.what == "offset":
        return lambda values: values[operand].offset + plus
    dtype = graph.inputs[operand].spec.dtype
    return lambda values: fit(values[operand], dtype)
