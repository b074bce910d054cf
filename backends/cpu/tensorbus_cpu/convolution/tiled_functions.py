"""Functions of C sources that work tile by tile, those of ``csource/implicit_gemm.c`` first."""

from __future__ import annotations

import ctypes
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


class SourceFunctions:
    """The functions of one of the package's C sources, with definitions put before it."""

    def __init__(self, name: str, macros: Mapping[str, object]) -> None:
        compiler = NATIVE.compiler()
        assert compiler is not None
        lines = [
            "#include <stdint.h>",
            "#include <string.h>",
            _BYTES,
            *(f"#define {k} {v}" for k, v in macros.items()),
        ]
        self._library = compiler.library("\n".join([*lines, c_source(name)]), _FUSED)
        self._prepared = compiler.prepared
        self.lanes = ctypes.c_int64.in_dll(self._library, "tb_lanes").value

    def launch(
        self,
        name: str,
        buffers: Sequence[int],
        params: Sequence[int],
        grid: Sequence[int],
        piece: Sequence[int],
    ) -> Launch:
        """Return a function's launch, one of a call's."""
        function = getattr(self._library, f"tb_{name}")
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
        function = getattr(self._library, f"tb_{name}")
        self._prepared(function, len(arrays), slots(params), grid, piece)(*map(address, arrays))


class GemmFunctions:
    """The functions of ``implicit_gemm.c`` for one dtype and one shape of what stays in registers.

    Integers with and without a sign have the same products, which wrap.
    """

    def __init__(self, dtype: DType, tall: int, vectors: int) -> None:
        macros = {
            "T": _FLOATS.get(dtype, f"int{8 * dtype.itemsize}_t"), "BITS": f"int{8 * dtype.itemsize}_t",
            "TALL": tall, "VECTORS": vectors,
            "DEEP": MAX_DEPTH, "COLUMNS": MAX_COLUMNS, "ROOM": MAX_READ,
        }  # fmt: skip
        functions = SourceFunctions("implicit_gemm", macros)
        self.tall, self.vectors, self.lanes = tall, vectors, functions.lanes
        self.launch, self.run = functions.launch, functions.run


tiles: Final = cache(GemmFunctions)
