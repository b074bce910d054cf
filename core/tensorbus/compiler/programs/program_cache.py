"""From a trace to a compiled program, which equal traces share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ... import plugins
from ...backend_interface.compilation import CompileRequest
from ...backend_interface.graph import Graph
from ...devices.device import Device
from ...dispatch import kernel_preference
from ...executors.library_call import called
from ...graph.verify import verify
from ...system import env, fork_safe_locks
from ...system.garbage_collection import without_collections
from .compiled_program import CompiledProgram
from .device_compile import compile_request, kernels_without_source, with_user_kernels_decomposed
from .op_trace import OpTrace

T = TypeVar("T")

MAX_PROGRAMS: Final = 256
EAGERLY_COMPILED_SIZES: Final = 64
"""The number of sets of sizes that are compiled when first met, whatever that takes."""
MAX_REMEMBERED_SIZES: Final = 4096
"""The number of sets of sizes whose seconds in Python are remembered."""
COMPILE_SINGLE_USE_ELEMENTS: Final = 1 << 26
"""The number of elements, of all values together, from which a program is compiled even for one run."""


_programs: OrderedDict[Any, CompiledProgram] = OrderedDict()
_constants_of: OrderedDict[Any, tuple[list[str], frozenset[int]]] = OrderedDict()
"""By trace without its constants: the constants of the last run, and which of them have differed."""
_lock = fork_safe_locks.simple()


class ShapeSpecializations:
    """The programs of a trace with symbolic sizes: one for each set of sizes, compiled when it is met.

    Kernels take sizes as parameters, so that these programs share their code. Where a size differs at each
    call, as that of a key-value cache does, compiling its program would take longer than Python does: after
    the first sets of sizes Python runs one until it has spent as long on it as a program takes to compile.
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

    def for_sizes(self, sizes: Mapping[str, int]) -> CompiledProgram:
        """Return the program for these sizes."""
        key = tuple(sizes.values())
        program = self._programs.get(key)
        if program is None:
            start = perf_counter()
            program = _lookup_or_compile(
                self.trace, self.outputs, self.inputs, self.reused_inputs, self.mode, sizes
            )
            self._compile_seconds += perf_counter() - start
            self._compiled_count += 1
            self._programs[key] = program
            while len(self._programs) > MAX_PROGRAMS:
                self._programs.popitem(last=False)
        return program

    def program_if_worthwhile(self, sizes: Mapping[str, int]) -> CompiledProgram | None:
        """Return the program for these sizes; None: Python is to run them this time."""
        key = tuple(sizes.values())
        program = self._programs.get(key)
        if program is not None:
            return program
        if (
            self._compiled_count >= EAGERLY_COMPILED_SIZES
            and self.mode == "default"
            and env.dump_dir() is None
        ):
            spent = self._python_seconds.get(key)
            if spent is None:  # a program needs less memory than Python, which matters for the largest
                spent = self._python_seconds[key] = (
                    inf if self.trace.elements(sizes) >= COMPILE_SINGLE_USE_ELEMENTS else 0.0
                )
                while len(self._python_seconds) > MAX_REMEMBERED_SIZES:
                    self._python_seconds.popitem(last=False)
            if spent < self._compile_seconds / self._compiled_count:
                self._last_request = key
                return None
        return self.for_sizes(sizes)

    def run(self, function: Callable[[], T]) -> T:
        """Return ``function()``, Python's run for the sizes asked for last, and count its seconds."""
        key, start = self._last_request, perf_counter()
        try:
            return function()
        finally:
            if key in self._python_seconds:
                self._python_seconds[key] += perf_counter() - start


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
    """Return a program for a single run: kernel by kernel, unless its values are large.

    For those compiled code needs a fraction of the memory, and later runs need most of its kernels as well.
    ``TENSORBUS_DUMP`` shows programs of a single run too.
    """
    input_places = trace.inputs if inputs is None else inputs
    if trace.elements() >= COMPILE_SINGLE_USE_ELEMENTS or env.dump_dir() is not None:
        return _lookup_or_compile(trace, outputs, input_places, {}, mode, {})
    from ...executors.kernel_interpreter import Interpreting

    graph = trace.graph(outputs, input_places)
    request = CompileRequest(graph=graph, index=trace.device.index, mode=mode)
    return CompiledProgram(graph, Interpreting(trace.device.type).compile(request), trace.device)


def _compile(device: Device, graph: Graph, reused_inputs: Mapping[int, int], mode: str) -> CompiledProgram:
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
