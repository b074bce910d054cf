"""Generated CUDA C++ on the host: a header stands in for the language; programs run over NumPy arrays."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tensorbus.dtypes.definition import DType
from tensorbus.lowering.codegen.dialect import Dialect
from tensorbus.lowering.codegen.render import render
from tensorbus.lowering.ir.builder import Launch, RuntimeArg
from tensorbus.lowering.ir.kernel_task import COUNTS_SLOT, ERROR_SLOT
from tensorbus.lowering.ir.loop_ir import INDEX, LoopKernel, Var
from tensorbus.lowering.program.program import Program, steps_of

from flex_host import on_host

SHIM = Path(__file__).with_name("cuda_host.h")
COMPILER = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), "")
CANNOT = platform.system() != "Linux" or not COMPILER
OPTIONS = "-x c++ -std=c++17 -O1 -fPIC -shared -w -ffp-contract=off -fwrapv -fno-strict-aliasing".split()
SLOT, EDGE = 16, 64
"""Bytes of each parameter; bytes around each buffer, in which nobody writes."""
_INSTRUCTION = re.compile(r'asm\("([\w.]+) %0[^;]+;" : "=\w"\((\w+)\) : (.+)\);')
Shape = tuple[Sequence[int], Sequence[int]]
"""How many blocks there are along each axis, and how many threads a block has."""


def run(
    program: Program, dialect: Dialect, inputs: Sequence[Any], shape: Callable[[Launch], Shape]
) -> list[Any]:
    """Return the results of a program without calls; bfloat16 and float8 come and go as their bits.

    What may be written over an input is: the inputs here are copies.
    """
    kernels = list(program.kernels())
    library = _compiled(kernels, dialect)
    entries = {id(kernel): getattr(library, f"tb_{k}") for k, kernel in enumerate(kernels)}
    counts = _Held(np.zeros(dialect.target.workgroup_counters, np.int32))
    held = {ERROR_SLOT: _Held(np.zeros(3, np.int64)), COUNTS_SLOT: counts}
    held |= {k: _Held(x) for k, x in enumerate(inputs)}
    for slot, (count, dtype) in program.sizes.items():
        held[slot] = _Held(np.full(count * dtype.itemsize, 0xA5, np.uint8))
    held |= {program.outputs[out].slot: held[place] for out, place in program.replaceable.items()}
    for step in chain.from_iterable(map(steps_of, program.steps)):
        launch = step.launch
        values = [v.plus if isinstance(v, RuntimeArg) else v for v in launch.values]
        params = b"".join(map(_parameter, launch.kernel.params, values))
        pointers = (ctypes.c_void_p * len(step.slots))(*(held[s].address for s in step.slots))
        sizes = [(ctypes.c_uint32 * 3)(*n) for n in shape(launch)]
        wrong = library.tb_launch(entries[id(launch.kernel)], pointers, params, *sizes)
        assert wrong is None, f"{wrong.decode()}\n{launch.kernel}"
        assert all(x.whole() for x in held.values()), f"written beyond a buffer\n{launch.kernel}"
        assert not counts.content.any(), f"counts that are left\n{launch.kernel}"
    results = []
    for out in program.outputs:
        dtype = program.sizes[out.slot][1]
        x = held[out.slot].content.view(getattr(np, dtype.name, f"u{dtype.itemsize}"))
        strides = [s * dtype.itemsize for s in out.strides]
        results.append(np.lib.stride_tricks.as_strided(x[out.offset :], out.shape, strides).copy())
    return results


class _Held:
    """The bytes of an array, as aligned as a card's memory, with edges that show who writes beyond it."""

    def __init__(self, x: Any) -> None:
        raw = np.full(x.nbytes + 4 * EDGE, 0x5A, np.uint8)
        start = -raw.ctypes.data % EDGE + EDGE
        self._edges = raw[:start], raw[start + x.nbytes :]
        self.content = raw[start : start + x.nbytes]
        self.content[:] = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
        self.address = self.content.ctypes.data

    def whole(self) -> bool:
        return all((edge == 0x5A).all() for edge in self._edges)


def _compiled(kernels: Sequence[LoopKernel], dialect: Dialect) -> ctypes.CDLL:
    parts = [f'#include "{SHIM}"\n', _plain(dialect.prologue)]
    parts += [_entry(k, kernel, dialect) for k, kernel in enumerate(kernels)]
    with tempfile.TemporaryDirectory() as folder:  # no library has the name of an earlier one
        source, result = Path(folder) / "kernels.cu", Path(folder) / "kernels.so"
        source.write_text("".join(parts))
        command = [COMPILER, *OPTIONS, str(source), "-o", str(result), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        library = ctypes.CDLL(str(result))
    library.tb_launch.restype = ctypes.c_char_p
    return library


def _plain(source: str) -> str:
    """Return a source without instructions, which the header has as functions, nor names for linkers."""

    def called(m: re.Match[str]) -> str:
        operand = re.sub(r'"\w"(?=\()', "", m[3])
        return f"ptx_{m[1].replace('.', '_')}({m[2]}, {operand});"

    plain = _INSTRUCTION.sub(called, source)
    return plain.replace('extern "C" __global__ void', "static void")


def _entry(number: int, kernel: LoopKernel, dialect: Dialect) -> str:
    """Return a kernel in a namespace of its own, and a function that takes its arguments out of arrays."""

    def storage(dtype: DType) -> str:
        return (dialect.index if dtype is INDEX else dialect.types[dtype]).storage

    operands = [f"({storage(b.dtype)} *)b[{k}]" for k, b in enumerate(kernel.buffers)]
    operands += [f"*(const {storage(p.dtype)} *)(p + {SLOT * k})" for k, p in enumerate(kernel.params)]
    text = render(kernel, dialect).removeprefix(dialect.prologue)
    own = _plain(on_host(text) if kernel.code else text)
    return (
        f"namespace k{number} {{\n{own}}}\n"
        f'extern "C" void tb_{number}(void **b, const char *p) {{\n'
        f"  k{number}::{kernel.name}({', '.join(operands)});\n}}\n"
    )


def _parameter(param: Var, value: Any) -> bytes:
    kind = np.int64 if param.dtype is INDEX else getattr(np, param.dtype.name)
    return bytes(kind(value).tobytes()).ljust(SLOT, b"\0")
