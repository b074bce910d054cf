"""Kernels that users write: in CUDA C++ through NVRTC, or in Triton, whose compiler gives a binary.

Triton compiles only. Loading and launching are CuPy's, so no other library has a say in
streams and memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Final

import cupy
import numpy as np
from tensorbus.backend_api import (
    DeviceError,
    SourceCall,
    StridedArray,
    UnsupportedDtypeError,
    from_source,
    pack,
)
from tensorbus.backend_api import dtypes as dt

from .device import runtime

if TYPE_CHECKING:
    from .compiler import CudaCompiler

Run = Callable[[Sequence[Any]], tuple[StridedArray, ...]]
_BLOCKS: Final = (2**31 - 1, 65535, 65535)
_TYPES: Final[dict[dt.DType, tuple[str, Callable[[Any], Any]]]] = {
    dt.bool_: ("i1", np.int8), dt.bfloat16: ("bf16", np.float32), dt.float16: ("fp16", np.float32),
    dt.float32: ("fp32", np.float32), dt.float64: ("fp64", np.float64),
    **{d: (f"{d.kind[0]}{8 * d.itemsize}", getattr(np, d.name)) for d in (
        dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8, dt.uint16, dt.uint32, dt.uint64
    )},
}  # fmt: skip
"""What Triton calls a dtype, and how a number of it is passed."""
_ALIGNED: Final = 16
_SHARED: Final = 8
"""CUDA's number for the attribute that says how much shared memory a function may have."""


def compile_kernel(compiler: CudaCompiler, call: SourceCall, index: int) -> Run:
    """Return what queues a user's kernel on the GPU ``index``."""
    if not isinstance(call.code, str):
        return _triton_kernel(compiler, call, index)
    for axis, (n, most) in enumerate(zip(call.grid, _BLOCKS, strict=False)):
        if axis and n > most:
            raise DeviceError(
                f"{call.name}: axis {axis} of the grid is {n:,} long; CUDA has {most:,} blocks there at most."
                f" Put the longest axis first."
            )
    return from_source(compiler, call, index)


def _triton_kernel(compiler: CudaCompiler, call: SourceCall, index: int) -> Run:
    """Return what queues a function of Triton's: one program for each place of the grid."""
    function = call.code
    names = list(getattr(function, "arg_names", ()))
    if not names:
        raise DeviceError(
            f"{call.name}: kernels for cuda are text in CUDA C++ or a function under @triton.jit, got"
            f" {function!r}."
        )
    constants = {k: v for k, v in call.constants.items() if k in names}
    params = [name for name in names if name not in constants]
    passed = [k for k, *_ in (*call.operands, *call.results, *call.scalars)]
    passed += [f"size {k}" for k in range(len(call.sizes))]
    if len(params) != len(passed):
        raise DeviceError(
            f"{call.name}: the Triton function takes {', '.join(params)} beside its constants, and is passed"
            f" {', '.join(passed)}: as many are needed, in this order. Constants are for tl.constexpr."
        )
    pointers = [f"*{_type(call, dtype)}" for _, dtype, _ in (*call.operands, *call.results)]
    wide = ["i32" if n < 1 << 31 else "i64" for n in call.sizes]
    kinds = [*pointers, *(_type(call, dtype) for _, dtype, _ in call.scalars), *wide]
    numbers = [_TYPES[dtype][1](value) for _, dtype, value in call.scalars]
    numbers += [
        np.int32(n) if kind == "i32" else np.int64(n) for n, kind in zip(call.sizes, wide, strict=True)
    ]
    signature = tuple((n, "constexpr" if n in constants else kinds[params.index(n)]) for n in names)
    even = frozenset(
        names.index(params[k]) for k, n in enumerate(call.sizes, len(kinds) - len(wide)) if n % _ALIGNED == 0
    )
    aligned = even | {names.index(name) for name in params[: len(pointers)]}
    options = tuple(sorted((k, v) for k, v in call.constants.items() if k not in constants))
    results = [(shape, dtype, prod(shape) * dtype.itemsize) for _, dtype, shape in call.results]
    blocks = (*call.grid, 1, 1)[:3]
    unit = compiler.runtime.unit(index)

    def build(divisible: frozenset[int]) -> tuple[Any, int, int, int]:
        return _built(index, function, signature, tuple(constants.items()), options, divisible)

    build(aligned)  # errors are raised when the call is prepared

    def run(values: Sequence[Any]) -> tuple[StridedArray, ...]:
        packed = [pack(compiler, x, index) for x in values]
        outs = tuple([
            StridedArray.contiguous(compiler.allocate(nbytes, index) if nbytes else None, shape, dtype)
            for shape, dtype, nbytes in results
        ])  # fmt: skip
        if not prod(blocks):
            return outs
        to = unit.stream()
        addresses = []
        for x in (*packed, *outs):
            if x.buffer is not None and x.buffer.stream is not to:
                x.buffer.used_by(to)
            addresses.append(0 if x.buffer is None else x.buffer.ptr)
        # Memory that another library made may lie anywhere.
        whole = all(address % _ALIGNED == 0 for address in addresses)
        entry, threads, shared, more = build(aligned if whole else even)
        unit.failures.note(call.name)
        try:
            with unit.current():
                entry(blocks, (threads, 1, 1), (*addresses, *numbers, *(0,) * more), shared, stream=to)
        except cupy.cuda.driver.CUDADriverError as error:
            raise unit.failed(f"queueing {call.name}", error) from error
        return outs

    return run


def _type(call: SourceCall, dtype: dt.DType) -> str:
    if dtype not in _TYPES:
        raise UnsupportedDtypeError(
            f"{call.name}: Triton has no {dtype}; it has {', '.join(map(str, _TYPES))}."
        )
    return _TYPES[dtype][0]


@cache
def _built(
    index: int, function: Any, signature: tuple[tuple[str, str], ...], constants: tuple[tuple[str, Any], ...],
    options: tuple[tuple[str, Any], ...], divisible: frozenset[int],
) -> tuple[Any, int, int, int]:  # fmt: skip
    """Return a function of the driver, its threads, its shared memory, and how many arguments Triton adds.

    ``divisible`` are the arguments, by number, that are multiples of 16. Raises ``DeviceError``.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    unit = runtime().unit(index)
    attrs = {(k,): [["tt.divisibility", _ALIGNED]] for k in sorted(divisible)}
    try:
        source = ASTSource(function, dict(signature), constexprs=dict(constants), attrs=attrs)
        target = GPUTarget("cuda", int(unit.architecture), 32)
        compiled = triton.compile(source, target=target, options=dict(options))
    except Exception as error:  # Triton has no class that all its errors are of
        raise DeviceError(
            f"{unit.name}: the Triton function {function.__name__!r} does not compile:"
            f" {type(error).__name__}: {error}"
        ) from error
    about = compiled.metadata
    _check(function, about._asdict() if hasattr(about, "_asdict") else vars(about))
    module = cupy.cuda.function.Module()
    with unit.current():
        module.load(compiled.asm["cubin"])
        entry = module.get_function(about.name)
        if about.shared > 48 << 10:
            cupy.cuda.driver.funcSetAttribute(entry.ptr, _SHARED, about.shared)
    passed = sum(kind != "constexpr" for _, kind in signature)
    head = compiled.asm["ptx"].partition(".entry")[2].partition(")")[0]
    return entry, 32 * about.num_warps, about.shared, len(re.findall(r"\.param\b", head)) - passed


def _check(function: Any, about: Mapping[str, Any]) -> None:
    """Refuse what a launch would need besides blocks and threads."""
    for what in ("global_scratch_size", "profile_scratch_size"):
        if about.get(what):
            raise DeviceError(
                f"the Triton function {function.__name__!r} needs scratch memory, which it gets not."
            )
    if about.get("num_ctas", 1) > 1 or about.get("launch_cooperative_grid"):
        raise DeviceError(f"the Triton function {function.__name__!r} needs clusters or a cooperative grid.")
