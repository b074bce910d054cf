"""Programs of a few ops in eager mode: a derivative or a function is one call of the driver.

They are compiled as captured programs are, and stored like these. Few elements are left to the kernels of
each op, which there is nothing to compile for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tensorbus.backend_api import CompileRequest, Graph, Kernel

from ..compiler import NATIVE
from ..native.program_disk_cache import CachedLowering
from .kernels_native import SLOW_IN_NUMPY_SIZE, has_types

_UNFUSED_OPS: Final = frozenset(
    """conv conv_transpose conv_weight max_pool max_pool_gradient sort argsort argsort_part searchsorted
    cumulative_prod cumulative_max cumulative_min logcumsumexp inv eigvalsh eigvals svdvals
    random_bits""".split()
)
"""The ops that stay alone: a program would do no more than call their kernels."""
_ROW_STABLE: Final = frozenset({"var", "std"})
"""The functions that give a batch what they give its parts, bit for bit, however many elements these have.

Their sums are added up as ``row_stable_sum`` does, for few elements and for many.
"""


class FusedPrograms:
    """Programs of several ops: see ``compilation.FusedKernels``."""

    least: Final = SLOW_IN_NUMPY_SIZE

    def keeps(self, op: str, index: int) -> bool:
        """Return whether an op may be a part of a program: all that is generated, products and updates."""
        compiler = NATIVE.compiler()
        if compiler is None or op in _UNFUSED_OPS:
            return False
        # The code generator comes with the first program.
        from tensorbus.backend_api import is_fused_update, is_generated

        return op == "matmul" or is_fused_update(op) or is_generated(op, compiler.dialect(index))

    def prepare(
        self, name: str, graph: Graph, index: int, replaces: Mapping[int, int]
    ) -> Callable[[Sequence[Any]], Sequence[Any]] | None:  # fmt: skip
        """Return what runs a graph of arrays; None for what stays op by op, or has dtypes that C has not."""
        if name in _ROW_STABLE or not has_types(node.spec.dtype for node in graph):
            return None
        executable: Any = CachedLowering().compile(CompileRequest(graph=graph, index=index))
        run: Callable[[Sequence[Any]], Sequence[Any]] = getattr(executable, "direct_call", executable)
        return run


PROGRAMS: Final = FusedPrograms()


def fusible(op: str, kernel: Kernel) -> Kernel:
    """Return the kernel of an op, whose place a program may take."""
    return kernel if op in _UNFUSED_OPS else replace(kernel, programs=PROGRAMS)
