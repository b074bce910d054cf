"""Running the program of a sample call over NumPy arrays, its kernels through the host's compiler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from tensorbus import Tensor
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.builder import RuntimeArg, fit
from tensorbus.lowering.ir.kernel_task import ERROR_SLOT
from tensorbus.lowering.ir.loop_ir import INDEX
from tensorbus_conformance.native import native
from tensorbus_conformance.sources import Planned
from tensorbus_metal.dialect import dialect, group_of
from tensorbus_metal.host_shim import packed, shim

MSL = dialect()
BATCH = 300
Array = np.ndarray[Any, Any]


def compile_all(plans: Iterable[Planned]) -> int:
    """Compile the kernels of all plans, many at a time; return how many there are."""
    kernels = {render(s.launch.kernel, MSL): s.launch.kernel for plan in plans for s in plan.program.steps}
    pairs = list(kernels.items())
    for start in range(0, len(pairs), BATCH):
        shim().compile(pairs[start : start + BATCH], MSL)
    return len(pairs)


def run(plan: Planned) -> tuple[list[Array], Array]:
    """Return the results of a plan, and what its kernels reported."""
    operands, program = plan.bound.operands, plan.program
    buffers: dict[int, Array] = {ERROR_SLOT: np.zeros(3, np.int64)}
    for slot, (x, dtype) in enumerate(zip(operands, plan.bound.plan.computed, strict=True)):
        if isinstance(x, Tensor):
            buffers[slot] = np.array(x.numpy()).astype(native(dtype)).reshape(-1)
    for slot, (size, dtype) in program.sizes.items():
        kind = np.dtype(np.int64) if dtype is INDEX else native(dtype)
        buffers[slot] = np.frombuffer(b"\x5a" * (size * kind.itemsize), kind).copy()

    def value(x: Any) -> Any:
        if not isinstance(x, RuntimeArg):
            return x
        if x.what == "scalar":
            return fit(operands[x.operand], plan.graph.inputs[x.operand].spec.dtype)
        return 1 if x.what == "code" else x.plus

    for step in program.steps:
        kernel = step.launch.kernel
        entry = shim().entry(render(kernel, MSL), kernel, MSL)
        values = [value(v) for v in step.launch.values]
        addresses = [buffers[slot].ctypes.data for slot in step.slots]
        params = packed([p.dtype for p in kernel.params], values)
        entry(addresses, params, step.launch.grid or (1,), group_of(step.launch))
    results = []
    for layout in program.outputs:
        held = buffers[layout.slot]
        strides = [s * held.itemsize for s in layout.strides]
        results.append(np.lib.stride_tricks.as_strided(held[layout.offset :], layout.shape, strides).copy())
    return results, buffers[ERROR_SLOT]
