"""Source to launches: MLX compiles and queues kernels for Metal; on the host the shim runs them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import mlx.core as mx
import numpy as np
from tensorbus.backend_api import DeviceError, Dialect, Launch, RuntimeArg

from .dialect import dialect, group_of
from .host_shim import packed, shim, within_language
from .memory import room
from .mlx_kernel_wrapper import SLOT, called, framed

if TYPE_CHECKING:
    from .device import MetalRuntime

Run = Callable[[Sequence[Any], Sequence[Any]], None]
_INT32_MAX: Final = 2**31 - 1


class MetalCompiler:
    """The compiler of generated kernels: see ``tensorbus.kernels.generated_program.Compiler``."""

    def __init__(self, runtime: MetalRuntime) -> None:
        self.runtime = runtime
        self._dialect = dialect()
        self._kernels: dict[tuple[str, tuple[bool, ...]], Any] = {}

    def dialect(self, index: int) -> Dialect:
        """Return the Metal Shading Language."""
        return self._dialect

    def describe(self, index: int) -> str:
        """Return the unit's name."""
        return self.runtime.name

    def allocate(self, nbytes: int, index: int) -> Any:
        """Return a block: with memory on the host; for MLX, whose kernels make their results, without."""
        pool = self.runtime.pool
        return pool.filled(nbytes) if self.runtime.host else pool.block(None, max(nbytes, 16))

    def errors(self, index: int) -> Any:
        """Return a block in which one launch reports bad indices; it is looked at when waiting."""
        return self.runtime.error_block()

    def error_code(self, op: str) -> int:
        """Return the number of an op in error reports, from 1."""
        return self.runtime.reports.code(op)

    def prepare(self, source: str, launch: Launch, index: int) -> Run:
        """Return what runs the kernel with this launch's sizes."""
        kinds = [p.dtype for p in launch.kernel.params]
        fixed = [0 if isinstance(v, RuntimeArg) else v for v in launch.values]
        late = [k for k, v in enumerate(launch.values) if isinstance(v, RuntimeArg)]
        start = self._on_host if self.runtime.host else self._on_metal
        queue = start(source, launch)
        params = packed(kinds, fixed)
        longest = max(launch.grid, default=0)

        def run(buffers: Sequence[Any], values: Sequence[Any]) -> None:
            if longest > _INT32_MAX:
                raise DeviceError(
                    f"metal: {launch.kernel.name} has {longest:,} threads on one axis; MLX has {_INT32_MAX:,}"
                    f" at most. Work in smaller pieces."
                )
            packed_params = params
            if late:
                filled = list(fixed)
                for k, value in zip(late, values, strict=True):
                    filled[k] = value
                packed_params = packed(kinds, filled)
            queue(buffers, packed_params)

        return run

    def _on_host(self, source: str, launch: Launch) -> Callable[[Sequence[Any], bytes], None]:
        host, kernel, dialect = shim(), launch.kernel, self._dialect
        grid, group = launch.grid or (1,), group_of(launch)
        if kernel.body:
            host.expect(source, kernel)
        else:  # by the user, who is told at once what is wrong with it
            within_language(kernel.name, source)
            host.entry(source, kernel, dialect)

        def queue(buffers: Sequence[Any], params: bytes) -> None:
            entry = host.entry(source, kernel, dialect)
            entry([0 if b is None else b.address for b in buffers], params, grid, group)

        return queue

    def _on_metal(self, source: str, launch: Launch) -> Callable[[Sequence[Any], bytes], None]:
        """Return what queues a kernel through MLX.

        MLX's kernels make new arrays. A buffer that an earlier kernel wrote to is written in place, which MLX
        cannot know of: what is queued runs before and after such a launch.
        """
        grid = (*(launch.grid or (1,)), 1, 1)[:3]
        group = (*group_of(launch), 1, 1)[:3]
        writes = [b.writes for b in launch.kernel.buffers]

        def queue(buffers: Sequence[Any], params: bytes) -> None:
            pairs = list(zip(writes, buffers, strict=True))
            new = tuple(w and b is not None and b.array is None for w, b in pairs)
            placed = any(w and not m for w, m in zip(writes, new, strict=True))
            kernel = self._kernel(source, launch, new)
            read = [b for b, m in zip(buffers, new, strict=True) if not m]
            inputs = [_nothing() if b is None else b.array for b in read]
            outs = [b for b, m in zip(buffers, new, strict=True) if m]
            if placed:
                self.runtime.wait()  # kernels that still read what is written here
                mx.eval(*inputs)
            results = kernel(
                inputs=[*inputs, mx.array(np.frombuffer(params or bytes(SLOT), np.uint8))],
                grid=grid,
                threadgroup=group,
                output_shapes=[*(room(b.nbytes) for b in outs), (16,)],
                output_dtypes=[mx.uint8] * (len(outs) + 1),
                init_value=0,
                stream=self.runtime.stream,
            )
            for block, array in zip(outs, results, strict=False):
                block.array = array
            if placed:
                mx.eval(*results)
            else:
                self.runtime.start(outs)

        return queue

    def _kernel(self, source: str, launch: Launch, new: tuple[bool, ...]) -> Any:
        """Return MLX's kernel for a source, where ``new`` says which buffers are new.

        MLX keeps one library of a name: another source by that name would be compiled again at each turn.
        """
        key = (source, new)
        metal_kernel = self._kernels.get(key)
        if metal_kernel is None:
            kernel = launch.kernel
            written = not kernel.body  # by the user
            header, body = called(source, kernel, self._dialect) if written else framed(kernel, self._dialect)
            names = [f"tb_{b.name}" for b in kernel.buffers]
            metal_kernel = self._kernels[key] = mx.fast.metal_kernel(
                name=f"{kernel.name}_{sha256(f'{header}{body}{new}'.encode()).hexdigest()[:16]}",
                input_names=[*(n for n, m in zip(names, new, strict=True) if not m), "tb_params"],
                output_names=[*(n for n, m in zip(names, new, strict=True) if m), "tb_done"],
                source=body,
                header=header,
            )
        return metal_kernel


def _nothing() -> Any:
    """Return what stands for a buffer without elements."""
    return mx.zeros((16,), mx.uint8)
