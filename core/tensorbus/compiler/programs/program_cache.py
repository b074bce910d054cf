"""From a recorded program to what runs it, made once for equal programs."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ... import plugins
from ...backend_interface.protocols import CompileRequest, Executable, Lowering
from ...devices.device import Device
from ...dispatch import kernel_preference
from ...dispatch.kernel_selection import program_kernels
from ...dispatch.result_check import wrong
from ...errors import PluginError, TensorbusError
from ...executors.library_call import called
from ...graph.ir import Graph, Node
from ...graph.verify import verify
from ...ops.definition import USER, table
from ...system import env, fork_safe_locks
from .op_trace import Entry, Recording

T = TypeVar("T")

MAX_PROGRAMS: Final = 256
EAGERLY_COMPILED_SIZES: Final = 64
"""For how many sets of sizes a program is made when they are met, whatever that takes."""
MAX_REMEMBERED_SIZES: Final = 4096
"""How many sets of sizes are remembered that Python has run."""
COMPILE_SINGLE_USE_ELEMENTS: Final = 1 << 26
"""From how many elements on, of all values together, a program is compiled for one run."""


@dataclass(slots=True, eq=False)
class CompiledProgram:
    """A graph and its executable. ``lock`` is held while it runs: an executable serves one run at a time.

    ``notes`` say what the mode of ``compile`` came to. What the first run returns is examined.
    """

    graph: Graph
    executable: Executable
    device: Device
    notes: tuple[str, ...] = ()
    lock: Any = field(default_factory=fork_safe_locks.simple)
    _examined: bool = False

    @property
    def waits(self) -> bool:
        """Whether runs by several threads wait for each other without the lock."""
        return getattr(self.executable, "waits", False)

    @property
    def run(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """The executable's own short way, where it has one; for runs after the first."""
        return getattr(self.executable, "run", self.executable)

    @property
    def checked_run(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """What runs it where that may be for the first time: ``run``, or what looks at its results too."""
        return self.run if self._examined else self._run_checked

    def for_sizes(self, sizes: Mapping[str, int]) -> CompiledProgram:
        """Return the program itself: it has no open lengths."""
        return self

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run it."""
        with self.lock:
            return self.executable(values) if self._examined else self._run_checked(values)

    def _run_checked(self, values: Sequence[Any]) -> Sequence[Any]:
        backend = plugins.backend(self.device.type)
        try:
            made = self.executable(values)
        except (TensorbusError, MemoryError):
            raise
        except Exception as error:
            raise backend.failed("executable", error) from error
        text = wrong(made, [node.spec for node in self.graph.outputs], self.device, several=True)
        if text is not None:
            owner = backend.extension.owner
            raise PluginError(f"device type {self.device.type!r} of {owner}: its executable {text}.")
        self._examined = True
        return made


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A program, a family of them, or one of several devices; and the places of what it returns.

    ``old`` says of these places which input, by number, holds what a tensor had before that has the result;
    ``in_place`` whether results may be written over inputs; ``leaves`` have gradients among the results.
    """

    program: Any
    outputs: tuple[Any, ...]
    old_inputs: Mapping[int, int] = field(default_factory=dict)
    in_place: bool = False
    leaves: tuple[Any, ...] = ()


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
        replaces: Mapping[int, int], mode: str,
    ) -> None:  # fmt: skip
        self.recording, self.outputs, self.inputs = recording.alone(), tuple(outputs), tuple(inputs)
        self.replaces, self.mode = dict(replaces), mode
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
                self.recording, self.outputs, self.inputs, self.replaces, self.mode, sizes
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
    replaces: Mapping[int, int] = MappingProxyType({}),
) -> CompiledProgram | ShapeSpecializations:  # fmt: skip
    """Return the program of ``recording`` with these outputs; compiled when there is none yet.

    ``inputs`` are places too; None: the recording's own. ``replaces`` says which output, by number, takes the
    place of which input. Where lengths are open, the program of each set of sizes is made when it is met.
    """
    given = tuple(recording.inputs) if inputs is None else inputs
    if recording.is_open:
        return ShapeSpecializations(recording, outputs, given, replaces, mode)
    return _lookup_or_compile(recording, outputs, given, replaces, mode, {})


def _lookup_or_compile(
    recording: Recording, outputs: Sequence[int], inputs: Sequence[int], replaces: Mapping[int, int],
    mode: str, sizes: Mapping[str, int],
) -> CompiledProgram:  # fmt: skip
    key = _program_key(recording, outputs, inputs, replaces, mode, sizes)
    with _lock:
        if (found := _lookup(key)) is not None:
            return found
    with gc_disabled():
        made = _compile(recording.device, recording.graph(outputs, inputs, sizes), replaces, mode)
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
    recording: Recording, outputs: Sequence[int], inputs: Sequence[int], replaces: Mapping[int, int],
    mode: str, sizes: Mapping[str, int],
) -> Any:  # fmt: skip
    defaults: str | None = None
    if _kernels_without_source(
        recording.device, recording.entries
    ):  # what their code does depends on what it reads now
        graph = recording.graph(outputs, inputs, sizes)
        defaults = str(
            _with_user_kernels_decomposed(
                recording.device, CompileRequest(graph=graph, index=recording.device.index)
            ).graph
        )
    wanted = kernel_preference.among({entry.op for entry in recording.entries})
    return (recording.key(outputs, inputs, sizes), tuple(sorted(replaces.items())), mode, defaults, wanted)


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
    order = CompileRequest(graph=graph, index=recording.device.index, mode=mode)
    return CompiledProgram(graph, Interpreting(recording.device.type).compile(order), recording.device)


def _compile(device: Device, graph: Graph, replaces: Mapping[int, int], mode: str) -> CompiledProgram:
    if env.verifying():
        verify(graph)
    order = CompileRequest(
        graph=graph, index=device.index, replaces=dict(replaces), mode=mode, calls=called(graph, device)
    )
    executable, notes = compile_order(device, order)
    return CompiledProgram(graph, executable, device, notes)


def compile_order(device: Device, order: CompileRequest) -> tuple[Executable, tuple[str, ...]]:
    """Return the executable of ``order``, and what is to be said of its mode.

    It is made by the device's own lowering, else the program runs kernel by kernel.
    """
    lowering = plugins.backend(device.type).lowering()
    if lowering is None:
        from ...executors.kernel_interpreter import Interpreting

        lowering = Interpreting(device.type)
    start, served = perf_counter(), _with_user_kernels_decomposed(device, order)
    if order.mode == "max-autotune":
        from .autotune import autotune

        made, notes = autotune(device, lowering, served)
    else:
        made, notes = lower_checked(device, lowering, served), _mode_notes(device, lowering, order.mode)
    folder = env.dump_dir()
    if folder is not None:
        from ..debug.trace_page import write_trace

        made = write_trace(folder, device, order, made, perf_counter() - start, notes)
    return made, notes


def lower_checked(device: Device, lowering: Lowering, order: CompileRequest) -> Executable:
    """Return what a lowering makes of an order; what it raises, and anything but an executable, names it."""
    backend = plugins.backend(device.type)
    try:
        made: object = lowering.compile(order)
    except (TensorbusError, MemoryError):
        raise
    except Exception as error:
        raise backend.failed("lowering.compile(...)", error) from error
    if not callable(made):
        raise PluginError(
            f"device type {device.type!r} of {backend.extension.owner}: its lowering.compile(...) returned"
            f" {made!r}; it must return an executable, which is called with values."
        )
    return made  # type: ignore[return-value]


def _mode_notes(device: Device, lowering: Lowering, mode: str) -> tuple[str, ...]:
    """Return what a lowering says that it does about a mode."""
    if mode == "default":
        return ()
    said = getattr(lowering, "modes", {}).get(mode, f"{device.type} does nothing else than by default")
    return (f"{mode}: {said}",)


def _with_user_kernels_decomposed(device: Device, order: CompileRequest) -> CompileRequest:
    """Return ``order`` with those kernels of the user's decomposed that the device has no source for."""
    lacking = _kernels_without_source(device, order.graph)
    if not lacking:
        return order
    from ...decompose.decompose import decompose

    return replace(order, graph=decompose(order.graph, lambda op: op not in lacking))


def _kernels_without_source(device: Device, ops: Iterable[Node | Entry]) -> set[str]:
    """Return the kernels of the user's that a device has no source for: their default runs there."""
    found = {x.op for x in ops if x.op in table and table[x.op].family == USER}
    return {op for op in found if device.type not in program_kernels(op)}


def clear() -> None:
    """Forget every program: plugins came or went, or a cache is to be measured from the start."""
    with _lock:
        _programs.clear()
        _constants_of.clear()


plugins.on_change(clear)
