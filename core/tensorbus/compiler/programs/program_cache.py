"""From a trace to a compiled program, which equal traces share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ... import plugins
from ...backend_interface.compilation import CompileRequest, SymbolicProgram
from ...backend_interface.graph import Graph
from ...devices.device import Device
from ...dispatch import kernel_preference
from ...errors import TensorbusError
from ...executors.library_call import called
from ...graph.verify import verify
from ...system import env, fork_safe_locks
from ...system.garbage_collection import without_collections
from ...tracing.plan_env import PlanEnv
from . import one_time_work
from .compiled_program import CompiledProgram, SpecializedProgram
from .device_compile import (
    compile_request,
    has_user_kernels,
    kernels_without_source,
    with_user_kernels_decomposed,
)
from .op_trace import OpTrace

T = TypeVar("T")

MAX_PROGRAMS: Final = 256
EAGERLY_COMPILED_SIZES: Final = 64
"""The number of sets of sizes that are compiled when first met, whatever that takes."""
MAX_PLANS: Final = 32
"""The number of plans of one trace: for sizes below and above what decides how it is computed."""
MIN_MISSED_SIZES: Final = 2
"""How many sizes in a row have no plan before one may come early: a single one may equal another length."""
MIN_GROWING_SIZES: Final = 8
"""How many sizes a plan has served when one beyond all of them is taken for a length that grows."""
MAX_SPECIAL_PLANS: Final = 4
"""The number of plans that needed a length as an integer, and serve that one."""
MAX_REMEMBERED_SIZES: Final = 4096
"""The number of sets of sizes whose seconds in Python are remembered."""
LARGE_ELEMENTS: Final = 1 << 26
"""The number of elements, of all values together, from which memory may be lacking for Python to run it."""
MEMORY_PART: Final = 4
"""Of how much free memory all values of a large program together may take one part, for Python to run it."""


_programs: OrderedDict[Any, CompiledProgram] = OrderedDict()
_constants_of: OrderedDict[Any, tuple[list[str], frozenset[int]]] = OrderedDict()
"""By trace without its constants: the constants of the last run, and which of them have differed."""
_lock = fork_safe_locks.simple()


class ShapeSpecializations:
    """The programs of a trace with symbolic sizes.

    A plan gives them, at a few microseconds for a new size: the trace is lowered once, on symbols. Where a
    size lies beyond what a plan decided by, as that few rows are added up otherwise than many, Python runs
    such sizes until it has spent as long on them as a plan takes, and then there is another one; sooner, the
    more sizes the last one has served, and at once where a length grows beyond them. On devices
    without plans each set of sizes has a program of its own, whose kernels it shares with the others; after
    the first ones Python runs one until it has spent as long on it as a program takes to compile.
    """

    def __init__(
        self, trace: OpTrace, outputs: Sequence[int], inputs: Sequence[int],
        reused_inputs: Mapping[int, int], mode: str,
    ) -> None:  # fmt: skip
        self.trace, self.outputs, self.inputs = trace.detached(), tuple(outputs), tuple(inputs)
        self.reused_inputs, self.mode = dict(reused_inputs), mode
        self._programs: OrderedDict[tuple[int, ...], CompiledProgram] = OrderedDict()
        self._python_seconds: OrderedDict[tuple[int, ...], float] = OrderedDict()
        self._compiled_count, self._compile_seconds = 0, 0.0
        self._last_request: tuple[int, ...] = ()
        self._plans: list[SymbolicPlan] = []
        self._plans_made = True
        self._special = self._served = self._missed = 0
        self._plan_seconds = self._unplanned_seconds = 0.0
        self._largest: tuple[int, ...] = ()

    def for_sizes(self, sizes: Mapping[str, int]) -> CompiledProgram:
        """Return the program for these sizes."""
        key = tuple(sizes.values())
        program = self._programs.get(key) or self._planned(key, sizes) or self._new_plan(key, sizes)
        if program is None:
            start = perf_counter()
            program = self._keep(
                key,
                _lookup_or_compile(
                    self.trace, self.outputs, self.inputs, self.reused_inputs, self.mode, sizes
                ),
            )
            self._compile_seconds += perf_counter() - start
            self._compiled_count += 1
        return program

    def _keep(self, key: tuple[int, ...], program: CompiledProgram) -> CompiledProgram:
        self._programs[key] = program
        while len(self._programs) > MAX_PROGRAMS:
            self._programs.popitem(last=False)
        return program

    def _planned(self, key: tuple[int, ...], sizes: Mapping[str, int]) -> CompiledProgram | None:
        """Return the program that a plan gives for these sizes; None where none holds for them."""
        for plan in self._plans:
            program = plan.at(sizes)
            if program is not None:
                self._served, self._missed = self._served + 1, 0
                self._largest = tuple(map(max, key, self._largest or key))
                return self._keep(key, program)
        return None

    def _new_plan(self, key: tuple[int, ...], sizes: Mapping[str, int]) -> CompiledProgram | None:
        """Make a plan for sizes like these and return its program; None where there is none to be made."""
        if not self._plans_made or self.mode != "default" or env.dump_dir() is not None:
            return None
        start = perf_counter()
        plan = symbolic_plan(self.trace, self.outputs, self.inputs, self.reused_inputs, self.mode, sizes)
        if plan is None:
            self._plans_made = False
            return None
        self._special += plan.is_special
        self._plans_made = len(self._plans) + 1 < MAX_PLANS and self._special < MAX_SPECIAL_PLANS
        self._plans.insert(0, plan)
        self._served = 0
        program = self._planned(key, sizes)
        self._plan_seconds = perf_counter() - start
        self._unplanned_seconds = 0.0
        return program

    def program_if_worthwhile(self, sizes: Mapping[str, int]) -> CompiledProgram | None:
        """Return the program for these sizes; None: Python is to run them this time."""
        key = tuple(sizes.values())
        program = self._programs.get(key) or self._planned(key, sizes)
        if program is not None:
            return program
        if self._plans and self._plans_made:
            large = self.trace.elements(sizes) >= LARGE_ELEMENTS
            self._missed += 1
            served = self._served if self._missed > MIN_MISSED_SIZES else 1
            waits = self._unplanned_seconds * max(served, 1) < self._plan_seconds
            if waits and not large and not self._grows(key):
                self._last_request = key
                return None
        elif (
            self._compiled_count >= EAGERLY_COMPILED_SIZES
            and self.mode == "default"
            and env.dump_dir() is None
        ):
            spent = self._python_seconds.get(key)
            if spent is None:  # a program needs less memory than Python, which matters for the largest
                spent = self._python_seconds[key] = (
                    inf if self.trace.elements(sizes) >= LARGE_ELEMENTS else 0.0
                )
                while len(self._python_seconds) > MAX_REMEMBERED_SIZES:
                    self._python_seconds.popitem(last=False)
            if spent < self._compile_seconds / self._compiled_count:
                self._last_request = key
                return None
        return self.for_sizes(sizes)

    def _grows(self, key: tuple[int, ...]) -> bool:
        """Return whether sizes go on beyond those that the last plan served one after the other.

        Not where sizes have turned out to equal other lengths: those come one at a time.
        """
        if self._special or self._served < MIN_GROWING_SIZES or key == self._largest:
            return False
        return all(n >= largest for n, largest in zip(key, self._largest, strict=True))

    def run(self, function: Callable[[], T]) -> T:
        """Return ``function()``, Python's run for the sizes asked for last, and count its seconds."""
        one_time_work.note()  # until there is a program
        key, start = self._last_request, perf_counter()
        try:
            return function()
        finally:
            self._unplanned_seconds += perf_counter() - start
            if key in self._python_seconds:
                self._python_seconds[key] += perf_counter() - start


class SymbolicPlan:
    """A trace that was lowered once for many sizes: see ``backend_interface.compilation.SymbolicProgram``.

    ``is_special``: it serves one size, as lowering needed a length as an integer.
    """

    def __init__(
        self, plan: SymbolicProgram, order: CompileRequest, device: Device, is_special: bool
    ) -> None:  # fmt: skip
        self._plan, self._order, self._device, self.is_special = plan, order, device, is_special
        self._examined = False

    def at(self, sizes: Mapping[str, int]) -> CompiledProgram | None:
        """Return the program for these sizes; None where the plan does not hold for them."""
        executable = self._plan.at(sizes)
        if executable is None:
            return None
        program = SpecializedProgram(
            self._order.graph, executable, self._device, (), order=self._order, sizes=sizes
        )
        program._examined, self._examined = self._examined, True
        return program


def symbolic_plan(
    trace: OpTrace, outputs: Sequence[int], inputs: Sequence[int], reused_inputs: Mapping[int, int],
    mode: str, sizes: Mapping[str, int],
) -> SymbolicPlan | None:  # fmt: skip
    """Return the plan of a trace for sizes like these; None where the device has none, or it is of no use."""
    device = trace.device
    make = getattr(plugins.backend(device.type).lowering(), "compile_symbolic", None)
    if make is None or has_user_kernels(trace.nodes):
        return None
    one_time_work.note()
    plan_env = PlanEnv()
    symbols: Any = {name: plan_env.symbol(name, n, least=min(n, 2)) for name, n in sizes.items()}
    with without_collections():
        graph = trace.graph(outputs, inputs, symbols)
        order = CompileRequest(
            graph=graph, index=device.index, replaces=dict(reused_inputs), mode=mode,
            calls=called(graph, device),
        )  # fmt: skip
        plan = make(order, plan_env)
    return None if plan is None else SymbolicPlan(plan, order, device, plan_env.serves_one_size())


def compile_program(
    trace: OpTrace, outputs: Sequence[int], mode: str, *, inputs: Sequence[int] | None = None,
    reused_inputs: Mapping[int, int] = MappingProxyType({}),
) -> CompiledProgram | ShapeSpecializations:  # fmt: skip
    """Return the program of ``trace`` with these outputs, compiled unless it is known.

    ``inputs`` are places too; None: the trace's own. ``replaces`` says which output, by number, takes the
    place of which input. Where lengths are open, the program of each set of sizes is made when it is met.
    """
    input_places = tuple(trace.inputs) if inputs is None else inputs
    if trace.is_symbolic:
        return ShapeSpecializations(trace, outputs, input_places, reused_inputs, mode)
    return _lookup_or_compile(trace, outputs, input_places, reused_inputs, mode, {})


def _lookup_or_compile(
    trace: OpTrace, outputs: Sequence[int], inputs: Sequence[int], reused_inputs: Mapping[int, int],
    mode: str, sizes: Mapping[str, int],
) -> CompiledProgram:  # fmt: skip
    key = _program_key(trace, outputs, inputs, reused_inputs, mode, sizes)
    with _lock:
        if (cached := _lookup(key)) is not None:
            return cached
    with without_collections():
        program = _compile(trace.device, trace.graph(outputs, inputs, sizes), reused_inputs, mode)
    with _lock:
        cached = _programs.setdefault(key, program)
        while len(_programs) > MAX_PROGRAMS:
            _programs.popitem(last=False)
    return cached


def with_lifted_constants(
    trace: OpTrace, outputs: Sequence[int], mode: str, sizes: Mapping[str, int]
) -> tuple[CompiledProgram, list[Any]]:
    """Return the program of a run between graph breaks, and the constants to pass besides its inputs.

    These are the constants that have differed between runs: a count of steps, say, does not recompile.
    """
    input_places = tuple(trace.inputs)
    if trace.is_symbolic:
        return ShapeSpecializations(trace, outputs, input_places, {}, mode).for_sizes(sizes), []
    with _lock:
        if (cached := _lookup(_program_key(trace, outputs, input_places, {}, mode, {}))) is not None:
            return cached, []
        form, places = trace.key_without_constants(outputs)
        texts = [repr(trace.nodes[p].attrs["value"]) for p in places]
        before, differing = _constants_of.get((form, mode), (texts, frozenset[int]()))
        differing |= {k for k, (a, b) in enumerate(zip(before, texts, strict=True)) if a != b}
        _constants_of[form, mode] = (texts, differing)
        while len(_constants_of) > MAX_PROGRAMS:
            _constants_of.popitem(last=False)
    varying = [places[k] for k in sorted(differing)]
    program = _lookup_or_compile(trace, outputs, (*input_places, *varying), {}, mode, {})
    return program, [trace.nodes[p].attrs["value"] for p in varying]


def _lookup(key: Any) -> CompiledProgram | None:
    """Return a known program, and mark it as used last."""
    program = _programs.get(key)
    if program is not None:
        _programs.move_to_end(key)
    return program


def _program_key(
    trace: OpTrace, outputs: Sequence[int], inputs: Sequence[int], reused_inputs: Mapping[int, int],
    mode: str, sizes: Mapping[str, int],
) -> Any:  # fmt: skip
    defaults: str | None = None
    if kernels_without_source(trace.device, trace.nodes):  # what their code does depends on what it reads now
        graph = trace.graph(outputs, inputs, sizes)
        defaults = str(
            with_user_kernels_decomposed(
                trace.device, CompileRequest(graph=graph, index=trace.device.index)
            ).graph
        )
    preferred = kernel_preference.preferred_kernels({entry.op for entry in trace.nodes})
    return (
        trace.key(outputs, inputs, sizes),
        tuple(sorted(reused_inputs.items())),
        mode,
        defaults,
        preferred,
    )


def compile_single_use(
    trace: OpTrace, outputs: Sequence[int], mode: str, inputs: Sequence[int] | None = None
) -> CompiledProgram:
    """Return a program for a single run: kernel by kernel, unless its values may not fit into memory.

    Compiled code needs a fraction of the memory, but takes longer to compile than kernels take to run once.
    Later runs share few of a large program's kernels: they write to the places of state, as this one may not.
    ``TENSORBUS_DUMP`` shows programs of a single run too.
    """
    input_places = trace.inputs if inputs is None else inputs
    if env.dump_dir() is not None or not fits_in_memory(trace):
        return _lookup_or_compile(trace, outputs, input_places, {}, mode, {})
    from ...executors.kernel_interpreter import Interpreting

    graph = trace.graph(outputs, input_places)
    request = CompileRequest(graph=graph, index=trace.device.index, mode=mode)
    return CompiledProgram(graph, Interpreting(trace.device.type).compile(request), trace.device)


def fits_in_memory(trace: OpTrace) -> bool:
    """Return whether a trace may be run kernel by kernel: its values are few, or memory is free for them."""
    if trace.elements() < LARGE_ELEMENTS:
        return True
    return trace.nbytes() * MEMORY_PART <= _free_memory(trace.device)


def _free_memory(device: Device) -> float:
    """Return the bytes that a device says are free; 0 where it does not."""
    try:
        stats, properties = device.memory_stats(), device.properties
    except TensorbusError:
        return 0
    total = stats.total if stats.total is not None else properties.memory
    return 0 if total is None else total - stats.allocated


def _compile(device: Device, graph: Graph, reused_inputs: Mapping[int, int], mode: str) -> CompiledProgram:
    one_time_work.note()
    if env.verifying():
        verify(graph)
    request = CompileRequest(
        graph=graph, index=device.index, replaces=dict(reused_inputs), mode=mode, calls=called(graph, device)
    )
    executable, notes = compile_request(device, request)
    return CompiledProgram(graph, executable, device, notes)


def clear() -> None:
    """Drop every program: plugins came or went, or a cache is to be measured from the start."""
    with _lock:
        _programs.clear()
        _constants_of.clear()


plugins.on_change(clear)
