"""Source to launches. Programs are kept on disk, by source, options, device and driver; some in memory."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyopencl as cl
from tensorbus.backend_api import (
    DeviceError,
    Dialect,
    Knob,
    Launch,
    RuntimeArg,
    cache_load,
    cache_store,
    private_folder,
    with_line_numbers,
)

from .command_replay import Replay
from .kernel_lru import Loaded
from .launch_template import FORMAT, LaunchTemplate, packed, workgroups
from .nested_sines import shield_nested_sines
from .shutdown import blocking

if TYPE_CHECKING:
    from tensorbus.backend_api import Script

    from .device import OpenclRuntime, Unit
    from .memory import Block


class OpenclCompiler:
    """The compiler of generated kernels: see ``tensorbus.kernels.generated_program.Compiler``."""

    modes: Final = {
        "reduce-overhead": "each launch keeps a kernel with its arguments, and temporary values their memory,"
        " between runs; the driver's own command buffers were measured and are no faster"
    }

    def __init__(self, runtime: OpenclRuntime) -> None:
        self.runtime = runtime
        self.loaded = Loaded(self._load)
        self.built = 0

    def dialect(self, index: int) -> Dialect:
        """Return OpenCL C as the unit speaks it."""
        return self.runtime.unit(index).dialect

    def describe(self, index: int) -> str:
        """Return the unit's name."""
        return self.runtime.unit(index).name

    def allocate(self, nbytes: int, index: int) -> Any:
        """Return a block of the unit's pool."""
        unit = self.runtime.units[index]
        return unit.pool.allocate(nbytes, unit.queue().bit)

    def errors(self, index: int) -> Any:
        """Return the block in which kernels report bad indices."""
        return self.runtime.unit(index).error_block()

    def error_code(self, op: str) -> int:
        """Return the number of an op in error reports, from 1."""
        return self.runtime.reports.code(op)

    def is_own(self, buffer: Block, index: int) -> bool:
        """Return whether nothing but the current queue was given work with a block: it is in order."""
        return buffer.users == self.runtime.units[index].queue().bit

    def seconds(self, event: cl.Event) -> float:
        """Return how long the kernel of an event ran."""
        blocking(event.wait)
        return float(event.profile.end - event.profile.start) / 1e9

    def knobs(self, index: int) -> Sequence[Knob]:
        """Return what is measured for ``mode="max-autotune"``."""
        unit = self.runtime.unit(index)
        target = unit.dialect.target
        lanes = (4, 8, 16) if target.row_per_task else (1, 4)
        parts = "parts that long work is cut into"
        tasks = tuple(max(target.tasks_to_fill * by // 4, 1) for by in (1, 4, 16))
        most = tuple(n for n in (0, 16, 64, 256, 1024) if n <= unit.largest_group)
        return (
            Knob(name="lanes", usual=target.lanes, values=lanes, what="elements of a vector"),
            Knob(name="tile_rows", usual=target.tile_rows, values=(2, 4, 8), what="rows of a product's tile"),
            Knob(name="tasks_to_fill", usual=target.tasks_to_fill, values=tasks, what=parts),
            Knob(name="most", usual=0, values=most, what="work-items of a work-group, 0: by size", each=True),
        )

    def prepare(
        self, source: str, launch: Launch, index: int
    ) -> Callable[[Sequence[Any], Sequence[Any]], cl.Event]:
        """Return what queues the kernel with this launch's sizes, and returns its event."""
        template = self.template(source, launch, index)
        queue, size = template.queue, template.at((), launch.grid)
        return lambda buffers, values: queue(buffers, values, size)

    def template(self, source: str, launch: Launch, index: int) -> LaunchTemplate:
        """Return the launches of a kernel for many sizes: what is a symbol in ``launch`` comes later."""
        unit = self.runtime.unit(index)
        return LaunchTemplate(self.loaded, self.loaded.handle(unit, source, launch.kernel.name), launch)

    def player(self, script: Script) -> Replay | None:
        """Return what runs a program for ``mode="reduce-overhead"``, if all of it is launches."""
        if script.mode != "reduce-overhead" or not self.runtime.unit(script.index).copies_kernels:
            return None
        return Replay(self, script) if all(step.what is not None for step in script.steps) else None

    def bound(
        self, source: str, launch: Launch, index: int
    ) -> tuple[cl.Kernel, tuple[int, ...], tuple[int, ...], list[tuple[int, Callable[[Any], bytes]]]]:
        """Return a kernel of one's own with its parameters set, its global and local size, and what is late.

        That are the numbers of the arguments that come with each run, and what makes bytes of them.
        """
        unit = self.runtime.unit(index)
        handle = self.loaded.handle(unit, source, launch.kernel.name)
        with handle.lock:
            kernel = (handle.kernel or self.loaded.load(handle)).clone()
        first = len(launch.kernel.buffers)
        late: list[tuple[int, Callable[[Any], bytes]]] = []
        for at, (param, value) in enumerate(zip(launch.kernel.params, launch.values, strict=True), first):
            if isinstance(value, RuntimeArg):
                late.append((at, partial(packed, FORMAT[param.dtype])))
            else:
                kernel.set_arg(at, packed(FORMAT[param.dtype], value))
        return kernel, *workgroups(launch, launch.grid, unit.largest_group), late

    def build(self, sources: Sequence[str], index: int) -> None:
        """Compile what is not on disk yet, side by side, so that ``prepare`` finds it there."""
        unit = self.runtime.unit(index)
        missing = [s for s in dict.fromkeys(sources) if (path := self._path(unit, s)) and not path.exists()]
        if len(missing) > 1:
            with ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1)) as pool:
                try:
                    running = [pool.submit(self._load, unit, source) for source in missing]
                except RuntimeError:  # the interpreter is ending: ``prepare`` compiles one after the other
                    running = []
                for each in running:
                    each.result()

    def _path(self, unit: Unit, source: str) -> Path | None:
        text = "\0".join(
            (source, *unit.options, unit.device.name, unit.device.version, unit.device.driver_version)
        )
        folder = private_folder("opencl", "programs")
        return folder / f"{sha256(text.encode()).hexdigest()}.bin" if folder is not None else None

    def _load(self, unit: Unit, source: str) -> cl.Program:
        path = self._path(unit, source)
        binary = cache_load(path) if path is not None else None
        if binary is not None:
            try:
                return _build(cl.Program(unit.context, [unit.device], [binary]), unit)
            except cl.Error:
                pass  # a driver of the same version that refuses its own binary: build it again
        self.built += 1
        try:
            text = shield_nested_sines(source) if unit.joins_sines else source
            program = _build(cl.Program(unit.context, text), unit)
        except cl.Error as error:
            raise DeviceError(
                f"{unit.name}: OpenCL C does not compile.\n{error}\n{with_line_numbers(source)}"
            ) from error
        binaries: Any = program.get_info(cl.program_info.BINARIES)
        if path is not None:
            cache_store(path, binaries[0])
        try:  # what a compiler leaves in memory with its program is several times what the binary needs
            return _build(cl.Program(unit.context, [unit.device], [binaries[0]]), unit)
        except cl.Error:
            return program


class _Quiet:
    """Keeps warnings of drivers, which log to every build, from the user: a failure raises.

    Filters belong to the process: they come back when the last of the builds that overlap is done.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
            self._depth += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._filters.__exit__(None, None, None)


_quiet = _Quiet()


def _build(program: cl.Program, unit: Unit) -> cl.Program:
    return blocking(_built, program, unit)


def _built(program: cl.Program, unit: Unit) -> cl.Program:
    with _quiet:
        # False keeps PyOpenCL's own cache out of the way; its annotation leaves that out.
        no_cache: Any = False
        built: cl.Program = program.build(unit.options, devices=[unit.device], cache_dir=no_cache)
        return built
