"""From a recorded program to what runs it, made once for equal programs."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ... import plugins
from ...backend_interface.graph import Graph
from ...backend_interface.protocols import CompileRequest
from ...devices.device import Device
from ...dispatch import kernel_preference
from ...executors.library_call import called
from ...graph.verify import verify
from ...system import env, fork_safe_locks
from .compiled_program import CompiledProgram
from .device_compile import compile_request, kernels_without_source, with_user_kernels_decomposed
from .op_trace import Recording

T = TypeVar("T")

MAX_PROGRAMS: Final = 256
EAGERLY_COMPILED_SIZES: Final = 64
"""For how many sets of sizes a program is made when they are met, whatever that takes."""
MAX_REMEMBERED_SIZES: Final = 4096
"""How many sets of sizes are remembered that Python has run."""
COMPILE_SINGLE_USE_ELEMENTS: Final = 1 << 26
"""From how many elements on, of all values together, a program is compiled for one run."""


_programs: OrderedDict[Any, CompiledProgram] = OrderedDict()
_constants_of: OrderedDict[Any, tuple[list[str], frozenset[int]]] = OrderedDict()
"""Of programs but for their constants: what those were last, and which of them have differed."""
_lock = fork_safe_locks.simple()


class ShapeSpecializations:
    """The programs of a recording whose lengths are open: one for each set of sizes, made when it is met.

    Kernels take lengths as parameters, so that the programs of a family share their code. Where a length is
    another at each call, as that of a cache is, making its program would take longer than Python does: after
    the first sets of sizes Python runs one until it has spent as long on it as programs have taken to make.
    """

    def __init__(
        self, recording: Recording, outputs: Sequence[int], inputs: Sequence[int],
        reused_inputs: Mapping[int, int], mode: str,
    ) -> None:  # fmt: skip
        self.recording, self.outputs, self.inputs = recording.alone(), tuple(outputs), tuple(inputs)
        self.reused_inputs, self.mode = dict(reused_inputs), mode
        self._programs: OrderedDict[tuple[int, ...], CompiledProgram] = OrderedDict()
        self._python_seconds: OrderedDict[tuple[int, ...], float] = OrderedDict()
        self._compiled_count, self._compile_seconds = 0, 0.0
        self._last_request: tuple[int, ...] = ()

    def for_sizes(self, sizes: Mapping[str, int]) -> CompiledProgram:
        """Return the program for these sizes."""
        key = tuple(sizes.values())
        found = self._programs.get(key)
        if found is None:
            start = perf_counter()
            found = _lookup_or_compile(
                self.recording, self.outputs, self.inputs, self.reused_inputs, self.mode, sizes
            )
            self._compile_seconds += perf_counter() - start
            self._compiled_count += 1
            self._programs[key] = found
            while len(self._programs) > MAX_PROGRAMS:
                self._programs.popitem(last=False)
        return found

    def program_if_worthwhile(self, sizes: Mapping[str, int]) -> CompiledProgram | None:
        """Return the program for these sizes; None: there is none, and Python is to run them this time."""
        key = tuple(sizes.values())
        found = self._programs.get(key)
        if found is not None:
            return found
        if (
            self._compiled_count >= EAGERLY_COMPILED_SIZES
            and self.mode == "default"
            and env.dump_dir() is None
        ):
            spent = self._python_seconds.get(key)
            if spent is None:  # a program needs less memory than Python, which matters for the largest
                spent = self._python_seconds[key] = (
                    inf if self.recording.elements(sizes) >= COMPILE_SINGLE_USE_ELEMENTS else 0.0
                )
                while len(self._python_seconds) > MAX_REMEMBERED_SIZES:
                    self._python_seconds.popitem(last=False)
            if spent < self._compile_seconds / self._compiled_count:
                self._last_request = key
                return None
        return self.for_sizes(sizes)

    def run(self, function: Callable[[], T]) -> T:
        """Return what ``function()`` does, Python's run of what the program was asked for last."""
        key, start = self._last_request, perf_counter()
        try:
            return function()
        finally:
            if key in self._python_seconds:
                self._python_seconds[key] += perf_counter() - start


def compile_program(
    recording: Recording, outputs: Sequence[int], mode: str, *, inputs: Sequence[int] | None = None,
    reused_inputs: Mapping[int, int] = MappingProxyType({}),
) -> CompiledProgram | ShapeSpecializations:  # fmt: skip
    """Return the program of ``recording`` with these outputs; compiled when there is none yet.

    ``inputs`` are places too; None: the recording's own. ``replaces`` says which output, by number, takes the
    place of which input. Where lengths are open, the program of each set of sizes is made when it is met.
    """
    given = tuple(recording.inputs) if inputs is None else inputs
    if recording.is_open:
        return ShapeSpecializations(recording, outputs, given, reused_inputs, mode)
    return _lookup_or_compile(recording, outputs, given, reused_inputs, mode, {})


def _lookup_or_compile(
    recording: Recording, outputs: Sequence[int], inputs: Sequence[int], reused_inputs: Mapping[int, int],
    mode: str, sizes: Mapping[str, int],
) -> CompiledProgram:  # fmt: skip
    key = _program_key(recording, outputs, inputs, reused_inputs, mode, sizes)
    with _lock:
        if (found := _lookup(key)) is not None:
            return found
    with gc_disabled():
        made = _compile(recording.device, recording.graph(outputs, inputs, sizes), reused_inputs, mode)
    with _lock:
        found = _programs.setdefault(key, made)
        while len(_programs) > MAX_PROGRAMS:
            _programs.popitem(last=False)
    return found


def with_lifted_constants(
    recording: Recording, outputs: Sequence[int], mode: str, sizes: Mapping[str, int]
) -> tuple[CompiledProgram, list[Any]]:
    """Return the program of one run of many that Python makes, and what to give it besides the inputs.

    These are the constants that have differed between runs: a count of steps, say, compiles nothing anew.
    """
    given = tuple(recording.inputs)
    if recording.is_open:
        return ShapeSpecializations(recording, outputs, given, {}, mode).for_sizes(sizes), []
    with _lock:
        if (found := _lookup(_program_key(recording, outputs, given, {}, mode, {}))) is not None:
            return found, []
        form, places = recording.form(outputs)
        texts = [repr(recording.entries[p].attrs["value"]) for p in places]
        before, differ = _constants_of.get((form, mode), (texts, frozenset[int]()))
        differ |= {k for k, (a, b) in enumerate(zip(before, texts, strict=True)) if a != b}
        _constants_of[form, mode] = (texts, differ)
        while len(_constants_of) > MAX_PROGRAMS:
            _constants_of.popitem(last=False)
    moving = [places[k] for k in sorted(differ)]
    made = _lookup_or_compile(recording, outputs, (*given, *moving), {}, mode, {})
    return made, [recording.entries[p].attrs["value"] for p in moving]


def _lookup(key: Any) -> CompiledProgram | None:
    """Return a program that there is, as the one used last."""
    found = _programs.get(key)
    if found is not None:
        _programs.move_to_end(key)
    return found


def _program_key(
    recording: Recording, outputs: Sequence[int], inputs: Sequence[int], reused_inputs: Mapping[int, int],
    mode: str, sizes: Mapping[str, int],
) -> Any:  # fmt: skip
    defaults: str | None = None
    if kernels_without_source(
        recording.device, recording.entries
    ):  # what their code does depends on what it reads now
        graph = recording.graph(outputs, inputs, sizes)
        defaults = str(
            with_user_kernels_decomposed(
                recording.device, CompileRequest(graph=graph, index=recording.device.index)
            ).graph
        )
    wanted = kernel_preference.among({entry.op for entry in recording.entries})
    return (
        recording.key(outputs, inputs, sizes),
        tuple(sorted(reused_inputs.items())),
        mode,
        defaults,
        wanted,
    )


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Look for no garbage meanwhile: a capture makes many objects that stay, and looking takes long then."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def compile_single_use(
    recording: Recording, outputs: Sequence[int], mode: str, inputs: Sequence[int] | None = None
) -> CompiledProgram:
    """Return a program that will run only once: kernel by kernel, unless its values are many.

    Compiled code needs a fraction of the memory, and what is compiled of it is what later runs need as well.
    Whoever asks for the stages of programs gets those of a single run too.
    """
    given = recording.inputs if inputs is None else inputs
    if recording.elements() >= COMPILE_SINGLE_USE_ELEMENTS or env.dump_dir() is not None:
        return _lookup_or_compile(recording, outputs, given, {}, mode, {})
    from ...executors.kernel_interpreter import Interpreting

    graph = recording.graph(outputs, given)
    request = CompileRequest(graph=graph, index=recording.device.index, mode=mode)
    return CompiledProgram(graph, Interpreting(recording.device.type).compile(request), recording.device)


def _compile(device: Device, graph: Graph, reused_inputs: Mapping[int, int], mode: str) -> CompiledProgram:
    if env.verifying():
        verify(graph)
    request = CompileRequest(
        graph=graph, index=device.index, replaces=dict(reused_inputs), mode=mode, calls=called(graph, device)
    )
    executable, notes = compile_request(device, request)
    return CompiledProgram(graph, executable, device, notes)


def clear() -> None:
    """Forget every program: plugins came or went, or a cache is to be measured from the start."""
    with _lock:
        _programs.clear()
        _constants_of.clear()


plugins.on_change(clear)
