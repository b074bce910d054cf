"""From a compile request to an executable: the device's lowering, autotuned and dumped on demand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter

from ... import plugins
from ...backend_interface.compilation import CompileRequest, Executable, Lowering
from ...backend_interface.graph import Node
from ...devices.device import Device
from ...dispatch.kernel_tables import program_kernels
from ...graph.pipeline import logged_passes, pass_texts
from ...ops.definition import USER, table
from ...system import env
from ...system.progress_line import progress_detail
from .compiled_program import lower_checked
from .op_trace import TraceNode


def compile_request(device: Device, request: CompileRequest) -> tuple[Executable, tuple[str, ...]]:
    """Return the executable of ``request``, and notes on its mode.

    The device's own lowering compiles it; without one the program runs kernel by kernel.
    """
    lowering = plugins.backend(device.type).lowering()
    if lowering is None:
        from ...executors.kernel_interpreter import Interpreting

        lowering = Interpreting(device.type)
    start, served = perf_counter(), with_user_kernels_decomposed(device, request)
    progress_detail(f"{sum(1 for _ in request.graph)} ops for {device}")
    folder = env.dump_dir()
    with logged_passes(folder is not None) as log:
        if request.mode == "max-autotune":
            from .autotune import autotune

            executable, notes = autotune(device, lowering, served)
        else:
            executable = lower_checked(device, lowering, served)
            notes = _mode_notes(device, lowering, request.mode)
    if folder is not None:
        from ..debug.trace_page import write_trace

        seconds = perf_counter() - start
        executable = write_trace(folder, device, request, executable, seconds, notes, pass_texts(log))
    return executable, notes


def _mode_notes(device: Device, lowering: Lowering, mode: str) -> tuple[str, ...]:
    """Return what a lowering declares to do for a mode."""
    if mode == "default":
        return ()
    note = getattr(lowering, "modes", {}).get(mode, f"{device.type} does nothing else than by default")
    return (f"{mode}: {note}",)


def with_user_kernels_decomposed(device: Device, request: CompileRequest) -> CompileRequest:
    """Return ``request`` with those user kernels decomposed that have no source for the device."""
    lacking = kernels_without_source(device, request.graph)
    if not lacking:
        return request
    from ...decompose.decompose import decompose

    return replace(request, graph=decompose(request.graph, lambda op: op not in lacking))


def has_user_kernels(ops: Iterable[Node | TraceNode]) -> bool:
    """Return whether there are kernels of users and custom ops: they are made for lengths that are known."""
    return any(x.op in table and table[x.op].family == USER for x in ops)


def kernels_without_source(device: Device, ops: Iterable[Node | TraceNode]) -> set[str]:
    """Return the user kernels without a source for the device: their default runs there."""
    user_ops = {x.op for x in ops if x.op in table and table[x.op].family == USER}
    return {op for op in user_ops if device.type not in program_kernels(op)}
