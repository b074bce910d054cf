"""Kernels that users write in C: compiled with a function that takes arrays, and run in all threads."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from tensorbus.backend_api import (
    DeviceError,
    DType,
    SourceCall,
    UnsupportedDtypeError,
    launch_of,
    source_head,
)
from tensorbus.backend_api import dtypes as dt

from .compiler import NATIVE, CCompiler
from .memory import DTYPES, empty, run
from .native.kernel_batch_compiler import SLOT
from .native.kernel_entry import pieces, slot

_HEAD: Final = """\
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
"""
_COMPLEX: Final = {dt.complex64: "float _Complex", dt.complex128: "double _Complex"}
_OPTIONS: Final = ("-Werror=incompatible-pointer-types", "-Werror=implicit-function-declaration")
_PART: Final = 1 << 15
"""Bytes that a thread takes at a time, at least: nobody knows what a work-item costs, but it reads them."""


def compile_kernel(call: SourceCall) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return what runs a user's kernel on arrays. Raises ``DeviceError`` where it does not compile."""
    compiler = NATIVE.compiler()
    if compiler is None:
        raise DeviceError(f"{call.name}: kernels in C need a C compiler. cpu: {NATIVE.reason}")
    if not isinstance(call.code, str):
        raise DeviceError(f"{call.name}: kernels for the cpu are text in C, got {type(call.code).__name__}.")
    entry = compiler.library(_source(call, compiler), *_OPTIONS).tb_entry
    launch = launch_of(call)
    codes = [slot(p.dtype) for p in launch.kernel.params]
    params = struct.pack("".join(codes), *launch.values) if codes else b""
    work_items = prod(call.grid)
    moved = sum(prod(shape) * dtype.itemsize for _, dtype, shape in (*call.operands, *call.results))
    (piece,) = pieces((max(work_items, 1),), max(_PART * work_items // max(moved, 1), 1))
    function, share = ctypes.cast(entry, ctypes.c_void_p), compiler.runtime.tb_run
    lengths, boxes = (ctypes.c_int64 * 3)(work_items, 1, 1), (ctypes.c_int64 * 3)(piece, 1, 1)
    addresses = ctypes.c_void_p * (len(call.operands) + len(call.results))
    results = [(shape, DTYPES[dtype]) for _, dtype, shape in call.results]

    def launched(values: Sequence[Any]) -> tuple[Any, ...]:
        packed = [x if x.flags.c_contiguous and x.flags.aligned else run(x.copy, "C") for x in values]
        outs = tuple([empty(shape, native) for shape, native in results])
        if work_items:
            share(function, addresses(*[x.ctypes.data for x in (*packed, *outs)]), params, lengths, boxes)
        return outs

    return launched


def _source(call: SourceCall, compiler: CCompiler) -> str:
    """Return the user's source between what it may use, and the function that takes arrays."""
    types = compiler.dialect(0).types

    def storage(dtype: DType) -> str:
        if dtype in _COMPLEX:
            return _COMPLEX[dtype]
        if dtype not in types:
            raise UnsupportedDtypeError(f"{call.name}: C on this processor has no {dtype}.")
        return types[dtype].storage

    arrays = [(f"const TB_{name} *", k) for k, (name, _, _) in enumerate(call.operands)]
    arrays += [(f"TB_{name} *", k) for k, (name, _, _) in enumerate(call.results, len(arrays))]
    field = {"d": "f", "Q": "u", "q": "i"}
    arguments = [f"({kind})b[{k}]" for kind, k in arrays]
    arguments += [f"p[{k}].{field[slot(p.dtype)]}" for k, p in enumerate(launch_of(call).kernel.params)]
    return (
        f"{_HEAD}{source_head(call, storage)}{call.code}\n{SLOT}\n"
        "void tb_entry(void *const *b, const tb_slot *p, const int64_t *range) {\n"
        f"  {call.name}({', '.join([*arguments, 'range[0]', 'range[1]'])});\n}}\n"
    )
