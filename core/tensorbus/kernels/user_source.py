"""Kernels that users write, on a device with a compiler for generated source: compiled and launched by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from ..backend_interface.capabilities import SourceCall
from ..backend_interface.strided_array import StridedArray
from ..dtypes.definition import DType
from ..errors import DeviceError, UnsupportedDtypeError
from ..lowering.codegen.dialect import Dialect
from ..lowering.ir.builder import PARAMETER, Launch
from ..lowering.ir.loop_ir import INDEX, Buffer, LoopKernel, Var
from .from_dialect import pack
from .generated_program import Compiler

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


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

    A grid without work-items, which is not to be launched, has one.
    """
    buffers = [Buffer(f"operand_{k}", dtype) for k, (_, dtype, _) in enumerate(call.operands)]
    buffers += [Buffer(f"result_{k}", dtype, True) for k, (_, dtype, _) in enumerate(call.results)]
    params = [Var(f"scalar_{k}", PARAMETER.get(dtype, dtype)) for k, (_, dtype, _) in enumerate(call.scalars)]
    params += [Var(f"size_{k}", INDEX) for k in range(len(call.sizes))]
    first, *others = (max(n, 1) for n in call.grid)
    if call.group:
        first = -(-first // call.group) * call.group
    return Launch(
        kernel=LoopKernel(call.name, tuple(buffers), tuple(params), (), group=call.group),
        values=(*(value for _, _, value in call.scalars), *call.sizes),
        grid=(first, *others),
    )


def check_signature(call: SourceCall, dialect: Dialect, device: str) -> None:
    """Raise ``DeviceError`` where a source takes other arguments than it would be called with.

    Of languages whose kernels are plain functions, called by their addresses: where a grid has work-items,
    the driver counts arguments, but here nobody would before they are read. That is so of a source with the
    signature of another device of the same language: that of the cpu has the range of a thread at its end.
    """
    source = _COMMENT.sub(" ", call.code) if isinstance(call.code, str) and not dialect.parallel else ""
    definition = re.search(rf"\b{re.escape(call.name)}\s*\(([^(){{;]*)\)\s*\{{", source)
    if definition is None:
        return
    arguments = [
        dialect.buffer.format(const=constant, T=f"TB_{name}", name=name)
        for constant, arrays in ((dialect.constant, call.operands), ("", call.results))
        for name, _, _ in arrays
    ]
    scalars = [(PARAMETER.get(dtype, dtype), name) for name, dtype, _ in call.scalars]
    scalars += [(INDEX, f"size_{k}") for k in range(len(call.sizes))]
    rules = {**dialect.types, INDEX: dialect.index}
    arguments += [
        dialect.param.format(T=rules[d].storage if d in rules else d, name=name) for d, name in scalars
    ]
    count = definition[1].count(",") + 1 if definition[1].strip() not in ("", "void") else 0
    if count != len(arguments):
        head = dialect.kernel.format(name=call.name, arguments=", ".join(arguments), group=call.group)
        raise DeviceError(
            f"{call.name}: its source for {device} takes {count} argument(s), and would be called with"
            f" {len(arguments)}. Write it as: {head}"
        )


def from_source(
    compiler: Compiler, call: SourceCall, index: int
) -> Callable[[Sequence[Any]], tuple[StridedArray, ...]]:
    """Return what runs a user's kernel on the unit ``index``: it takes and gives values of the device.

    Raises ``UnsupportedDtypeError`` where the language lacks a dtype, ``DeviceError`` where the source does
    not compile.
    """
    dialect = compiler.dialect(index)
    types = dialect.types
    check_signature(call, dialect, compiler.describe(index))

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
