"""Functions of C sources that work tile by tile, those of ``csource/implicit_gemm.c`` first."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from tensorbus.backend_api import DType, dtypes

from ..compiler import NATIVE, c_source
from ..eager.eager_launch import Launch, slots
from ..memory import address

MAX_DEPTH: Final = 384
MAX_COLUMNS: Final = 512
MAX_READ: Final = 1 << 15
"""Limits of a tile: products that are summed up at a time, columns, and elements that are read."""
_FLOATS: Final = {dtypes.float32: "float", dtypes.float64: "double"}
_BYTES: Final = """#ifdef __AVX512F__
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif"""
"""Of a vector. gcc's name for it, the largest alignment, is 16 whatever a processor has for clang."""
_FUSED: Final = "-ffp-contract=fast"
"""Products round once for each multiplication and addition, as those of every BLAS do."""


class TiledFunctions(ABC):
    """Functions of compiled C sources, called by their names without the package's prefix."""

    @abstractmethod
    def library(self, name: str) -> ctypes.CDLL:
        """Return the library that has a function."""

    @property
    @abstractmethod
    def lanes(self) -> int:
        """The number of elements of a vector."""

    def launch(
        self,
        name: str,
        buffers: Sequence[int],
        params: Sequence[int],
        grid: Sequence[int],
        piece: Sequence[int],
    ) -> Launch:
        """Return a function's launch, one of a call's."""
        function = getattr(self.library(name), f"tb_{name}")
        return Launch(function=function, buffers=buffers, params=params, grid=grid, piece=piece)

    def run(
        self,
        name: str,
        arrays: Sequence[Any],
        params: Sequence[int],
        grid: Sequence[int],
        piece: Sequence[int],
    ) -> None:
        """Call a function with the memory of arrays."""
        compiler = NATIVE.needed()
        function = getattr(self.library(name), f"tb_{name}")
        compiler.prepared(function, len(arrays), slots(params), grid, piece)(*map(address, arrays))


class SourceFunctions(TiledFunctions):
    """The functions of one of the package's C sources, with definitions put before it.

    Further sources come after the first one, and use what it has.
    """

    def __init__(self, macros: Mapping[str, object], *names: str) -> None:
        compiler = NATIVE.needed()
        lines = [
            "#include <stdint.h>",
            "#include <string.h>",
            _BYTES,
            *(f"#define {k} {v}" for k, v in macros.items()),
        ]
        source = "\n".join([*lines, *map(c_source, names)])
        self._library = compiler.library(source, _FUSED, *compiler.for_written_vectors)
        self._lanes = ctypes.c_int64.in_dll(self._library, "tb_lanes").value

    def library(self, name: str) -> ctypes.CDLL:
        """Return the library of all functions."""
        return self._library

    @property
    def lanes(self) -> int:
        """The number of elements of a vector."""
        return self._lanes


_PARTS: Final = {
    "pack_rows": "PACK", "convolve": "CONVOLVE", "planes_each": "PLANES", "planes_transposed": "PLANES",
    "turn": "WEIGHTS", "correlate": "WEIGHTS", "collect": "WEIGHTS", "product": "PRODUCT",
}  # fmt: skip
"""The part of ``implicit_gemm.c`` with a function: each is compiled when it is needed first."""
_SOURCES: Final = {"PLANES": ("implicit_gemm", "plane_convolution")}
"""The sources of the parts that lie in a file of their own."""


class GemmFunctions(TiledFunctions):
    """The functions of ``implicit_gemm.c`` for one dtype and one shape of what stays in registers.

    Integers with and without a sign have the same products, which wrap.
    """

    def __init__(self, dtype: DType, tall: int, vectors: int) -> None:
        self._dtype, self.tall, self.vectors = dtype, tall, vectors

    def library(self, name: str) -> ctypes.CDLL:
        """Return the library of the part that has a function."""
        return _part(self._dtype, self.tall, self.vectors, _PARTS[name]).library(name)

    @property
    def lanes(self) -> int:
        """The number of elements of a vector."""
        return _part(self._dtype, *_PACKING_TILE, "PACK").lanes


_PACKING_TILE: Final = (6, 2)
"""The shape in registers that most programs have: its library tells how many elements a vector has."""


@cache
def _part(dtype: DType, tall: int, vectors: int, part: str) -> SourceFunctions:
    macros = {
        part: "", "T": _FLOATS.get(dtype, f"int{8 * dtype.itemsize}_t"), "BITS": f"int{8 * dtype.itemsize}_t",
        "TALL": tall, "VECTORS": vectors,
        "DEEP": MAX_DEPTH, "COLUMNS": MAX_COLUMNS, "ROOM": MAX_READ,
    }  # fmt: skip
    return SourceFunctions(macros, *_SOURCES.get(part, ("implicit_gemm",)))


tiles: Final = cache(GemmFunctions)
