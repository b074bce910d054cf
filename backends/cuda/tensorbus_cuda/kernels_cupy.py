"""Linear algebra and Fourier transforms from CuPy's namespace: cuSOLVER, cuBLAS and cuFFT.

What CuPy does matrix by matrix stays with the host's kernels where there are many of them: in a stack of 64,
singular values of 64 x 64 took 304 ms on an H100 and 54 on the host, of 32 x 32, all at once, 0.3 and 10.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any, Final

import cupy
import numpy as np
from cupyx import errstate
from cupyx.scipy import linalg as scipy
from tensorbus.backend_api import (
    FFT,
    Call,
    Kernel,
    LinAlgError,
    StridedArray,
    host_kernels,
    linalg_from_namespace,
)
from tensorbus.backend_api import dtypes as dt

from .device import runtime

ON_HOST: Final = ("eig", "eigvals")
"""What is done on processors everywhere."""
_DTYPES: Final = {
    np.dtype(d.name.removesuffix("_")): d
    for d in (*dt.BOOL, *dt.SIGNED, *dt.UNSIGNED, dt.float32, dt.float64, *dt.COMPLEX)
}
_ONE_BY_ONE_MAX: Final = 8
"""How many matrices are taken one by one."""
_BATCHED_MAX_ROWS, _GPU_MIN_ROWS = 32, 512
"""Up to how many rows cuSOLVER decomposes stacks at once, and from how many on it beats processors anyway."""
_PAIR: Final = 16
"""Where cuFFT's operands begin, in bytes: at a complex number, also those of reals."""


def kernels() -> dict[str, Kernel | tuple[Kernel, Kernel]]:
    """Return the kernels, those of the host among them."""
    host, functions = host_kernels("cuda"), linalg_from_namespace(_namespace())
    functions["solve_triangular"] = _triangular(functions["solve_triangular"])
    functions["lu_factor"] = _factors(functions["lu_factor"])
    table: dict[str, Kernel | tuple[Kernel, Kernel]] = {op: _over(op, functions[op]) for op in host}
    for op, supports in (("lu_factor", _are_few), ("svd", _are_quick), ("svdvals", _are_quick)):
        table[op] = (_over(op, functions[op], supports=supports), host[op])
    return table | {op: host[op] for op in ON_HOST}


def _are_few(call: Call) -> bool | str:
    few = call.shapes is not None and prod(call.shapes[0][:-2]) <= _ONE_BY_ONE_MAX
    return few or f"CuPy takes matrices one by one, and there are more than {_ONE_BY_ONE_MAX}"


def _are_quick(call: Call) -> bool | str:
    if call.shapes is not None and not _BATCHED_MAX_ROWS < max(call.shapes[0][-2:]) < _GPU_MIN_ROWS:
        return True
    return _are_few(call)


def array_of(value: StridedArray, kind: np.dtype[Any] | None = None) -> Any:
    """Return an array of CuPy over a value's memory; ``kind`` is what its elements are taken for."""
    if kind is None:
        kind = np.dtype(value.dtype.name.removesuffix("_"))
    block, strides = value.buffer, tuple([n * kind.itemsize for n in value.strides])
    memory = cupy.cuda.UnownedMemory(block.ptr, block.nbytes, block, block.memory.device_id)
    return cupy.ndarray(
        value.shape, kind, cupy.cuda.MemoryPointer(memory, value.offset * kind.itemsize), strides
    )


def _aligned(value: StridedArray) -> Any:
    """Return an array of CuPy that begins where cuFFT's operands do: a copy, where the value's does not."""
    array = array_of(value)
    return array if array.data.ptr % _PAIR == 0 else array.copy()


def value_of(array: Any, index: int) -> StridedArray:
    """Return a value over the memory of a new array of CuPy."""
    shape, dtype = array.shape, _DTYPES[array.dtype]
    packed = cupy.ascontiguousarray(array)  # of shape (1,), where the array has no axes
    return StridedArray.contiguous(runtime().units[index].pool.take(packed), shape, dtype)


def order_of(keys: StridedArray, index: int) -> StridedArray:
    """Return the places of unsigned integers in ascending order; equal ones stay as they were."""
    unit = runtime().units[index]
    with unit.current():
        return value_of(unit.pool.within(lambda: cupy.argsort(array_of(keys), kind="stable")), index)


def _over(op: str, kernel: Kernel, supports: Callable[[Call], bool | str] | None = None) -> Kernel:
    """Return a kernel of CuPy's arrays as one of values."""

    def prepare(call: Call) -> Callable[..., Any]:
        assert kernel.prepare is not None
        assert call.shapes is not None
        if any(0 in shape for shape in call.shapes):
            return _constant(op, call)
        if op in FFT and call.attrs.get("n", call.shapes[0][call.attrs["axis"]]) == 1:
            compute = _transform_of_one(call)
        else:
            compute = kernel.prepare(call)
        unit, index = runtime().units[call.index], call.index
        array = _aligned if op in FFT else array_of

        def run(*values: StridedArray) -> Any:
            unit.failures.note(op)
            stream = unit.stream()
            for value in values:
                if value.buffer.stream is not stream:
                    value.buffer.used_by(stream)
            with unit.current(), errstate(linalg="raise"):
                result = unit.pool.within(lambda: compute(*[array(v) for v in values]))
                if isinstance(result, tuple):
                    return tuple([value_of(x, index) for x in result])
                return value_of(result, index)

        return run

    return Kernel(name="cupy", prepare=prepare, supports=supports)


def _constant(op: str, call: Call) -> Callable[..., Any]:
    """Return what gives the results of a call without elements: these are the same each time, and NumPy's."""
    assert call.shapes is not None
    kernel = linalg_from_namespace(np)[op]
    assert kernel.prepare is not None
    kinds = [np.dtype(dtype.name.removesuffix("_")) for dtype in call.dtypes]
    operands = [_identity(shape, kind) for shape, kind in zip(call.shapes, kinds, strict=True)]
    result, unit = kernel.prepare(call)(*operands), runtime().units[call.index]

    def put(x: Any) -> StridedArray:
        return value_of(unit.pool.within(lambda: cupy.asarray(x)), call.index)

    def run(*_: StridedArray) -> Any:
        unit.failures.note(op)
        with unit.current():
            return tuple([put(x) for x in result]) if isinstance(result, tuple) else put(result)

    return run


def _identity(shape: tuple[int, ...], kind: np.dtype[Any]) -> Any:
    """Return matrices that have every factorization."""
    return np.broadcast_to(np.eye(*shape[-2:], dtype=kind) if len(shape) > 1 else np.ones(shape, kind), shape)


def _transform_of_one(call: Call) -> Callable[[Any], Any]:
    """Return the transform of length 1, which cuFFT has none of: the element itself."""
    axis = call.attrs["axis"]

    def run(x: Any) -> Any:
        first = cupy.take(x, cupy.zeros(1, int), axis=axis)
        return first.real if call.op == "irfft" else first.astype(np.result_type(x.dtype, np.complex64))

    return run


def _namespace() -> Any:
    """Return CuPy's names, with NumPy's rules for stacks of systems."""
    linalg = SimpleNamespace(**{**vars(cupy.linalg), "solve": _solve, "LinAlgError": np.linalg.LinAlgError})
    return SimpleNamespace(**{**vars(cupy), "linalg": linalg})


def _solve(a: Any, b: Any) -> Any:
    """Return ``x`` with ``a @ x = b``; stacks broadcast, and only a ``b`` of one axis is a vector."""
    columns = b[:, None] if b.ndim == 1 else b
    lead = np.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    x = cupy.linalg.solve(*[cupy.broadcast_to(v, (*lead, *v.shape[-2:])) for v in (a, columns)])
    return x[..., 0] if b.ndim == 1 else x


def _triangular(stacked: Kernel) -> Kernel:
    """Return the kernel of triangular systems: one is cuBLAS's, stacks are halved again and again."""

    def one(a: Any, b: Any, *, upper: bool, unit_diagonal: bool) -> Any:
        if not unit_diagonal and bool((cupy.diagonal(a) == 0).any()):
            raise LinAlgError(
                f"solve_triangular: a matrix has a zero on its diagonal, in an operand of shape {a.shape}."
                f" Look for linearly dependent rows."
            )
        return scipy.solve_triangular(a, b, lower=not upper, unit_diagonal=unit_diagonal, check_finite=False)

    def prepare(call: Call) -> Callable[..., Any]:
        assert stacked.prepare is not None
        assert call.shapes is not None
        few = all(len(shape) == 2 for shape in call.shapes)
        return partial(one, **call.attrs) if few else stacked.prepare(call)

    return Kernel(name="cupy", prepare=prepare)


def _factors(by_column: Kernel) -> Kernel:
    """Return the kernel of triangular factors, in one matrix, and of the permutation of the rows.

    cuSOLVER divides by what is left of a matrix that has no inverse, and complex factors may be NaN then:
    such a matrix is taken column by column.
    """

    def one(matrix: Any, again: Callable[[Any], tuple[Any, Any]]) -> tuple[Any, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a zero on the diagonal is a result like others
            factors, exchanged = scipy.lu_factor(matrix, check_finite=False)
        if matrix.dtype.kind == "c" and not cupy.isfinite(factors).all() and cupy.isfinite(matrix).all():
            return again(matrix)
        order = np.arange(matrix.shape[0])
        for k, other in enumerate(exchanged.get()):
            order[[k, other]] = order[[other, k]]
        return factors, cupy.asarray(order)

    def prepare(call: Call) -> Callable[..., Any]:
        assert by_column.prepare is not None
        again = by_column.prepare(call)

        def run(a: Any) -> tuple[Any, Any]:
            pairs = [one(matrix, again) for matrix in a.reshape((-1, *a.shape[-2:]))]
            factors, orders = (cupy.stack(each) for each in zip(*pairs, strict=True))
            return factors.reshape(a.shape), orders.reshape(a.shape[:-1])

        return run

    return Kernel(name="cupy", prepare=prepare)
