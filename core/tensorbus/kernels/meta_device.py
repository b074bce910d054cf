"""The device ``meta``: tensors with shapes and without elements, which take no memory.

It is supplied as any device is, by hooks, a runtime and a table of kernels; core carries it so that it is
there in every process. Its one kernel serves every op, of plugins and programs too, by the op's shape rule,
so that none is lacking; a custom op may register its own. What asks for elements gets an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from ..backend_interface.protocols import Call, DeviceProperties, Kernel, KernelTable, MemoryStats, Runtime
from ..backend_interface.spec import Shape, Spec
from ..dispatch.kernel_tables import program_kernels
from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..errors import DeviceError
from ..ops.definition import table
from ..ops.elementwise.family import broadcast_shapes
from ..plugins.hookspecs import hookimpl
from .meta_memory import Storage, counting

META: Final = "meta"


class ShapeValue:
    """A value: its shape alone. The dtype is in the tensor's type, as on every device."""

    __slots__ = ("__weakref__", "shape", "storage", "strides")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.storage: Storage | None = None
        self.strides: Shape | None = None

    def __repr__(self) -> str:
        return f"ShapeValue({self.shape})"


class MetaRuntime:
    """The functions that every device owes."""

    def device_count(self) -> int:
        """Return 1: there is nothing to count."""
        return 1

    def properties(self, index: int) -> DeviceProperties:
        """Describe the device, which has every dtype."""
        return DeviceProperties(name="shapes without memory", dtypes=frozenset(dt.ALL))

    def from_host(self, data: memoryview, shape: Shape, dtype: DType, index: int) -> ShapeValue:
        """Return a value of this shape; the elements are dropped."""
        return self.of_shape(shape, dtype, index)

    def of_shape(self, shape: Shape, dtype: DType, index: int) -> ShapeValue:
        """Return a value of this shape: see ``backend_interface.capabilities.HasNoElements``."""
        value = ShapeValue(tuple(shape))
        if counting.memory is not None:
            counting.memory.note(value, dtype.itemsize)
        return value

    def to_host(self, value: ShapeValue, dtype: DType, index: int) -> memoryview:
        """Raise ``DeviceError``: there are no elements."""
        raise DeviceError(
            f"the elements of a tensor {dtype}{[*value.shape]} on 'meta' were asked for, but the device keeps"
            f" shapes only: nothing can be read, printed, compared in Python or copied to another device."
            f" Make the tensor on a device with memory; a module gets one by module.to_empty(device=...) and"
            f" then values, or by load_state_dict(state, assign=True)."
        )

    def synchronize(self, index: int) -> None:
        """Do nothing: no work is queued."""

    def memory_stats(self, index: int) -> MemoryStats:
        """Return zeros."""
        return MemoryStats(allocated=0, peak=0, total=0)

    def reset_peak_memory_stats(self, index: int) -> None:
        """Do nothing."""


def by_shape_rule(call: Call) -> Callable[..., Any]:
    """Return what takes values to the results of an op: its shape rule alone."""
    if call.shapes is None:
        return partial(_broadcast, call.out_dtype.itemsize)
    op = table[call.op]
    specs = op.specs(tuple(Spec(s, d) for s, d in zip(call.shapes, call.dtypes, strict=True)), call.attrs)

    def run(*values: Any) -> Any:
        results = [ShapeValue(spec.shape) for spec in specs]
        if counting.memory is not None:
            for result, spec in zip(results, specs, strict=True):
                counting.memory.note(result, spec.dtype.itemsize, (*values, None)[0], op.view, call.attrs)
        return tuple(results) if op.results else results[0]

    return run


def _broadcast(itemsize: int, *values: Any) -> ShapeValue:
    value = ShapeValue(broadcast_shapes(*[v.shape for v in values if type(v) is ShapeValue]))
    if counting.memory is not None:
        counting.memory.note(value, itemsize)
    return value


def _call_with_attributes(call: Call) -> Callable[..., Any]:
    """Return the kernel for attributes that come with each call; no shape depends on them."""
    run = by_shape_rule(call)
    count = None if call.shapes is None else len(call.shapes)
    return lambda *values: run(*values[:count])


def _is_nobodys(call: Call) -> bool | str:
    """Return True, or that a custom op names a kernel for this device, which does more than have a shape."""
    return META not in [*program_kernels(call.op)] or "the op has a kernel of its own for shapes"


KERNEL: Final = Kernel(
    name="shape rule", prepare=by_shape_rule, supports=_is_nobodys, before=("*",),
    runtime_attrs=_call_with_attributes,
)  # fmt: skip


class EveryOp(Mapping[str, Kernel]):
    """The table: any name has the kernel. It lists the ops that there are at the time."""

    def __getitem__(self, op: str) -> Kernel:
        return KERNEL

    def __contains__(self, op: object) -> bool:
        return isinstance(op, str)

    def __iter__(self) -> Iterator[str]:
        return iter(table.names())

    def __len__(self) -> int:
        return len(table)


@hookimpl
def tensorbus_device(device_type: str) -> Runtime | None:
    """Return the runtime."""
    return MetaRuntime() if device_type == META else None


@hookimpl
def tensorbus_kernels(device_type: str) -> KernelTable | None:
    """Return the table."""
    return EveryOp() if device_type == META else None
