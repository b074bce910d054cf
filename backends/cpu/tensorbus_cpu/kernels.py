"""The eager table: for each op its candidates in order, the first that supports a call runs it.

NumPy has a kernel for almost every op. Native code comes before it where a call is worth compiling for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from tensorbus.backend_api import Kernel, KernelTable, linalg_from_namespace

from .convolution.kernels_convolution import convolution_kernels
from .eager.candidates import retried
from .eager.fused_programs import fusible
from .eager.kernels_attention import attention_kernels
from .eager.kernels_composite import composite_kernels
from .eager.kernels_concat_search import concat_search_kernels
from .eager.kernels_elementwise import elementwise_kernels
from .eager.kernels_indexing import indexing_kernels
from .eager.kernels_numpy import numpy_kernels, quiet
from .eager.kernels_partial_sort import ordering_kernels
from .eager.kernels_pooling import pooling_kernels
from .eager.kernels_random import random_kernels
from .eager.kernels_reduction import reduction_kernels
from .gemm.kernels_matmul import matmul_kernels

Group = Mapping[str, Kernel | Sequence[Kernel]]


def _table() -> KernelTable:
    numpy = numpy_kernels()
    elementwise = elementwise_kernels(numpy)
    groups: tuple[Group, ...] = (
        elementwise,
        composite_kernels(numpy, elementwise),
        reduction_kernels(numpy),
        ordering_kernels(numpy),
        concat_search_kernels(numpy),
        indexing_kernels(numpy),
        matmul_kernels(numpy),
        convolution_kernels(),
        pooling_kernels(numpy),
        random_kernels(),
        attention_kernels(),
    )
    candidates: dict[str, Sequence[Kernel]] = {}
    for group in groups:
        for op, entry in group.items():
            assert op not in candidates, f"two groups have kernels for {op}"
            candidates[op] = (entry,) if isinstance(entry, Kernel) else entry
    rest = {op: (kernel,) for op, kernel in numpy.items() if op not in candidates}
    table = {
        op: tuple([fusible(op, retried(kernel)) for kernel in kernels])
        for op, kernels in (candidates | rest).items()
    }
    return {**table, **linalg_from_namespace(np, quiet)}


TABLE: Final = _table()
