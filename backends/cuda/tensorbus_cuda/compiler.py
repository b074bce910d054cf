"""Source to launches, by NVRTC. Binaries are kept on disk: by source, options, architecture and version."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import cupy
import numpy as np
from cupy.cuda import nvrtc
from tensorbus.backend_api import (
    INDEX,
    DeviceError,
    Dialect,
    Late,
    Launch,
    keep,
    kept,
    numbered,
    private_folder,
)
from tensorbus.backend_api import dtypes as dt

from .lowering import OPTIONS

if TYPE_CHECKING:
    from .device import CudaRuntime, Unit

_SCALAR: Final[dict[dt.DType, Callable[[Any], Any]]] = {
    INDEX: np.int64, **{d: getattr(np, d.name) for d in (
        dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8, dt.uint16, dt.uint32, dt.uint64, dt.float32,
        dt.float64, dt.complex64, dt.complex128,
    )}
}  # fmt: skip
"""How an argument that passes by value becomes one of its width."""
THREADS: Final = 256
_SIDE: Final = 16
_BLOCKS: Final = (2**31 - 1, 65535, 65535)


class CudaCompiler:
    """What the generated kernels need of CUDA: see ``tensorbus.kernels.from_dialect.Compiler``."""

    def __init__(self, runtime: CudaRuntime) -> None:
        self.runtime = runtime
        self._functions: dict[tuple[int, str], Any] = {}
        self._lock = threading.Lock()
        self._codes: dict[str, int] = {}
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

    def errors(self, index: int) -> Any:
        """Return the block in which kernels report bad indices."""
        return self.runtime.unit(index).error_block()

    def error_code(self, op: str) -> int:
        """Return the number of an op in error reports, from 1."""
        with self._lock:
            code = self._codes.setdefault(op, len(self._codes) + 1)
            self.runtime.error_names[code] = op
        return code

    def prepare(
        self, source: str, launch: Launch, index: int
    ) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        """Return what queues the kernel with this launch's sizes."""
        unit = self.runtime.unit(index)
        name = launch.kernel.name
        function = self._function(unit, source, name)
        params = [
            None if isinstance(value, Late) else scalar(param.dtype, value)
            for param, value in zip(launch.kernel.params, launch.values, strict=True)
        ]
        late = [(k, launch.kernel.params[k].dtype) for k, value in enumerate(params) if value is None]
        blocks, threads = sizes(launch)
        current, stream = unit.current, unit.stream

        def run(buffers: Sequence[Any], values: Sequence[Any]) -> None:
            to = stream()
            arguments: list[Any] = []
            for block in buffers:
                if block is None:
                    arguments.append(0)
                    continue
                arguments.append(block.ptr)
                if block.stream is not to:
                    block.used_by(to)
            given = params
            if late:
                given = list(params)
                for (k, dtype), value in zip(late, values, strict=True):
                    given[k] = scalar(dtype, value)
            try:
                with current():
                    function(blocks, threads, (*arguments, *given), stream=to)
            except cupy.cuda.driver.CUDADriverError as error:
                raise DeviceError(f"{unit.name}: {name} could not be queued: {error}") from error

        return run

    def _function(self, unit: Unit, source: str, name: str) -> Any:
        key = (unit.index, source)
        found = self._functions.get(key)
        if found is None:
            with self._lock:
                found = self._functions.get(key)
                if found is None:
                    module = cupy.cuda.function.Module()
                    with unit.current():
                        self._load(module, unit, source)
                        found = self._functions[key] = module.get_function(name)
        return found

    def _load(self, module: Any, unit: Unit, source: str) -> None:
        options = (*OPTIONS, f"--gpu-architecture=sm_{unit.architecture}")
        text = "\0".join((source, *options, repr(nvrtc.getVersion())))
        folder = private_folder("cuda", "programs")
        path = folder / f"{sha256(text.encode()).hexdigest()}.cubin" if folder is not None else None
        binary = kept(path) if path is not None else None
        if binary is not None:
            try:
                module.load(binary)
                return
            except cupy.cuda.driver.CUDADriverError:
                pass  # whole, but this driver refuses it: build it again
        binary = self._build(unit, source, options)
        if path is not None:
            keep(path, binary)
        module.load(binary)

    def _build(self, unit: Unit, source: str, options: tuple[str, ...]) -> bytes:
        self.built += 1
        program = nvrtc.createProgram(source, "tensorbus.cu", (), ())
        try:
            nvrtc.compileProgram(program, options)
            binary: bytes = nvrtc.getCUBIN(program)
        except nvrtc.NVRTCError as error:
            raise DeviceError(
                f"{unit.name}: CUDA C++ does not compile: {error}\n"
                f"{nvrtc.getProgramLog(program)}\n{numbered(source)}"
            ) from error
        finally:
            nvrtc.destroyProgram(program)
        return binary


def scalar(dtype: dt.DType, value: Any) -> Any:
    """Return a number as an argument of a kernel. A float beyond float32 becomes infinite, as in a cast."""
    with np.errstate(over="ignore"):
        return _SCALAR[dtype](value)


def sizes(launch: Launch) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return how many blocks a launch has along each axis, and how many threads a block has.

    Kernels walk on by the size of the launch, so a grid beyond CUDA's limits is served by fewer blocks.
    ``tiled`` launches have square blocks; others are as long as axis 0, which neighbours in memory lie along.
    """
    grid = (*(launch.grid or (1,)), 1, 1)[:3]
    if launch.group:
        threads = (launch.group, 1, 1)
    elif launch.tiled and min(grid[:2]) >= _SIDE:
        threads = (_SIDE, _SIDE, 1)
    else:
        room, found = THREADS, []
        for n in grid:
            side = min(1 << max(n - 1, 0).bit_length(), room)
            found.append(side)
            room //= side
        threads = (found[0], found[1], min(found[2], 64))
    blocks = tuple(min(-(-n // t), most) for n, t, most in zip(grid, threads, _BLOCKS, strict=True))
    return (blocks[0], blocks[1], blocks[2]), threads
