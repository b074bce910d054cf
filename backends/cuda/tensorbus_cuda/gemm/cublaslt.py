"""Matrix products by cuBLASLt: prepared once for each pattern of shapes and strides, then one call each.

The library takes matrices by columns. A product by rows is the product of the transposes in the other order,
which lie in the same memory.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import cupy
from tensorbus.backend_api import DeviceError, get_matmul_precision
from tensorbus.backend_api import dtypes as dt

from .algorithm_cache import AlgorithmCache

if TYPE_CHECKING:
    from ..unit import Unit

_F32, _F64, _F16, _I8, _C32, _C64, _I32, _BF16, _E4M3, _E5M2 = 0, 1, 2, 3, 4, 5, 10, 14, 28, 29
_SIZES: Final = {_F32: 4, _F64: 8, _F16: 2, _I8: 1, _C32: 8, _C64: 16, _BF16: 2, _E4M3: 1, _E5M2: 1}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The library's numbers for elements of the operands and the result, and for what is computed in.

    ``scale`` is that of the factors before a product.
    """

    x: int
    y: int
    out: int
    compute: int
    scale: int


def _alike(kind: int, compute: int, scale: int) -> Arithmetic:
    return Arithmetic(kind, kind, kind, compute, scale)


KINDS: Final[dict[dt.DType, Arithmetic]] = {
    dt.float16: _alike(_F16, 68, _F32), dt.bfloat16: _alike(_BF16, 68, _F32),
    dt.float32: _alike(_F32, 68, _F32), dt.float64: _alike(_F64, 70, _F64),
    dt.complex64: _alike(_C32, 68, _C32), dt.complex128: _alike(_C64, 70, _C64),
}  # fmt: skip
"""How products of a dtype are computed whose result has it too."""
_OF_FLOAT32: Final = {
    name: _alike(_F32, compute, _F32) for name, compute in (("highest", 68), ("high", 77), ("medium", 75))
}
"""float32 is computed in itself, TF32, or bfloat16."""
WORDS: Final = Arithmetic(_I8, _I8, _I32, 72, _I32)
"""Products of signed bytes that add up in 32 bits."""
_FLOATS: Final = {dt.float16: _F16, dt.bfloat16: _BF16, dt.float32: _F32}
_BYTES: Final = {dt.float8_e4m3fn: _E4M3, dt.float8_e5m2: _E5M2}
_ONE: Final[dict[int, Any]] = {
    _F32: (ctypes.c_float * 1)(1), _F64: (ctypes.c_double * 1)(1), _I32: (ctypes.c_int32 * 1)(1),
    _C32: (ctypes.c_float * 2)(1, 0), _C64: (ctypes.c_double * 2)(1, 0),
}  # fmt: skip
_ZERO: Final = (ctypes.c_double * 2)()
_TRANSA, _TRANSB = 3, 4
_EPILOGUE, _ROW, _SCALE_A, _SCALE_B = 7, 8, 17, 18
_ADDS_ROW: Final = 4
_ENDS: Final = {"relu": 2, "gelu_tanh": 32}
"""What the library does to a product before it stores it: it adds a row to each row, then a function."""
_BATCHES, _STRIDE = 5, 6
_MAX_WORKSPACE, _ALIGNMENT = 1, 5
_WORKSPACE_BYTES: Final = 32 << 20
"""Bytes that the library may use beside the matrices: what its makers advise for recent GPUs."""
_NO_WORKSPACE_MIN_SIZE: Final = 1 << 19
"""Elements of a result from which on algorithms without it are as fast: others have it cleared first."""
ALIGNED: Final = 16
_POINTER, _INT, _U64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cublasLtCreate": (_POINTER,),
    "cublasLtMatmul": (*[_POINTER] * 14, ctypes.c_size_t, _POINTER),
    "cublasLtMatmulAlgoCheck": (*[_POINTER] * 8,),
    "cublasLtMatmulAlgoGetHeuristic": (*[_POINTER] * 7, _INT, _POINTER, _POINTER),
    "cublasLtMatmulDescCreate": (_POINTER, _INT, _INT),
    "cublasLtMatmulDescSetAttribute": (_POINTER, _INT, _POINTER, ctypes.c_size_t),
    "cublasLtMatmulPreferenceCreate": (_POINTER,),
    "cublasLtMatmulPreferenceDestroy": (_POINTER,),
    "cublasLtMatmulPreferenceSetAttribute": (_POINTER, _INT, _POINTER, ctypes.c_size_t),
    "cublasLtMatrixLayoutCreate": (_POINTER, _INT, _U64, _U64, ctypes.c_int64),
    "cublasLtMatrixLayoutSetAttribute": (_POINTER, _INT, _POINTER, ctypes.c_size_t),
}
"""The arguments of the library's functions: without them ctypes passes numbers, addresses too, as 32 bits."""


class _HeuristicResult(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``: an algorithm of a product, and what it takes."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8), ("space", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand's layout: by columns where ``transposed``; rows, or columns, ``lead`` elements apart."""

    rows: int
    columns: int
    lead: int
    transposed: bool
    stride: int = 0


def declare(lib: Any) -> None:
    """Say which arguments the library's functions take."""
    for name, types in _SIGNATURES.items():
        getattr(lib, name).argtypes = types


class Library:
    """cuBLASLt for one GPU."""

    def __init__(self, unit: Unit) -> None:
        # CuPy knows where the libraries of its CUDA are; this one is loaded beside cuBLAS.
        from cupy.cuda import cublas

        major = cublas.getVersion(cupy.cuda.device.get_cublas_handle()) // 10000
        self._unit = unit
        self.lib = ctypes.CDLL(f"libcublasLt.so.{major}")
        declare(self.lib)
        self._matmul = self.lib.cublasLtMatmul
        self.handle = ctypes.c_void_p()
        self._check("cublasLtCreate", ctypes.byref(self.handle))
        self._spaces: dict[tuple[int, int], Any] = {}
        self._algorithms = AlgorithmCache()
        self._descriptions: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def _check(self, name: str, *arguments: Any) -> None:
        code = getattr(self.lib, name)(*arguments)
        if code:
            raise DeviceError(f"{self._unit.name}: {name} of cuBLASLt returned error {code}.")

    def space(self, stream: Any) -> int:
        """Return the address of memory that products of one stream work in, one after the other."""
        own = self._unit.workplace(stream)
        block = self._spaces.get(own)
        if block is None:
            with self._lock:
                block = self._spaces.setdefault(own, self._unit.pool.allocate(_WORKSPACE_BYTES))
        return int(block.ptr)

    def product(
        self, x: Matrix, y: Matrix, batches: int, how: Arithmetic, aligned: tuple[bool, bool],
        lead: int = 0, *, adds: bool = False, row: bool = False, ends: str = "", scaled: bool = False,
        rank: int = 0,
    ) -> Product | None:  # fmt: skip
        """Return what multiplies matrices that lie like this; None where the library cannot.

        Rows of the result are ``lead`` elements apart (0: packed). Where it ``adds``, the product is added
        to what is there, or elsewhere; with ``row`` a row is added to each row, and ``ends`` is the function
        of the sum that is stored. ``scaled``: each operand comes with a factor. ``rank`` counts the
        algorithms that the library knows for it, the fastest by its guess first; beyond the last that is
        taken.
        """
        epilogue = (_ADDS_ROW if row else 0) | (_ENDS[ends] if ends else 0)
        pointers = ((_ROW,) if row else ()) + ((_SCALE_B, _SCALE_A) if scaled else ())
        form = how, y.transposed, x.transposed, epilogue, pointers
        description = self._description(form)
        out = Matrix(x.rows, y.columns, lead or y.columns, False, x.rows * y.columns)
        kinds = how.y, how.x, how.out
        layouts = [self._layout(kind, m, batches) for kind, m in zip(kinds, (y, x, out), strict=True)]
        is_large = batches * x.rows * y.columns >= _NO_WORKSPACE_MIN_SIZE
        room = 0 if _SIZES[how.x] == 2 and is_large else _WORKSPACE_BYTES
        one = _ONE[how.scale]
        beta = one if adds else _ZERO
        key = (form, adds, aligned, room, rank), _SIZES[how.x], batches, (x, y, out)
        algorithm = self._algorithms.near(*key)
        if algorithm is None or not self._serves(description, layouts, algorithm, room):
            algorithm = self._best(description, layouts, room, aligned, _SIZES[how.x], rank)
            self._algorithms.keep(algorithm, *key)
        if algorithm is None:
            return None
        return Product(self, description, layouts, algorithm, one, beta, pointers)

    def _description(self, form: tuple[Arithmetic, bool, bool, int, tuple[int, ...]]) -> Any:
        """Return the description of products of one form; of its own where it holds addresses."""
        how, y_transposed, x_transposed, epilogue, pointers = form
        known = self._descriptions.get(form)
        if known is not None:
            return known
        description = ctypes.c_void_p()
        self._check("cublasLtMatmulDescCreate", ctypes.byref(description), how.compute, how.scale)
        for attribute, transposed in ((_TRANSA, y_transposed), (_TRANSB, x_transposed)):
            self._set("MatmulDesc", description, attribute, ctypes.c_int32(int(transposed)))
        if epilogue:
            self._set("MatmulDesc", description, _EPILOGUE, ctypes.c_int32(epilogue))
        for attribute in pointers:
            self._set("MatmulDesc", description, attribute, ctypes.c_void_p(1 << 10))
        if not pointers:
            self._descriptions[form] = description
        return description

    def _serves(self, description: Any, layouts: Sequence[Any], algorithm: Any, room: int) -> bool:
        """Return whether another product's algorithm serves; note the memory that it takes then."""
        a, b, c = layouts
        result = _HeuristicResult()
        code = self.lib.cublasLtMatmulAlgoCheck(
            self.handle, description, a, b, c, c, ctypes.byref(algorithm), ctypes.byref(result)
        )
        algorithm.space = result.space
        return not code and not result.state and result.space <= room

    def _best(
        self, description: Any, layouts: Sequence[Any], room: int, aligned: tuple[bool, bool], size: int,
        rank: int,
    ) -> Any:  # fmt: skip
        """Return the algorithm that the library thinks the fastest, or the ``rank``-th behind it; or None."""
        wish = ctypes.c_void_p()
        self._check("cublasLtMatmulPreferenceCreate", ctypes.byref(wish))
        self._set("MatmulPreference", wish, _MAX_WORKSPACE, ctypes.c_uint64(room))
        for k, whole in enumerate((aligned[1], aligned[0], True, True)):
            least = ctypes.c_uint32(ALIGNED if whole else size)
            self._set("MatmulPreference", wish, _ALIGNMENT + k, least)
        results, count = (_HeuristicResult * (rank + 1))(), ctypes.c_int()
        code = self.lib.cublasLtMatmulAlgoGetHeuristic(
            self.handle, description, layouts[0], layouts[1], layouts[2], layouts[2], wish, rank + 1,
            results, ctypes.byref(count),
        )  # fmt: skip
        self._check("cublasLtMatmulPreferenceDestroy", wish)
        known = [algorithm for algorithm in results[: count.value] if not algorithm.state]
        return known[-1] if known and not code else None

    def _layout(self, kind: int, m: Matrix, batches: int) -> Any:
        """Return the description of a matrix by columns: of its transpose, or of itself if transposed."""
        high, wide = (m.rows, m.columns) if m.transposed else (m.columns, m.rows)
        layout = ctypes.c_void_p()
        self._check("cublasLtMatrixLayoutCreate", ctypes.byref(layout), kind, high, wide, m.lead)
        if batches > 1:
            self._set("MatrixLayout", layout, _BATCHES, ctypes.c_int32(batches))
            self._set("MatrixLayout", layout, _STRIDE, ctypes.c_int64(m.stride))
        return layout

    def _set(self, what: str, of: Any, attribute: int, value: Any) -> None:
        self._check(f"cublasLt{what}SetAttribute", of, attribute, ctypes.byref(value), ctypes.sizeof(value))


class Product:
    """A product that is prepared: it takes addresses. What it refers to lives as long as the process."""

    __slots__ = ("_algorithm", "_fixed", "_library", "_lock", "_note", "_pointers", "_run", "_space", "_tail")

    def __init__(
        self, library: Library, description: Any, layouts: Sequence[Any], algorithm: Any, one: Any, beta: Any,
        pointers: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._library = library
        self._algorithm = algorithm
        # No more than it asked for: in what it has beyond that it clears counters, and counts tiles.
        self._space = int(algorithm.space)
        self._run = library._matmul
        self._note = library._unit.failures.note
        y, x, out = (layout.value for layout in layouts)
        one, beta = ctypes.addressof(one), ctypes.addressof(beta)
        self._fixed = library.handle.value, description.value, one, y, x, beta, out
        self._tail = ctypes.addressof(algorithm)
        self._pointers = {attribute: ctypes.c_void_p() for attribute in pointers}
        self._lock = threading.Lock()

    def queue(
        self, x: int, y: int, out: int, stream: Any, *, row: int = 0, added: int = 0,
        scales: tuple[int, int] = (0, 0),
    ) -> None:  # fmt: skip
        """Queue the product. ``added``: what it is added to; 0: to the result. Raises ``DeviceError``."""
        if not self._pointers:
            self._queue(x, y, out, stream, added)
            return
        places = {_ROW: row, _SCALE_B: scales[0], _SCALE_A: scales[1]}
        with self._lock:  # the description says where the row and the factors are
            for attribute, pointer in self._pointers.items():
                if pointer.value != places[attribute]:
                    pointer.value = places[attribute]
                    self._library._set("MatmulDesc", self._fixed[1], attribute, pointer)
            self._queue(x, y, out, stream, added)

    def _queue(self, x: int, y: int, out: int, stream: Any, added: int) -> None:
        handle, description, one, y_layout, x_layout, beta, out_layout = self._fixed
        space = self._library.space(stream)
        self._note("matmul")
        code = self._run(
            handle, description, one, y, y_layout, x, x_layout, beta, added or out, out_layout,
            out, out_layout, self._tail, space, self._space, stream.ptr,
        )  # fmt: skip
        if code:
            raise self._library._unit.refused("cublasLtMatmul", code)


def arithmetic_of(dtype: dt.DType) -> Arithmetic:
    """Return how products of a dtype are computed, as the user has it now."""
    return _OF_FLOAT32[get_matmul_precision()] if dtype is dt.float32 else KINDS[dtype]


def of_bytes(x: dt.DType, y: dt.DType, out: dt.DType) -> Arithmetic:
    """Return how products of floats of 8 bits are computed whose result has more of them."""
    return Arithmetic(_BYTES[x], _BYTES[y], _FLOATS[out], 68, _F32)
