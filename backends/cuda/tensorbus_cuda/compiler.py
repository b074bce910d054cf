"""Source to launches, by NVRTC. Binaries are kept on disk: by source, options, architecture and version."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from itertools import repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Final

import cupy
from cupy.cuda import nvrtc
from tensorbus.backend_api import (
    DeviceError,
    Dialect,
    Knob,
    Launch,
    cache_load,
    cache_store,
    private_folder,
    with_line_numbers,
)
from tensorbus.backend_api import dtypes as dt

from .dialect import OPTIONS, native
from .graphs.cuda_graph import GraphRunner
from .kernel_launch import Launcher, LaunchSequence

if TYPE_CHECKING:
    from tensorbus.backend_api import Arena, Layout, Node, Script

    from .device import CudaRuntime
    from .unit import Unit


_MOST_AT_ONCE: Final = 16
"""How many sources are built at a time."""
_OWN, _USERS, _STREAM = attrgetter("own"), attrgetter("users"), attrgetter("stream")
PRODUCTS: Final = frozenset({"matmul", "affine"})


class CudaCompiler:
    """The compiler of generated kernels: see ``tensorbus.kernels.generated_program.Compiler``.

    Sizes of a plan that come again are played as graphs.
    """

    replays_sizes: Final = True

    def __init__(self, runtime: CudaRuntime) -> None:
        self.runtime = runtime
        self._functions: dict[tuple[int, str, str], Any] = {}
        self._binaries: dict[tuple[str, str], bytes] = {}
        self._lock, self._counting = threading.Lock(), threading.Lock()
        self.built = 0

    def dialect(self, index: int) -> Dialect:
        """Return CUDA C++ for the unit."""
        return self.runtime.unit(index).dialect

    def describe(self, index: int) -> str:
        """Return the unit's name."""
        return self.runtime.unit(index).name

    def allocate(self, nbytes: int, index: int) -> Any:
        """Return a block of the unit's pool."""
        return self.runtime.units[index].pool.allocate(nbytes)

    def allocate_several(self, sizes: Sequence[int], index: int) -> list[Any]:
        """Return a block of the unit's pool for each size."""
        return self.runtime.units[index].pool.allocate_several(sizes)

    def is_own(self, buffer: Any, index: int) -> bool:
        """Return whether what is queued next may write over a block, as no other stream has work with it."""
        unit = self.runtime.units[index]
        return bool(buffer.own) and not buffer.users and buffer.stream is unit.stream()

    def are_own(self, buffers: Sequence[Any], index: int) -> bool:
        """Return ``is_own`` of several blocks at once: False where it is False of one."""
        stream = self.runtime.units[index].stream()
        return (
            all(map(_OWN, buffers))
            and not any(map(_USERS, buffers))
            and all(map(is_, map(_STREAM, buffers), repeat(stream)))
        )

    def knobs(self, index: int) -> Sequence[Knob]:
        """Return what is measured for ``mode="max-autotune"``."""
        usual, parts = self.dialect(index).target.tasks_to_fill, "parts that long work is cut into"
        ways = "cuBLASLt's ways to a product, the one it thinks the fastest first"
        return (
            Knob(name="way", usual=0, values=(0, 1, 2, 3, 4), what=ways, each=True, ops=PRODUCTS),
            Knob(name="most", usual=0, values=(0, 64, 128), what="threads of a block, 0: any", each=True),
            Knob(name="tasks_to_fill", usual=usual, values=(usual // 4, usual, usual * 4), what=parts),
        )

    def row_stride(self, node: Node, layouts: Sequence[Layout | None]) -> int:
        """Return how far apart the rows of a matrix are best; 0: packed."""
        from .gemm import kernels_matmul

        return kernels_matmul.apart(node, layouts)

    def axis_orders(self, node: Node, layouts: Sequence[Layout | None]) -> Sequence[tuple[int, ...]] | None:
        """Return in which order the axes of a call's results are best; None where they must be in C order."""
        from .attention import kernels_attention

        return kernels_attention.orders(node.op, layouts)

    def side_output(self, node: Node, reader: Node) -> int:
        """Return how many float32 a call can leave for another that reads its result."""
        from .attention import kernels_attention

        return kernels_attention.leaves(node, reader)

    def prefers_generated(self, node: Node) -> bool:
        """Return whether a program's own kernels are better than the eager one: they part booleans in two."""
        return node.op in ("sort", "argsort") and node.inputs[0].spec.dtype is dt.bool_

    def player(self, script: Script) -> GraphRunner:
        """Return what runs a compiled program as a CUDA graph."""
        return GraphRunner(self, script)

    def errors(self, index: int) -> Any:
        """Return the block in which kernels report bad indices."""
        return self.runtime.unit(index).error_block()

    def counts(self, index: int) -> Any:
        """Return the block in which the current stream's kernels count their groups."""
        return self.runtime.units[index].counts()

    def error_code(self, op: str) -> int:
        """Return the number of an op in error reports, from 1."""
        return self.runtime.reports.code(op)

    def prepare(
        self, source: str, launch: Launch, index: int
    ) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        """Return what queues the kernel with this launch's sizes."""
        return self.template(source, launch, index).queue

    def sequence(
        self, runs: Sequence[Any], slots: Sequence[Sequence[int]], late: Sequence[Sequence[int]],
        arena: Arena, index: int,
    ) -> Callable[[Sequence[Any], Sequence[Any], Any], None] | None:  # fmt: skip
        """Return what queues several of what ``prepare`` returned, one after the other."""
        launchers = [x for run in runs if isinstance(x := getattr(run, "__self__", None), Launcher)]
        if len(launchers) < len(runs):
            return None
        unit = self.runtime.unit(index)
        return LaunchSequence(unit, launchers, slots, arena.offsets, late).queue

    def fresh(
        self, run: Any, place: int, nbytes: int, index: int
    ) -> Callable[[list[Any], Sequence[Any]], Any] | None:
        """Return what queues what ``prepare`` returned, with a new block at a place among its buffers."""
        launcher = getattr(run, "__self__", None)
        if not isinstance(launcher, Launcher) or not nbytes:
            return None
        return partial(launcher.queue_new, place, nbytes)

    def template(self, source: str, launch: Launch, index: int) -> Launcher:
        """Return the launches of a kernel for many sizes: what is a symbol in ``launch`` comes later."""
        unit = self.runtime.unit(index)
        return Launcher(unit, self._function(unit, source, launch.kernel.name), launch)

    def build(self, sources: Sequence[str], index: int) -> None:
        """Make the binaries of new sources side by side: each takes NVRTC a tenth of a second."""
        unit = self.runtime.unit(index)
        loaded = {source for unit_index, source, _ in [*self._functions] if unit_index == unit.index}
        new = [source for source in dict.fromkeys(sources) if source not in loaded]
        if len(new) < 2:
            return
        with ThreadPoolExecutor(min(len(new), os.cpu_count() or 1, _MOST_AT_ONCE)) as pool:
            try:
                running = {source: pool.submit(self._binary, unit, source) for source in new}
            except RuntimeError:  # the interpreter is ending: they are built one after the other
                running = {}
            for source, binary in running.items():
                self._binaries[unit.architecture, source] = binary.result()

    def _function(self, unit: Unit, source: str, name: str) -> Any:
        key = (unit.index, source, name)
        function = self._functions.get(key)
        if function is None:
            with self._lock:
                function = self._functions.get(key)
                if function is None:
                    module = cupy.cuda.function.Module()
                    with unit.current():
                        self._load(module, unit, source)
                        function = self._functions[key] = _entry(module, name, source)
        return function

    def _load(self, module: Any, unit: Unit, source: str) -> None:
        binary = self._binaries.pop((unit.architecture, source), None)
        try:
            module.load(self._binary(unit, source) if binary is None else binary)
        except cupy.cuda.driver.CUDADriverError:
            # It may be whole, from the disk, but this driver refuses it: build it again.
            module.load(self._binary(unit, source, again=True))

    def _binary(self, unit: Unit, source: str, again: bool = False) -> bytes:
        """Return the binary of a source: that on disk, unless there is none or it is built ``again``."""
        options = (*OPTIONS, f"--gpu-architecture=sm_{native(unit.architecture)}")
        text = "\0".join((source, *options, repr(nvrtc.getVersion())))
        folder = private_folder("cuda", "programs")
        path = folder / f"{sha256(text.encode()).hexdigest()}.cubin" if folder is not None else None
        binary = cache_load(path) if path is not None and not again else None
        if binary is None:
            binary = self._build(unit, source, options)
            if path is not None:
                cache_store(path, binary)
        return binary

    def _build(self, unit: Unit, source: str, options: tuple[str, ...]) -> bytes:
        with self._counting:
            self.built += 1
        program = nvrtc.createProgram(source, "tensorbus.cu", (), ())
        try:
            nvrtc.compileProgram(program, options)
            binary: bytes = nvrtc.getCUBIN(program)
        except nvrtc.NVRTCError as error:
            raise DeviceError(
                f"{unit.name}: CUDA C++ does not compile: {error}\n"
                f"{nvrtc.getProgramLog(program)}\n{with_line_numbers(source)}"
            ) from error
        finally:
            nvrtc.destroyProgram(program)
        return binary


def _entry(module: Any, name: str, source: str) -> Any:
    try:
        return module.get_function(name)
    except cupy.cuda.driver.CUDADriverError as error:
        raise DeviceError(
            f'cuda: the source has no function `extern "C" __global__ void {name}(...)`: {error}\n'
            f"{with_line_numbers(source)}"
        ) from error
