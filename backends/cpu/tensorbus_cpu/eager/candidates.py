"""Candidates of one op in order: native code for large calls, then NumPy's kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from types import FunctionType
from typing import Any

from tensorbus.backend_api import Call, Kernel

from ..native.cpu_features import NoCompilerError
from .kernels_native import COMPUTE_BOUND_SIZE, MEMORY_BOUND_SIZE, NARROW, SLOW_IN_NUMPY_SIZE, is_covered
from .kernels_numpy import prepared

Make = Callable[[Call, Callable[..., Any]], Callable[..., Any]]
"""What makes the native function of a call, given NumPy's, which it leaves to it what it cannot serve."""


def operand_size(call: Call) -> int:
    """Return how many elements the first operand has; 0 where the plan serves every shape."""
    return prod(call.shapes[0]) if call.shapes else 0


COMBINED_ROWS_COST, COMBINED_NUMBERS_COST = 16, 4
"""What NumPy takes to add an element where an index says, in elements that it puts there: of rows, alone."""


def scattered_size(call: Call) -> int:
    """Return how many elements of a scatter that only stores take NumPy as long as the second operand.

    ``ufunc.at``, by which it combines, goes through elements one at a time, and through rows more slowly.
    """
    if not call.shapes:
        return 0
    size = prod(call.shapes[1])
    if call.attrs["mode"] == "set":
        return size
    has_rows = len(call.shapes) - 2 < len(call.shapes[0])
    return size * (COMBINED_ROWS_COST if has_rows else COMBINED_NUMBERS_COST)


def result_size(call: Call) -> int:
    """Return how many elements the result has."""
    return prod(call.out_shape) if call.out_shape else 0


def reduced_size(call: Call) -> int:
    """Return how many elements of float32 take NumPy as long: it goes through narrow ones one at a time."""
    size = operand_size(call)
    return size * MEMORY_BOUND_SIZE // SLOW_IN_NUMPY_SIZE if call.dtypes[0] in NARROW else size


def half_reduced_size(call: Call) -> int:
    """NumPy's reductions keep up for longer than its other functions: they write next to nothing."""
    return reduced_size(call) // 2


def costly_size(call: Call) -> int:
    """Return how many elements of a light op take NumPy as long as those of a costly one."""
    return operand_size(call) * MEMORY_BOUND_SIZE // COMPUTE_BOUND_SIZE


def scanned_size(call: Call) -> int:
    """Return how many elements of a light op take NumPy as long as a scan of the operand."""
    return max(reduced_size(call), costly_size(call))


def native_first(
    numpy: Kernel, make: Make, size: Callable[[Call], int], covered: Callable[[Call], bool] = is_covered
) -> tuple[Kernel, Kernel]:
    """Return the candidates of an op whose plan knows the shapes: native code, then NumPy.

    Native code takes calls whose ``size`` is as much work as ``MEMORY_BOUND_SIZE``
    elements of an op bound by memory.
    """

    def supports(call: Call) -> bool | str:
        if not covered(call):
            return "C has not all of the dtypes"
        return size(call) >= MEMORY_BOUND_SIZE or f"less work than {MEMORY_BOUND_SIZE} elements are"

    def prepare(call: Call) -> Callable[..., Any]:
        otherwise = prepared(numpy, call)
        native = make(call, otherwise)
        return _or(native, otherwise) if isinstance(native, FunctionType) else native

    return Kernel(name="native", prepare=prepare, supports=supports), replace(numpy, name="numpy")


def _or(native: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs ``otherwise`` where code that is compiled at a later call cannot be any more."""

    def run(*values: Any) -> Any:
        try:
            return native(*values)
        except NoCompilerError:
            return otherwise(*values)

    return run


def prepare_first(candidates: Sequence[Kernel], call: Call) -> Callable[..., Any]:
    """Return what runs a call by the first of the candidates that supports it."""
    chosen = next(k for k in candidates if k.supports is None or k.supports(call) is True)
    return prepared(chosen, call)


def retried(kernel: Kernel) -> Kernel:
    """Return the kernel that is prepared once more, without the compiler, where its code has no room."""
    prepare = kernel.prepare
    if prepare is None:
        return kernel

    def again(call: Call) -> Callable[..., Any]:
        try:
            return prepare(call)
        except NoCompilerError:
            return prepare(call)

    return replace(kernel, prepare=again)
