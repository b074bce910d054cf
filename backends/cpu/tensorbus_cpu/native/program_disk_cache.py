"""Compiled programs on disk: a second process loads them without starting the code generator.

A program is known by a digest of its graph, of what it was to be compiled for, and of all code that had a
part in it; what is stored are the numbers of its bytecode, and the names of the kernels that these refer to.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from tensorbus.backend_api import (
    CompiledForInspection,
    CompileRequest,
    Executable,
    cache_load,
    cache_store,
    code_stamp,
    name_of,
    private_folder,
)

from ..compiler import NATIVE, CCompiler
from ..gemm.blas_call import blas_functions

if TYPE_CHECKING:  # all of it comes with the first program that is not stored
    from tensorbus.backend_api import Knob, PlanEnv, SymbolicProgram

    from ..lowering import CpuExecutable
    from .driver import Driver
    from .relocatable_program import BoundProgram


class CachedLowering:
    """The lowering of the cpu device."""

    modes: Final = {"reduce-overhead": "nothing to gain: a run is one call of C already, without any Python"}

    def knobs(self, order: CompileRequest) -> Sequence[Knob]:
        """Return what is measured for ``mode="max-autotune"``."""
        from ..lowering import CpuLowering

        return CpuLowering().knobs(order)

    def compile(self, order: CompileRequest) -> Executable:
        """Return the executable of a program: a stored one where there is one."""
        tools = NATIVE.tools()
        path = _path(order, tools) if tools is not None else None
        data = cache_load(path) if path is not None else None
        if data is not None and tools is not None:
            stored = _opened(order, tools, data)
            if stored is not None:
                return stored
        if tools is not None:
            from .driver import start_compiling

            start_compiling(
                tools, any(node.op == "matmul" for node in order.graph)
            )  # long before that is lowered
        from ..lowering import CpuExecutable, CpuLowering

        compiled = CpuLowering().compile(order)
        listing = compiled.listing if path is not None and isinstance(compiled, CpuExecutable) else None
        if path is not None and listing is not None:  # its kernels are still being compiled
            from .relocatable_program import encoded

            if (data := encoded(listing)) is not None:
                cache_store(path, data)
        return compiled

    def compile_symbolic(self, order: CompileRequest, env: PlanEnv) -> SymbolicProgram | None:
        """Return a program for many sizes."""
        from ..lowering import CpuLowering

        return CpuLowering().compile_symbolic(order, env)


class StoredExecutable(CompiledForInspection["CpuExecutable"]):
    """A program that was stored, called with its inputs."""

    waits: Final = True

    def __init__(self, order: CompileRequest, driver: Driver, bound: BoundProgram) -> None:
        self._order = order
        self.direct_call = driver.executable(driver.program(bound), self._other, len(order.graph.inputs))

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run the program. Raises what it finds wrong with the values: an index out of range, no memory."""
        results: Sequence[Any] = self.direct_call(values)
        return results

    def compile_whole(self) -> CpuExecutable:
        """Return the program compiled anew."""
        from ..lowering import CpuExecutable, CpuLowering

        whole = CpuLowering().compile(self._order)
        assert isinstance(whole, CpuExecutable)
        return whole

    def _other(self, values: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Return the program for the layouts of these values, and the values, copied where need be."""
        return self.whole.other(values)


def _opened(order: CompileRequest, tools: CCompiler, data: bytes) -> StoredExecutable | None:
    """Return the executable of what was stored; None where it does not run here, or something is missing."""
    if NATIVE.compiler() is not tools:
        return None
    from .driver import driver_of, error_raiser
    from .kernel_batch_compiler import units_of
    from .relocatable_program import decoded

    driver = driver_of(tools)
    listing = decoded(data)
    bound = listing.bound(units_of(tools), error_raiser(listing.names))
    return StoredExecutable(order, driver, bound) if driver is not None and bound is not None else None


def _path(order: CompileRequest, tools: CCompiler) -> Path | None:
    """Return where a program would be stored; None where its graph does not say all that it does."""
    folder, name = private_folder("cpu", "programs"), name_of(order.graph)
    if folder is None or name is None:
        return None
    about = (
        name, repr(sorted(order.replaces.items())), order.mode, repr(sorted(order.chosen.items())),
        repr(sorted(order.calls)),
        code_stamp(Path(__file__).parent), np.__version__, sys.version, str(NATIVE.threads),
        str(bool(blas_functions())),
    )  # fmt: skip
    return folder / tools.key("\0".join(about), ())
