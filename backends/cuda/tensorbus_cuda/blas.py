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

if TYPE_CHECKING:
    from .device import Unit

_F32, _F64, _F16, _C32, _C64, _BF16 = 0, 1, 2, 4, 5, 14
KINDS: Final[dict[dt.DType, tuple[int, int, int]]] = {
    dt.float16: (_F16, 68, _F32), dt.bfloat16: (_BF16, 68, _F32), dt.float32: (_F32, 68, _F32),
    dt.float64: (_F64, 70, _F64), dt.complex64: (_C32, 68, _C32), dt.complex128: (_C64, 70, _C64),
}  # fmt: skip
"""The library's numbers for an element, for what is computed in, and for the factors before a product."""
_FASTER: Final = {"highest": 68, "high": 77, "medium": 75}
"""What float32 is computed in: itself, TF32, or bfloat16."""
_ONE: Final[dict[int, Any]] = {
    _F32: (ctypes.c_float * 1)(1), _F64: (ctypes.c_double * 1)(1), _C32: (ctypes.c_float * 2)(1, 0),
    _C64: (ctypes.c_double * 2)(1, 0),
}  # fmt: skip
_ZERO: Final = (ctypes.c_double * 2)()
_TRANSA, _TRANSB = 3, 4
_EPILOGUE, _ROW = 7, 8
_ADDS_ROW: Final = 4
"""What the library does to a product before it stores it: it adds a row to each row."""
_BATCHES, _STRIDE = 5, 6
_MOST_SPACE, _ALIGNMENT = 1, 5
_SPACE: Final = 32 << 20
"""Bytes that the library may use beside the matrices: what its makers advise for recent GPUs."""
_LARGE: Final = 1 << 19
"""Elements of a result from which on ways without such memory are as fast: others have it cleared first."""
ALIGNED: Final = 16


class _Found(ctypes.Structure):
    """A way to compute a product, as the library found it."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8), ("space", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Matrix:
    """Where an operand lies: by columns where ``turned``; rows, or columns, ``lead`` elements apart."""

    rows: int
    columns: int
    lead: int
    turned: bool
    stride: int = 0


class Library:
    """cuBLASLt for one GPU."""

    def __init__(self, unit: Unit) -> None:
        # CuPy knows where the libraries of its CUDA are; this one is loaded beside cuBLAS.
        from cupy.cuda import cublas

        major = cublas.getVersion(cupy.cuda.device.get_cublas_handle()) // 10000
        self._unit = unit
        self.lib = ctypes.CDLL(f"libcublasLt.so.{major}")
        self._matmul = self.lib.cublasLtMatmul
        pointer = ctypes.c_void_p
        self._matmul.argtypes = [*[pointer] * 14, ctypes.c_size_t, pointer]
        self.handle = ctypes.c_void_p()
        self._check("cublasLtCreate", ctypes.byref(self.handle))
        self._spaces: dict[int, Any] = {}
        self._lock = threading.Lock()

    def _check(self, name: str, *arguments: Any) -> None:
        code = getattr(self.lib, name)(*arguments)
        if code:
            raise DeviceError(f"{self._unit.name}: {name} of cuBLASLt returned error {code}.")

    def space(self, stream: Any) -> int:
        """Return the address of memory that products of one stream work in, one after the other."""
        own = self._unit.behind(stream).ptr
        found = self._spaces.get(own)
        if found is None:
            with self._lock:
                found = self._spaces.setdefault(own, self._unit.pool.allocate(_SPACE))
        return int(found.ptr)

    def product(
        self, x: Matrix, y: Matrix, batches: int, dtype: dt.DType, aligned: tuple[bool, bool], compute: int,
        lead: int = 0, *, adds: bool = False, row: bool = False,
    ) -> Product | None:  # fmt: skip
        """Return what multiplies matrices that lie like this; None where the library cannot.

        Rows of the result are ``lead`` elements apart (0: packed). Where it ``adds``, the product is added
        to what is there, or elsewhere; with ``row`` a row is added to each row.
        """
        kind, _, scale = KINDS[dtype]
        description = ctypes.c_void_p()
        self._check("cublasLtMatmulDescCreate", ctypes.byref(description), compute, scale)
        for attribute, matrix in ((_TRANSA, y), (_TRANSB, x)):
            self._set("MatmulDesc", description, attribute, ctypes.c_int32(int(matrix.turned)))
        if row:
            self._set("MatmulDesc", description, _EPILOGUE, ctypes.c_int32(_ADDS_ROW))
            self._set("MatmulDesc", description, _ROW, ctypes.c_void_p(1 << 10))
        out = Matrix(x.rows, y.columns, lead or y.columns, False, x.rows * y.columns)
        layouts = [self._layout(kind, m, batches) for m in (y, x, out)]
        wish = ctypes.c_void_p()
        self._check("cublasLtMatmulPreferenceCreate", ctypes.byref(wish))
        room = 0 if dtype.itemsize == 2 and batches * x.rows * y.columns >= _LARGE else _SPACE
        self._set("MatmulPreference", wish, _MOST_SPACE, ctypes.c_uint64(room))
        for k, whole in enumerate((aligned[1], aligned[0], True, True)):
            least = ctypes.c_uint32(ALIGNED if whole else dtype.itemsize)
            self._set("MatmulPreference", wish, _ALIGNMENT + k, least)
        found, count = _Found(), ctypes.c_int()
        code = self.lib.cublasLtMatmulAlgoGetHeuristic(
            self.handle, description, layouts[0], layouts[1], layouts[2], layouts[2], wish, 1,
            ctypes.byref(found), ctypes.byref(count),
        )  # fmt: skip
        self._check("cublasLtMatmulPreferenceDestroy", wish)
        if code or not count.value or found.state:
            return None
        return Product(self, description, layouts, found, _ONE[scale], _ONE[scale] if adds else _ZERO, row)

    def _layout(self, kind: int, m: Matrix, batches: int) -> Any:
        """Return the description of a matrix, seen by columns: of its transpose, or of itself if turned."""
        high, wide = (m.rows, m.columns) if m.turned else (m.columns, m.rows)
        made = ctypes.c_void_p()
        self._check(
            "cublasLtMatrixLayoutCreate", ctypes.byref(made), kind, ctypes.c_uint64(high),
            ctypes.c_uint64(wide), ctypes.c_int64(m.lead),
        )  # fmt: skip
        if batches > 1:
            self._set("MatrixLayout", made, _BATCHES, ctypes.c_int32(batches))
            self._set("MatrixLayout", made, _STRIDE, ctypes.c_int64(m.stride))
        return made

    def _set(self, what: str, of: Any, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._check(f"cublasLt{what}SetAttribute", of, attribute, ctypes.byref(value), size)


class Product:
    """A product that is prepared: it takes addresses. What it refers to lives as long as the process."""

    __slots__ = ("_fixed", "_found", "_library", "_lock", "_note", "_row", "_run", "_tail")

    def __init__(
        self, library: Library, description: Any, layouts: Sequence[Any], found: Any, one: Any, kept: Any,
        row: bool = False,
    ) -> None:  # fmt: skip
        self._library = library
        self._found = found
        self._run = library._matmul
        self._note = library._unit.failures.note
        y, x, out = (layout.value for layout in layouts)
        one, kept = ctypes.addressof(one), ctypes.addressof(kept)
        self._fixed = library.handle.value, description.value, one, y, x, kept, out
        self._tail = ctypes.addressof(found)
        self._row = ctypes.c_void_p() if row else None
        self._lock = threading.Lock()

    def queue(self, x: int, y: int, out: int, stream: Any, *, row: int = 0, added: int = 0) -> None:
        """Queue the product. ``added``: what it is added to; 0: to the result. Raises ``DeviceError``."""
        if self._row is None:
            self._queue(x, y, out, stream, added)
            return
        with self._lock:  # the description says where the row is
            if self._row.value != row:
                self._row.value = row
                self._library._set("MatmulDesc", self._fixed[1], _ROW, self._row)
            self._queue(x, y, out, stream, added)

    def _queue(self, x: int, y: int, out: int, stream: Any, added: int) -> None:
        handle, description, one, y_lies, x_lies, kept, out_lies = self._fixed
        space = self._library.space(stream)
        self._note("matmul")
        code = self._run(
            handle, description, one, y, y_lies, x, x_lies, kept, added or out, out_lies, out, out_lies,
            self._tail, space, _SPACE, stream.ptr,
        )  # fmt: skip
        if code:
            raise self._library._unit.refused("cublasLtMatmul", code)


def compute_of(dtype: dt.DType) -> int:
    """Return the library's number of what products of a dtype are computed in, as the user has it now."""
    return _FASTER[get_matmul_precision()] if dtype is dt.float32 else KINDS[dtype][1]
