"""A program as the bytecode that ``csource/bytecode.c`` reads: both are to be changed together."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any, Final

from tensorbus.backend_api import (
    ERROR_SLOT,
    DeviceError,
    DType,
    Graph,
    KernelLaunch,
    Layout,
    LibraryCall,
    Program,
    RuntimeArg,
    SymInt,
    cached_property,
    dtypes,
    hints,
    plan_memory,
    slots_of,
    steps_of,
    stored_past,
)

from ..eager.cost_model import HEAVY, PART, SERIAL, weight
from ..eager.scatter_add_rows import row_words
from ..gemm.blas_call import SMALL_PRODUCT, product_words
from .kernel_batch_compiler import KernelUnit, KernelUnits
from .kernel_entry import pieces, slot
from .late_word import LateWord
from .relocatable_program import Address, BoundProgram, PythonCall, RelocatableProgram, Word

_KERNEL, _PRODUCT, _PYTHON, _ROWS = range(4)
_EPILOGUE_WORD: Final = 15
_ARRAY, _FLOAT, _INTEGER, _BOOL = range(4)
_MAX_BLOCK_BYTES, _FILL_BYTES, _MAX_BLOCKS = 1 << 16, 1 << 13, 2
"""The bytes of a block, those filled at a time, and the blocks that ``csource/nontemporal.c`` has."""
_POOLED_BYTES: Final = 1 << 18
"""From how many bytes on a result comes from the pool."""


class BytecodeProgram:
    """The numbers of a program, whose kernels are being compiled until somebody asks for ``words``."""

    def __init__(
        self, graph: Graph, program: Program, layouts: Sequence[Layout | None], units: KernelUnits,
        begun: dict[int, KernelUnit], fail: Callable[..., None],
        chosen: Mapping[str, int] = MappingProxyType({}), capacity: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        """``begun`` has the kernels that are being compiled already, by their ids.

        ``capacity`` is that of a plan: how many elements each slot may have at most. Sizes are symbolic then.
        """
        self.names: list[str] = []
        self._graph = graph
        self._program = program
        self._chosen = chosen
        dialect = units.compiler.dialect(0)
        self._passes = bool(dialect.vector_nontemporal)
        self._past_bytes = dialect.target.tuned(chosen).heuristics.nontemporal_min_bytes
        self._layouts = layouts
        self._inputs = len(layouts)
        self._slots = max((self._inputs, *(s + 1 for s in program.sizes)))
        launches = [step.launch for whole in program.steps for step in steps_of(whole)]
        symbols, self.source = units.symbols(launches, begun)
        self._symbols = {id(x): symbol for x, symbol in zip(launches, symbols, strict=True)}
        self._calls: list[PythonCall] = []
        self._call_numbers: dict[Any, int] = {}
        self._elements = {k: prod(x.shape) for k, x in enumerate(layouts) if x is not None}
        self._elements |= {k: size for k, (size, _) in program.sizes.items()}
        self._total = 0
        self._weights: dict[int, int] = {}
        self._own: dict[int, Collection[str]] = {}
        self._has_product = self.products = False
        self._held: set[int] = set()
        """Slots that results of Python's kernels hold."""
        self._shapes: dict[int, tuple[int, ...]] = {}
        held, replaceable = self._holding(), {program.outputs[o].slot for o in program.replaceable}
        results = {x.slot for x in program.outputs if x.slot >= self._inputs}
        if capacity is None:
            self._arena = plan_memory(program, held, results - held - replaceable)
        else:  # results are as large as they are: nothing else lies in them
            program = self._program = replace(
                program, sizes={k: (capacity[k], dtype) for k, (_, dtype) in program.sizes.items()}
            )
            self._arena = plan_memory(program, held)
        self.labels: list[str] = []
        """What each step does, for people."""
        steps = [word for number, step in enumerate(program.steps) for word in self._step(number, step)]
        words = [*self._head(), *steps]
        self.listing = RelocatableProgram(
            words=words, calls=tuple(self._calls), names=tuple(self.names), labels=tuple(self.labels),
            products=self.products,
        )  # fmt: skip
        self._units, self._fail = units, fail

    @cached_property
    def _bound(self) -> BoundProgram:
        """The numbers for this process, once the compiler is done. ``DeviceError`` says where it fails."""
        bound = self.listing.bound(self._units, self._fail)
        if bound is None:
            raise DeviceError("cpu: a kernel that was just compiled is gone.")
        return bound

    @property
    def words(self) -> list[int]:
        """The numbers, with addresses: what is to be found there is there as long as the bytecode."""
        return self._bound.words

    # What stands before the steps.

    def _head(self) -> list[Word]:
        program = self._program
        arena = self._arena
        offsets = [arena.offsets.get(k, -1) for k in range(self._slots)]
        hosts = [arena.hosts.get(k, -1) for k in range(self._slots)]
        shown: dict[int, list[int]] = {}
        for number, layout in enumerate(program.outputs):
            shown.setdefault(layout.slot, []).append(number)
        results = [k for k in shown if k >= self._inputs and k not in self._held]
        replaced = self._replaced()
        mades: list[Word] = []
        whole: dict[int, int] = {}
        large = False
        for k in results:
            size, dtype = self._elements[k], program.sizes[k][1]
            large = large or hints(size) * dtype.itemsize >= _POOLED_BYTES
            number = shown[k][0]
            layout = program.outputs[number]
            fills = layout.is_contiguous and prod(layout.shape) == size and layout.offset == 0
            shape = layout.shape if fills else (size,)
            if fills:
                whole |= {other: number for other in shown[k] if program.outputs[other] == layout}
            mades += [replaced.get(number, -1), *self._view(Layout(k, shape, _row_major(shape)), dtype)]
        outputs: list[Word] = []
        for number, (layout, node) in enumerate(zip(program.outputs, self._graph.outputs, strict=True)):
            outputs += [whole.get(number, self._same(layout)), *self._view(layout, node.spec.dtype)]
        heavy = large or self._total >= HEAVY
        return [
            self._inputs, self._slots, len(results), len(program.outputs), len(self.labels), arena.total,
            int(heavy), int(self._has_product), Address("fail"),
            *self._input_words(), *offsets, *hosts, *mades, *outputs,
        ]  # fmt: skip

    def _input_words(self) -> list[int]:
        words: list[int] = []
        for node, layout in zip(self._graph.inputs, self._layouts, strict=True):
            dtype = node.spec.dtype
            if layout is None:
                # Only eager kernels read complex numbers, which they get as they are.
                truth = dtype is dtypes.bool_ or dtype.is_complex
                kind = _BOOL if truth else _FLOAT if dtype.is_floating else _INTEGER
                bits = 8 * dtype.itemsize if 8 * dtype.itemsize < 64 else 0
                words += [kind, -bits if dtype.kind == "uint" else bits, -1]
            elif layout.is_contiguous:
                words += [_ARRAY, 0, -1]
            else:
                words += [_ARRAY, 0, len(layout.shape), *(s * dtype.itemsize for s in layout.strides)]
        return words

    def _view(self, layout: Layout, dtype: DType) -> list[Word]:
        size = dtype.itemsize
        strides = [s * size for s in layout.strides]
        native = Address("dtype", dtype.name)
        return [layout.slot, layout.offset * size, len(layout.shape), *layout.shape, *strides, native]

    def _same(self, layout: Layout) -> int:
        """Return 0 where a result is an input, or what a kernel of Python's gave, as it is; else -1."""
        if layout.slot < self._inputs:
            return 0 if layout == self._layouts[layout.slot] else -1
        if layout.slot in self._held:
            shape = self._shapes[layout.slot]
            return 0 if layout == Layout(layout.slot, shape, _row_major(shape)) else -1
        return -1

    def _replaced(self) -> dict[int, int]:
        """Return which outputs may lie over which inputs: nothing may fail after they are written."""
        program = self._program
        seen = {layout.slot for layout in program.outputs}
        candidates = {o: i for o, i in program.replaceable.items() if i not in seen and self._is_packed(i)}
        slots = {program.outputs[o].slot for o in candidates}
        early: set[int] = set()
        written: set[int] = set()
        for step in program.steps:
            outs = slots_of(step)[1]
            written |= slots & outs
            if ERROR_SLOT in outs or not self._held.isdisjoint(outs):
                early |= written
        return {o: i for o, i in candidates.items() if program.outputs[o].slot not in early}

    def _is_packed(self, k: int) -> bool:
        layout = self._layouts[k]
        return layout is not None and layout.is_contiguous

    def _holding(self) -> set[int]:
        """Return the slots that results of Python's kernels will hold."""
        calls = [step for step in self._program.steps if isinstance(step, LibraryCall)]
        own = [c for c in calls if product_words(c) is None and row_words(c, self._inputs) is None]
        return {k for call in own for k in call.outputs}

    # The steps.

    def _step(self, number: int, step: Any) -> list[Word]:
        frees = [k for k in self._program.frees[number] if k in self._held]
        if isinstance(step, LibraryCall):
            self.labels.append(f"{number}: {step.op} of {', '.join(map(str, step.specs))}")
            words = product_words(step, self._epilogue(number, step))
            if words is not None:
                self.products = True
                work = prod(step.out_specs[0].shape) * step.specs[0].shape[-1]
                self._has_product = self._has_product or hints(work) > SMALL_PRODUCT
                self._total += hints(work)
                return [_PRODUCT, 0, 2 if words[_EPILOGUE_WORD] else 1, 0, *words]
            words = row_words(step, self._inputs)
            if words is not None:
                self._total += hints(prod(step.out_specs[0].shape))
                return [_ROWS, 0, 1, 0, *words, self._code(step.op)]
            return [_PYTHON, 0, 1, len(frees), *frees, *self._python(step)]
        members = steps_of(step)
        together = sum(self._cost(one) for one in members) >= SERIAL
        listed: list[Word] = []
        for k, one in enumerate(members):
            self.labels.append(f"{number}: {one.launch.kernel.name} on {'x'.join(map(str, one.launch.grid))}")
            own = frees if k == (0 if together else len(members) - 1) else []
            reports = any(ERROR_SLOT in x.slots for x in (members if together and k == 0 else (one,)))
            group = len(members) - k if together else 1
            listed += [_KERNEL, int(reports), group, len(own), *own, *self._kernel(one)]
        return listed

    def _epilogue(self, number: int, product: LibraryCall) -> tuple[int, ...] | None:
        """Return the grid of the next step, where that one goes on with boxes of the product at once.

        It may not write where other boxes still read: over an operand that it replaces or shares room with.
        """
        after = self._program.steps[number + 1 : number + 2]
        if not after or not isinstance(after[0], KernelLaunch) or after[0].epilogue_of != number:
            return None
        if not self._chosen.get("tiles", 1):
            return None
        step, program = after[0], self._program
        read = {x.slot for x in product.inputs if isinstance(x, Layout)}
        written = {s for s, b in zip(step.slots, step.launch.kernel.buffers, strict=True) if b.writes}
        replaced = {i for o, i in program.replaceable.items() if program.outputs[o].slot in written}
        shared = any(self._share(x, y) for x in written for y in read)
        return None if ERROR_SLOT in step.slots or replaced & read or shared else step.launch.grid

    @property
    def arena_slots(self) -> Collection[int]:
        """The slots that lie in the arena."""
        return self._arena.offsets.keys()

    def _share(self, x: int, y: int) -> bool:
        """Return whether two slots have bytes in common: in the arena, or in a result."""
        ends = []
        for place in (x, y):
            if place not in self._program.sizes:
                return False
            size, dtype = self._program.sizes[place]
            start = self._arena.offsets.get(place)
            region = place if start is None else self._arena.hosts.get(place, -1)
            ends.append((region, start or 0, (start or 0) + size * dtype.itemsize))
        (one, first, last), (other, begin, end) = ends
        return one == other and first < end and begin < last

    def _kernel(self, step: KernelLaunch) -> list[Word]:
        launch = step.launch
        fixed: list[int] = []
        lates: list[int] = []
        for k, (param, value) in enumerate(zip(launch.kernel.params, launch.values, strict=True)):
            if isinstance(value, RuntimeArg) and value.what == "scalar":
                lates += [k, value.operand]
                fixed.append(0)
            elif isinstance(value, RuntimeArg):
                fixed.append(self._code(value.op) if value.what == "code" else value.plus)
            else:
                fixed.append(_bits(slot(param.dtype), value))
        grid, piece = self._pieces(step)
        return [
            Address("kernel", self._symbols[id(launch)]), len(step.slots), *step.slots, len(fixed), *fixed,
            len(lates) // 2, *lates, *grid, *piece, *self._past(step),
        ]  # fmt: skip

    def _past(self, step: KernelLaunch) -> list[int]:
        """Return the work-items that fill a block, and what bypasses the caches (``nontemporal.c``)."""
        blocks: list[tuple[int, int]] = []
        kernel = step.launch.kernel
        if id(kernel) not in self._own:
            self._own[id(kernel)] = stored_past(kernel.body) if self._passes else ()
        own = self._own[id(kernel)]
        for k, (fill, b) in enumerate(zip(step.launch.fills, step.launch.kernel.buffers, strict=False)):
            room = 0 if b.name in own else fill * b.dtype.itemsize
            large = hints(self._elements.get(step.slots[k], 0)) * b.dtype.itemsize >= self._past_bytes
            if 0 < room <= _MAX_BLOCK_BYTES and large and len(blocks) < _MAX_BLOCKS:
                blocks.append((k, room))
        stride = max(_FILL_BYTES // max((room for _, room in blocks), default=_FILL_BYTES), 1)
        return [stride, len(blocks), *(word for pair in blocks for word in pair)]

    def _code(self, op: str) -> int:
        self.names.append(op)
        return len(self.names)

    def _cost(self, step: KernelLaunch) -> float:
        """Return what a launch costs in simple operations."""
        elements: int = max((hints(self._elements.get(k, 1)) for k in step.slots), default=1)
        work_items: int = prod(hints(step.launch.grid))
        return float(max(elements, work_items, 1) * self._weight(step))

    def _weight(self, step: KernelLaunch) -> int:
        kernel = step.launch.kernel
        if id(kernel) not in self._weights:
            self._weights[id(kernel)] = weight(kernel)
        return self._weights[id(kernel)]

    def _pieces(self, step: KernelLaunch) -> tuple[tuple[int, ...], Sequence[Word]]:
        """Return a launch's grid, and how much of it a thread takes at a time: all where that is little."""
        grid: tuple[Any, ...] = (*step.launch.grid, 1, 1, 1)[:3]
        self._total += int(self._cost(step))
        name = f"part@{len(self.labels) - 1} {step.launch.kernel.name}"
        part = self._chosen.get(name, self._chosen.get("part", PART))
        elements: dict[Any, None] = dict.fromkeys([self._elements.get(k, 1) for k in step.slots])
        arguments = (grid, tuple(elements), self._weight(step), part, step.launch.tiled)
        if any(type(n) is SymInt for n in (*grid, *elements)):
            return grid, [LateWord("pieces", arguments, axis) for axis in range(3)]
        return grid, thread_pieces(*arguments)

    def _python(self, call: LibraryCall) -> list[Word]:
        late = tuple(k for k, x in enumerate(call.inputs) if isinstance(x, RuntimeArg))
        number = self._number(
            PythonCall(op=call.op, attrs=call.attrs, specs=call.specs, late=late, outputs=call.out_specs)
        )
        self._held.update(call.outputs)
        self._shapes |= {k: spec.shape for k, spec in zip(call.outputs, call.out_specs, strict=True)}
        words: list[Word] = [Address("call", number=number), len(call.inputs)]
        for x, spec in zip(call.inputs, call.specs, strict=True):
            if isinstance(x, RuntimeArg):
                x = Layout(-1 - x.operand, (), ())
            words += self._view(x, spec.dtype)
        return [*words, len(call.outputs), *call.outputs]

    def _number(self, call: PythonCall) -> int:
        """Return the number of a call: equal layers have one."""
        key = call.key()
        number = self._call_numbers.get(key) if key is not None else None
        if number is None:
            number = len(self._calls)
            self._calls.append(call)
            if key is not None:
                self._call_numbers[key] = number
        return number


def thread_pieces(
    grid: tuple[int, ...], elements: Sequence[int], weight: int, part: int, tiled: bool
) -> tuple[int, ...]:
    """Return how much of a grid a thread takes at a time, for buffers of so many elements: see ``pieces``."""
    work_items = max(prod(grid), 1)
    each = max(max(elements, default=1) / work_items, 1.0) * weight
    return grid if work_items * each < SERIAL else pieces(grid, max(int(part / each), 1), tiled=tiled)


def _bits(code: str, value: Any) -> Any:
    """Return a parameter's 64 bits as a signed number."""
    if type(value) is SymInt:
        return value
    if code == "d":
        return int(struct.unpack("q", struct.pack("d", value))[0])
    return (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[k + 1 :]) for k in range(len(shape)))
