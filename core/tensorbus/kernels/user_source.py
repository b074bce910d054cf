"""Kernels that users write, on a device with a compiler for generated source: compiled and launched by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ..backend_interface.capabilities import SourceCall
from ..backend_interface.strided_array import StridedArray
from ..dtypes.definition import DType
from ..errors import UnsupportedDtypeError
from ..lowering.ir.builder import PARAMETER, Launch
from ..lowering.ir.loop_ir import INDEX, Buffer, Kernel, Var
from .from_dialect import Compiler, pack


def source_head(call: SourceCall, storage: Callable[[DType], str]) -> str:
    """Return what stands before a user's source: the types of its arrays, and its constants, as macros.

    ``storage`` gives the name that elements of a dtype have in memory.
    """
    names = [name for name, *_ in (*call.operands, *call.results, *call.scalars)]
    # Equal text has to be one kernel.
    lines = [f"// {call.name}: {', '.join(names)} and {len(call.sizes)} size(s)"]
    lines += [f"#define TB_{name} {storage(dtype)}" for name, dtype, _ in (*call.operands, *call.results)]
    for name, value in call.constants.items():
        lines.append(f"#define {name} {int(value) if isinstance(value, bool) else repr(value)}")
    return "\n".join([*lines, ""])


def launch_of(call: SourceCall) -> Launch:
    """Return a call as a launch of a kernel without statements: its arguments, their values and its grid.

    A grid without items, which is not to be launched, has one.
    """
    buffers = [Buffer(f"operand_{k}", dtype) for k, (_, dtype, _) in enumerate(call.operands)]
    buffers += [Buffer(f"result_{k}", dtype, True) for k, (_, dtype, _) in enumerate(call.results)]
    params = [Var(f"scalar_{k}", PARAMETER.get(dtype, dtype)) for k, (_, dtype, _) in enumerate(call.scalars)]
    params += [Var(f"size_{k}", INDEX) for k in range(len(call.sizes))]
    first, *others = (max(n, 1) for n in call.grid)
    if call.group:
        first = -(-first // call.group) * call.group
    return Launch(
        kernel=Kernel(call.name, tuple(buffers), tuple(params), (), group=call.group),
        values=(*(value for _, _, value in call.scalars), *call.sizes),
        grid=(first, *others),
    )


def from_source(
    compiler: Compiler, call: SourceCall, index: int
) -> Callable[[Sequence[Any]], tuple[StridedArray, ...]]:
    """Return what runs a user's kernel on the unit ``index``: it takes and gives values of the device.

    Raises ``UnsupportedDtypeError`` where the language lacks a dtype, ``DeviceError`` where the source does
    not compile.
    """
    types = compiler.dialect(index).types

    def storage(dtype: DType) -> str:
        if dtype not in types:
            raise UnsupportedDtypeError(f"{call.name}: {compiler.describe(index)} has no {dtype}.")
        return types[dtype].storage

    run = compiler.prepare(source_head(call, storage) + str(call.code), launch_of(call), index)
    nonempty = prod(call.grid) > 0
    results = [(shape, dtype, prod(shape) * dtype.itemsize) for _, dtype, shape in call.results]

    def launch(values: Sequence[Any]) -> tuple[StridedArray, ...]:
        packed = [pack(compiler, x, index) for x in values]
        outs = [
            StridedArray.contiguous(compiler.allocate(nbytes, index) if nbytes else None, shape, dtype)
            for shape, dtype, nbytes in results
        ]
        if nonempty:
            run([x.buffer for x in (*packed, *outs)], ())
        return tuple(outs)

    return launch
