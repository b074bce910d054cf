"""The number of threads each peer computes with, and the environment that tells it."""

from __future__ import annotations

import os

THREADS = 4
MALLOC = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184"
"""What makes glibc keep freed memory: the peers whose names end in "+malloc" run with it."""

PINS = (
    "OPENBLAS_CORETYPE OPENBLAS_L2_SIZE MKL_ENABLE_INSTRUCTIONS ONEDNN_MAX_CPU_ISA NPY_DISABLE_CPU_FEATURES"
)
"""Variables that choose kernels for libraries: here each library chooses its own for the processor."""


def environment(keeps: bool) -> dict[str, str]:
    """Return the environment of a peer's process; ``keeps``: freed memory."""
    count = str(THREADS)
    names = "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS NUMBA_NUM_THREADS"
    own = {name: value for name, value in os.environ.items() if name not in PINS.split()}
    results = {**own, **dict.fromkeys(names.split(), count), "TENSORBUS_NUM_THREADS": count}
    results |= {"NPROC": count, "NUMEXPR_MAX_THREADS": count, "PYTHONWARNINGS": "ignore"}
    results["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=true"
    return results | ({"GLIBC_TUNABLES": MALLOC} if keeps else {})
