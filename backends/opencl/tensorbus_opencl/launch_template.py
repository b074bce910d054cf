"""Launches of a kernel for many sizes: arguments that are the same for all are bytes once and for all."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import pyopencl as cl
from tensorbus.backend_api import INDEX, DeviceError, Launch, RuntimeArg, SymInt
from tensorbus.backend_api import dtypes as dt

if TYPE_CHECKING:
    from .kernel_lru import Handle, Loaded

FORMAT: dict[dt.DType, struct.Struct] = {
    kind: struct.Struct(code) for kind, code in (
        (INDEX, "q"), (dt.int8, "b"), (dt.int16, "h"), (dt.int32, "i"), (dt.int64, "q"), (dt.uint8, "B"),
        (dt.uint16, "H"), (dt.uint32, "I"), (dt.uint64, "Q"), (dt.float32, "f"), (dt.float64, "d"),
        (dt.complex64, "2f"), (dt.complex128, "2d"),
    )
}  # fmt: skip
_GROUPS = 16
_SOLO = 256

Sized = tuple[tuple[Any, ...], tuple[int, ...], tuple[int, ...]]
"""Arguments as their numbers and bytes in turn, the global size, the local size."""


class LaunchTemplate:
    """One launch of a program, see ``tensorbus.executors.program_template.LaunchTemplate``."""

    __slots__ = ("_fixed", "_handle", "_largest", "_late", "_launch", "_loaded", "_open", "_unit")

    def __init__(self, loaded: Loaded, handle: Handle, launch: Launch) -> None:
        self._loaded, self._handle, self._launch, self._unit = loaded, handle, launch, handle.unit
        self._largest = handle.unit.largest_group
        self._late: list[tuple[int, Callable[[Any], bytes]]] = []
        self._open: list[tuple[int, struct.Struct]] = []
        fixed: list[Any] = []
        values: Sequence[Any] = launch.values
        for at, (param, value) in enumerate(
            zip(launch.kernel.params, values, strict=True), len(launch.kernel.buffers)
        ):
            form = FORMAT[param.dtype]
            if isinstance(value, RuntimeArg):
                self._late.append((at, partial(packed, form)))
            elif type(value) is SymInt:
                self._open.append((at, form))
            else:
                fixed += at, packed(form, value)
        self._fixed = tuple(fixed)

    def at(self, values: Sequence[Any], grid: tuple[int, ...]) -> Sized:
        """Return the arguments and sizes for these values of the open parameters, and this grid."""
        arguments = self._fixed
        if values:
            every = [*arguments]
            for (at, form), value in zip(self._open, values, strict=True):
                every += at, packed(form, value)
            arguments = tuple(every)
        return arguments, *workgroups(self._launch, grid, self._largest)

    def queue(self, buffers: Sequence[Any], values: Sequence[Any], size: Sized) -> cl.Event:
        """Queue the kernel in this thread's current queue; return its event."""
        # A kernel object holds its arguments until they are queued: one thread at a time.
        to, handle, loaded = self._unit.queue(), self._handle, self._loaded
        bit = to.bit
        arguments, grid, group = size
        with handle.lock:
            kernel = handle.kernel or loaded.load(handle)
            handle.used = loaded.tick()
            set_arg = kernel.set_arg
            for at, block in enumerate(buffers):
                if block is None:
                    set_arg(at, None)
                    continue
                set_arg(at, block.memory)
                if block.users != bit:
                    block.used_by(bit)
            if handle.holds is not arguments:
                _set_bytes(kernel, arguments)
                handle.holds = arguments
            for (at, pack), value in zip(self._late, values, strict=True):
                _set_bytes(kernel, (at, pack(value)))
            try:
                return cl.enqueue_nd_range_kernel(to, kernel, grid, group)
            except cl.Error as error:
                name = self._launch.kernel.name
                raise DeviceError(f"{self._unit.name}: {name} could not be queued: {error}") from error


def _set_bytes(kernel: cl.Kernel, arguments: tuple[Any, ...]) -> None:
    """Set arguments, given as their numbers and bytes in turn."""
    # The public method tries each type of argument in turn, which takes 10 us for bytes.
    set_all = getattr(kernel, "_set_arg_buf_multi", None)
    if set_all is not None:
        set_all(arguments)
        return
    for at, data in zip(arguments[::2], arguments[1::2], strict=True):
        kernel.set_arg(at, data)


def packed(form: struct.Struct, value: Any) -> bytes:
    """Return an argument's bytes. A float beyond float32 becomes infinite, as in a conversion."""
    if isinstance(value, complex):
        part = struct.Struct(form.format[-1])
        return packed(part, value.real) + packed(part, value.imag)
    try:
        return form.pack(value)
    except OverflowError:
        return form.pack(math.copysign(math.inf, value))


def workgroups(
    launch: Launch, grid: tuple[int, ...], largest: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:  # fmt: skip
    """Return the global and the local size of a launch over this grid; the first is a multiple of the second.

    Groups hold whole rows where these fit, as vector units are filled from neighbours, and are few enough to
    keep all cores busy. Tasks share axis 0. ``largest``: the most work-items that a group may have.
    """
    has_grid, grid = bool(grid), grid or (1,)
    if launch.group:
        return grid, (launch.group, *(1,) * (len(grid) - 1))
    if launch.kernel.task or not has_grid:
        if launch.kernel.task and has_grid:
            grid = (min(grid[0], max(1, _SOLO // prod(grid[1:]))), *grid[1:])
        return grid, (1,) * len(grid)
    room = min(largest, launch.most or max(prod(grid) // _GROUPS, 16))
    if launch.tiled and min(grid[:2]) >= 16 and room >= 256:
        group = [16, min(room // 16, grid[1])]
        room //= prod(group)
    else:
        group = []
        for n in grid[:2]:
            pieces = -(-n // max(room, 1))
            group.append(-(-n // pieces))
            room //= group[-1]
    if len(grid) > 2:
        group.append(max(min(room, grid[2]), 1))
    return tuple(-(-n // g) * g for n, g in zip(grid, group, strict=True)), tuple(group)
