"""Compiled programs as CUDA graphs: all kernels of a run are queued by one call of the driver.

A graph is recorded at a program's second run. Temporaries lie in one block that belongs to the graph; results
are new at each run, so that before a launch those kernels get new arguments whose buffers have changed.
Numbers of a run are copied to memory that kernels read. What a library queued cannot be changed: small inputs
of it are copied where they lie elsewhere each time, and there is another graph for other places of the rest.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Final

import cupy
from tensorbus.backend_api import (
    COUNTS_SLOT,
    ERROR_SLOT,
    DeviceError,
    StreamCapture,
    call_when_gone,
    capturing,
    get_matmul_precision,
    items_at,
    plan_memory,
    steps_of,
)

from ..async_errors import listed
from ..kernel_launch import Launcher
from . import graph_dependencies
from .graph_driver import GraphDriver
from .run_numbers import Reader, RunNumbers
from .steady_inputs import SteadyInputs

if TYPE_CHECKING:
    from tensorbus.backend_api import Queued, Script

    from ..compiler import CudaCompiler

MIN_GRAPH_STEPS: Final = 3
"""How many steps a program has at least that is worth a graph."""
MAX_GRAPHS: Final = 8
"""Graphs of one program, each for other places of what libraries read and write."""
TRIES: Final = 24
"""Recordings of one program, after which its operands are taken to be elsewhere each time."""
KEPT: Final = 2
"""How many blocks are kept for each result of a library: one may still be held when the next is made."""
LITTLE: Final = 1 << 26
"""Up to how many bytes the results of kernels are kept as well, so that graphs need not be told others.

Temporaries of so little share no memory, and steps that do not wait for each other run side by side: they
are short. Large ones fill the GPU, and are slower beside each other: of those only the steps of a batch do.
"""
_RELAXED: Final = 2
"""Capturing in which other work of this thread and of others may go on."""
ALIGNMENT: Final = 256
"""At multiples of how many bytes temporaries begin that share no memory."""
_PTR, _OFFSET, _STREAM = attrgetter("ptr"), attrgetter("offset"), attrgetter("stream")
MEMORY_DIVISOR: Final = 8
"""The part of the GPU's memory that temporaries of one program may keep between runs, as a divisor."""


def _references(blocks: Sequence[Any]) -> int:
    """Return how many references there are to what is only kept in a list, as a loop over that sees it."""
    for block in blocks:
        return sys.getrefcount(block)
    return 0


_OURS: Final = _references([object()])


class _Arguments(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS`` of the driver."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        *((f"{what}_{x}", ctypes.c_uint) for what in ("grid", "block") for x in "xyz"),
        ("shared", ctypes.c_uint), ("arguments", ctypes.c_void_p), ("extra", ctypes.c_void_p),
    )  # fmt: skip


def _places(blocks: Sequence[Any]) -> list[int]:
    """Return where blocks begin; 0 where there is none."""
    try:
        return [*map(_PTR, blocks)]
    except AttributeError:
        return [0 if block is None else block.ptr for block in blocks]


class _ChangingArguments:
    """A kernel of a graph whose arguments may change from run to run.

    ``moving`` are the numbers of its buffers that may lie elsewhere, among those of the program; ``places``
    the numbers that these have among its arguments. All of its buffers are at ``pointers``.
    """

    __slots__ = (
        "_arguments", "at", "last", "late", "launcher", "moving", "node", "numbers", "places", "pointers",
        "text",
    )  # fmt: skip

    def __init__(
        self, step: Queued, node: int, moving: Mapping[int, int], late: Sequence[Reader],
        launcher: Launcher, pointers: list[int],
    ) -> None:  # fmt: skip
        self.launcher, self.node, self.late, self.pointers = launcher, node, late, pointers
        self.places = [k for k, slot in enumerate(step.slots) if slot in moving]
        self.moving = [moving[step.slots[k]] for k in self.places]
        self.last: list[int] | None = None
        self.numbers: list[Any] = []
        self.text = ""
        self._arguments = _Arguments(
            launcher.function, *launcher.blocks, *launcher.threads, launcher.shared, launcher.arguments
        )
        self.at = ctypes.addressof(self._arguments)


class _Handles:
    """The driver's handles of a graph, given back to it with the last reference."""

    __slots__ = ("__weakref__",)


class CudaGraph:
    """A recorded program. ``changing`` are its kernels that get new arguments.

    ``capture`` says what is due around each launch, and holds the driver's handles. Its kernels read
    ``numbers`` of the run.
    """

    def __init__(
        self, driver: GraphDriver, graph: Any, changing: Sequence[_ChangingArguments], capture: StreamCapture,
        numbers: RunNumbers,
    ) -> None:  # fmt: skip
        self.driver, self.numbers = driver, numbers
        self.changing = changing
        self.capture = capture
        self.late = [one for one in changing if one.late]
        self.where: list[int] | None = None
        self._graph = graph  # its nodes name the kernels that are changed
        self.whole = ctypes.c_void_p()
        handles = _Handles()
        call_when_gone(handles, driver.lib.cuGraphDestroy, graph)
        driver.call("cuGraphInstantiateWithFlags", ctypes.byref(self.whole), graph, ctypes.c_uint64(0))
        call_when_gone(handles, driver.lib.cuGraphExecDestroy, self.whole)
        capture.held.append(handles)


class GraphRunner:
    """Runs one program for one pattern of layouts, as a graph once it has run before."""

    def __init__(self, compiler: CudaCompiler, script: Script) -> None:
        unit = self._unit = compiler.runtime.units[script.index]
        self._compiler, self._script = compiler, script
        program = script.program
        outputs = {x.slot for x in program.outputs}
        self._result_slots = [
            s for s in dict.fromkeys(x.slot for x in program.outputs) if script.nbytes.get(s)
        ]
        self._of_results = items_at(self._result_slots)
        counts = [len(steps_of(item)) or 1 for item in program.steps]
        arena = plan_memory(program, until=graph_dependencies.alive_longer(counts, script.steps))
        offsets, self._total = dict(arena.offsets), arena.total
        whole = [(s, -(-script.nbytes[s] // ALIGNMENT) * ALIGNMENT) for s in offsets]
        short = sum(nbytes for _, nbytes in whole) <= LITTLE
        if short:
            offsets, self._total = {}, 0
            for slot, nbytes in whole:
                offsets[slot] = self._total
                self._total += nbytes
        self._offsets = [(s, at, script.nbytes[s]) for s, at in offsets.items() if s not in outputs]
        order = graph_dependencies.in_turn(counts)
        beside = [step.ordered for step in script.steps]
        if short or any(beside):
            over = [(program.outputs[k].slot, place) for k, place in program.replaceable.items()]
            waits = graph_dependencies.waits(
                script.steps, graph_dependencies.shared_places(self._offsets, over)
            )
            order = waits if short else graph_dependencies.branched(counts, waits, beside)
        order, self._lanes = graph_dependencies.lanes(
            graph_dependencies.in_chains(counts, order),
            [step.call is not None and not step.ordered for step in script.steps],
        )
        self._order, self._joins = graph_dependencies.with_joins(counts, order)
        self._of_inputs = items_at(
            sorted({s for step in script.steps for s in step.slots if s >= 0 and s not in script.nbytes})
        )
        stable = {s for s, *_ in self._offsets}
        self._pinned = sorted(
            {s for step in script.steps if step.call is not None for s in step.slots} - stable
        )
        self._of_pinned = items_at(self._pinned)
        self._input_slots = [s for s in self._pinned if s >= 0 and s not in script.nbytes]
        self._called_with = items_at(self._input_slots)
        self._steady = SteadyInputs(unit, self._input_slots)
        self._numbers: RunNumbers | None = None
        moving = sorted({s for step in script.steps for s in step.slots if s >= 0} - stable)
        self._moving, self._of_moving = {slot: k for k, slot in enumerate(moving)}, items_at(moving)
        self._moves = [bool(set(step.slots) & set(moving)) for step in script.steps]
        counting = [k for k, step in enumerate(script.steps) if COUNTS_SLOT in step.slots]
        self._counting = {k: n for n, k in enumerate(counting)}
        self._counts: Any = None
        self._reports = any(ERROR_SLOT in step.slots for step in script.steps)
        self._able = len(script.steps) >= MIN_GRAPH_STEPS and all(s.launch or s.call for s in script.steps)
        self._able = self._able and self._total <= unit.total // MEMORY_DIVISOR
        self._stream: Any = None
        self._memory: Any = None
        self._temporaries: dict[int, Any] = {}
        self._graphs: OrderedDict[Any, CudaGraph] = OrderedDict()
        reused = [s for s in self._result_slots if s in set(self._pinned)]
        if sum(script.nbytes[s] for s in reused) > unit.total // MEMORY_DIVISOR:
            reused = []
        others = [s for s in self._result_slots if s not in set(self._pinned)]
        if sum(script.nbytes[s] for s in others) <= LITTLE:
            reused += others
        self._results: dict[int, list[Any]] = {s: [] for s in reused}
        self._runs = self._tries = 0
        self._lock = threading.Lock()
        """Held from placing what threads share, as copies of inputs, until the launch that reads it."""
        names = [s.what.kernel.name for s in script.steps if s.what is not None]
        self._title = f"a program ({listed(names) or 'library calls'})"

    def play(self, values: Sequence[Any], buffers: list[Any]) -> bool:
        """Run the program as a graph; False where it is to be queued step by step."""
        with self._lock:
            self._runs += 1
            return self._able and self._runs > 1 and self._play(values, buffers)

    def _play(self, values: Sequence[Any], buffers: list[Any]) -> bool:
        unit, stream = self._unit, self._unit.stream()
        if self._stream is None:
            self._stream = stream
        elif self._stream is not stream:
            return False
        if None in self._of_results(buffers):
            for slot in self._result_slots:
                if buffers[slot] is None:
                    buffers[slot] = self._room(slot)
        if self._reports:
            self._compiler.errors(self._script.index)
        inputs = [*filter(None, self._of_inputs(buffers))]
        if not all(map(is_, map(_STREAM, inputs), repeat(stream))):
            for block in inputs:
                if block.stream is not stream:
                    block.used_by(stream)
        placed = self._steady.placed(values, buffers, stream)
        key = self._key(values, placed)
        graph = self._graphs.get(key)
        if graph is None:
            if self._steady.note(values, buffers):
                placed = self._steady.placed(values, buffers, stream)
                key = self._key(values, placed)
            graph = self._recorded(key, values, placed)
            if graph is None:
                return False
        with unit.current():
            if graph.capture.around:
                self._communicate(graph, values, placed, stream)
            else:
                self._launch(graph, values, placed, stream)
        return True

    def _room(self, slot: int) -> Any:
        """Return memory for a result: where it is kept, that of an earlier run which nobody holds.

        A graph that knows its address can then be used again, or need not be told another.
        """
        known, stream = self._results.get(slot), self._stream
        for block in known or ():
            if sys.getrefcount(block) == _OURS and block.stream is stream and not block.users:
                return block
        fresh = self._unit.pool.allocate(self._script.nbytes[slot])
        if known is not None:
            known.append(fresh)
            del known[:-KEPT]
        return fresh

    def _launch(self, graph: CudaGraph, values: Sequence[Any], buffers: list[Any], stream: Any) -> None:
        driver = graph.driver
        where = _places(self._of_moving(buffers))
        updated = graph.late if where == graph.where else graph.changing
        graph.where = None  # until all are told: an interrupt may come between them
        for one in updated:
            now = [where[k] for k in one.moving]
            numbers = [read(values) for read in one.late] if one.late else one.numbers
            text = repr(numbers) if one.late else one.text  # 0.0 is not -0.0
            if now != one.last or text != one.text:
                for place, pointer in zip(one.places, now, strict=True):
                    one.pointers[place] = pointer
                one.last = None
                with one.launcher.lock:
                    one.launcher.fill(one.pointers, numbers)
                    code = driver.change(graph.whole, one.node, one.at)
                if code:
                    raise self._unit.failed("changing a graph", code)
                one.last, one.numbers, one.text = now, numbers, text
        graph.where = where
        graph.numbers.send(values, stream)
        self._unit.failures.note(self._title)
        code = driver.launch(graph.whole, stream.ptr)
        if code:
            raise self._unit.failed("queueing a program", code)

    def _communicate(self, graph: CudaGraph, values: Sequence[Any], buffers: list[Any], stream: Any) -> None:
        """Launch a graph with what is due around each launch; whose group ends is given back."""
        capture = graph.capture
        capture.begin()
        try:
            with capture.lock:
                if not capture.held:
                    raise DeviceError(f"{self._title} communicates in a group that has ended.")
                self._launch(graph, values, buffers, stream)
        except BaseException as error:
            capture.end(error)
            raise
        capture.end()

    def _key(self, values: Sequence[Any], buffers: list[Any]) -> Any:
        """Return what a graph is for: where all lies that libraries read and write."""
        try:
            offsets = tuple(map(_OFFSET, self._called_with(values)))
            return get_matmul_precision(), tuple(map(_PTR, self._of_pinned(buffers))), offsets
        except AttributeError:  # nothing is there, or a number
            return get_matmul_precision(), *[self._place(s, values, buffers) for s in self._pinned]

    @staticmethod
    def _place(slot: int, values: Sequence[Any], buffers: list[Any]) -> tuple[int, int]:
        """Return where the value of a slot begins: its block, and how far into it."""
        block = buffers[slot]
        return (0 if block is None else block.ptr), getattr(values[slot], "offset", 0) if slot < len(
            values
        ) else 0

    def _pointers(self, k: int, step: Queued, buffers: list[Any]) -> list[int]:
        pointers = []
        for slot in step.slots:
            if slot == ERROR_SLOT:
                pointers.append(self._compiler.errors(self._script.index).ptr)
                continue
            if slot == COUNTS_SLOT:  # steps may run side by side: each counts in a part of its own
                pointers.append(self._counts.ptr + self._counting[k] * self._unit.counting)
                continue
            block = self._temporaries.get(slot)  # also where the caller made one, for a run step by step
            if block is None:
                block = buffers[slot]
            pointers.append(0 if block is None else block.ptr)
        return pointers

    def _recorded(self, key: Any, values: Sequence[Any], buffers: list[Any]) -> CudaGraph | None:
        """Return the graph for these places; None, and none from now on, where the program is none."""
        self._tries += 1
        if self._tries > TRIES:
            self._give_up()
            return None
        try:
            graph = self._record(values, buffers)
        except (DeviceError, cupy.cuda.driver.CUDADriverError):
            self._give_up()
            return None
        self._graphs[key] = graph
        while len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)
        return graph

    def _give_up(self) -> None:
        """Run step by step from now on, and keep no memory for graphs."""
        self._able = False
        self._graphs.clear()
        self._temporaries.clear()
        self._memory = self._counts = self._numbers = None
        self._steady.clear()
        for blocks in self._results.values():
            blocks.clear()

    def _step(
        self, k: int, step: Queued, values: Sequence[Any], buffers: list[Any], side: Any
    ) -> tuple[Launcher, list[int]] | None:
        """Record a step; of a kernel, return what launches it and where its buffers are."""
        if step.call is not None:
            self._unit.lane = self._lanes[k]
            if not step.call(values, buffers):
                raise DeviceError("a library call cannot be recorded.")
            return None
        assert self._numbers is not None
        launcher, pointers = step.launch.__self__, self._pointers(k, step, buffers)  # type: ignore[union-attr]
        if k in self._numbers.launchers:
            launcher, places = self._numbers.launchers[k]
            pointers += places
        numbers = [read(values) for read in self._numbers.late(k, step.late)]
        with launcher.lock:
            launcher.fill(pointers, numbers)
            launcher.into(side.ptr)
        return launcher, pointers

    def _record(self, values: Sequence[Any], buffers: list[Any]) -> CudaGraph:
        unit = self._unit
        if self._memory is None and self._total:
            self._memory = unit.pool.allocate(self._total)
            self._temporaries = {s: self._memory.part(at, n) for s, at, n in self._offsets}
        if self._counts is None and self._counting:
            self._counts = unit.pool.zeros(len(self._counting) * unit.counting)
        all_buffers = list(buffers)
        for slot, block in self._temporaries.items():
            all_buffers[slot] = block
        if self._numbers is None:
            self._numbers = RunNumbers(unit, self._compiler, self._script)
        driver = unit.driver()
        with unit.graph_lock, unit.current():
            side = unit.side()
            unit.recorded_for = self._stream
            for unit.lane in range(max(self._lanes, default=0) + 1):
                unit.library().space(side)
            before = unit.use(side)
            changing: list[_ChangingArguments] = []
            graph, capture = ctypes.c_void_p(), StreamCapture()
            try:
                driver.call("cuStreamBeginCapture_v2", ctypes.c_void_p(side.ptr), _RELAXED)
                try:
                    ends: dict[int, list[int]] = {}
                    for k, step in enumerate(self._script.steps):
                        for n, before_it in self._joins.get(k, {}).items():
                            ends[n] = [driver.join(side.ptr, [node for m in before_it for node in ends[m]])]
                        driver.follow(side.ptr, [node for n in self._order[k] for node in ends[n]])
                        with capturing(capture) if step.ordered else nullcontext():
                            queued = self._step(k, step, values, all_buffers, side)
                        ends[k] = driver.ends(side.ptr)
                        late = self._numbers.late(k, step.late)
                        if queued is not None and (self._moves[k] or late):
                            (node,) = ends[k]
                            changing.append(_ChangingArguments(step, node, self._moving, late, *queued))
                    driver.follow(
                        side.ptr, [*dict.fromkeys(node for nodes in ends.values() for node in nodes)]
                    )
                finally:
                    driver.call("cuStreamEndCapture", ctypes.c_void_p(side.ptr), ctypes.byref(graph))
            except BaseException:
                if graph.value is not None:
                    driver.lib.cuGraphDestroy(graph)
                raise
            finally:
                unit.use(before)
                unit.recorded_for, unit.lane = None, 0
            return CudaGraph(driver, graph, changing, capture, self._numbers)
