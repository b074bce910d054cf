"""How functions of cuBLASLt are called, shown by a library that notes what reached it; no GPU is needed."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

SOURCE = "\n".join(
    ["#include <stddef.h>", "static size_t at;", "size_t noted(void) { return at; }"]
    + [
        f"int cublasLt{name}(void *of) {{ at = (size_t)of; return 0; }}"
        for name in (
            "Create", "Matmul", "MatmulAlgoCheck", "MatmulAlgoGetHeuristic", "MatmulDescCreate",
            "MatmulDescSetAttribute",
            "MatmulPreferenceCreate", "MatmulPreferenceDestroy", "MatmulPreferenceSetAttribute",
            "MatrixLayoutCreate", "MatrixLayoutSetAttribute",
        )
    ]
)  # fmt: skip


def test_addresses_reach_the_library_whole(tmp_path: Path, cupy_or_names: None) -> None:
    from tensorbus_cuda.gemm import cublaslt

    source, binary = tmp_path / "noting.c", tmp_path / "noting.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(binary), str(source)], check=True)
    library = object.__new__(cublaslt.Library)
    library.lib = ctypes.CDLL(str(binary))
    library.lib.noted.restype = ctypes.c_size_t
    cublaslt.declare(library.lib)
    for what in ("MatmulDesc", "MatmulPreference", "MatrixLayout"):
        for address in (8, (1 << 31) + 8, (1 << 46) + 8):
            for of in (address, ctypes.c_void_p(address)):
                library._set(what, of, 17, ctypes.c_void_p(3))
                assert library.lib.noted() == address, (what, of)
