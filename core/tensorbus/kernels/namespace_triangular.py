"""LU factors and triangular systems over a library like NumPy, which has neither.

Both halve the matrix again and again, so that nearly all the work is matrix products (Toledo 1997, "Locality
of reference in LU decomposition with partial pivoting"). Stacks of matrices are worked on all at once.
"""

from __future__ import annotations

from typing import Any, Final

GENERAL_SOLVER_MAX_SIZE: Final = 32
"""Triangular systems up to this size are handed to the library's general solver."""
PANEL_COLUMNS: Final = 16
"""As many columns are factored one by one before the rest of the matrix hears of it."""


def solve_triangular(xp: Any, a: Any, b: Any, upper: bool, unit_diagonal: bool) -> Any:
    """Return ``x`` with ``a @ x = b``, of which ``a`` only has one triangle; stacks broadcast."""
    n = a.shape[-1]
    lead = xp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = xp.broadcast_to(b, (*lead, *b.shape[-2:])).copy()
    _substitute(xp, a, x, 0, n, upper, unit_diagonal)
    return x


def _substitute(xp: Any, a: Any, x: Any, first: int, last: int, upper: bool, unit: bool) -> None:
    """Solve for the rows ``first`` to ``last`` of ``x`` in place."""
    if last - first <= GENERAL_SOLVER_MAX_SIZE:
        block = a[..., first:last, first:last]
        block = xp.triu(block) if upper else xp.tril(block)
        if unit:
            one = xp.eye(last - first, dtype=a.dtype)
            block = xp.where(one != 0, one, block)
        x[..., first:last, :] = xp.linalg.solve(block, x[..., first:last, :])
        return
    middle = (first + last) // 2
    known, left = ((middle, last), (first, middle)) if upper else ((first, middle), (middle, last))
    _substitute(xp, a, x, *known, upper, unit)
    x[..., slice(*left), :] -= a[..., slice(*left), slice(*known)] @ x[..., slice(*known), :]
    _substitute(xp, a, x, *left, upper, unit)


def lu_factor(xp: Any, a: Any) -> tuple[Any, Any]:
    """Return the factors of ``a[permutation]`` in one matrix, and the permutation of the rows."""
    *lead, m, n = a.shape
    work = a.reshape((-1, m, n)).copy() if a.size else a.reshape((0, m, n))
    order = xp.broadcast_to(xp.arange(m), (work.shape[0], m)).copy()
    k = min(m, n)
    if work.size:
        _factor(xp, work, order, 0, k)
    if work.size and n > k:
        _substitute(xp, work[:, :, :k], work[:, :, k:], 0, k, False, True)
    shape = (*lead, m)
    return work.reshape(a.shape), order.reshape(shape) if a.size else xp.broadcast_to(xp.arange(m), shape)


def _factor(xp: Any, work: Any, order: Any, first: int, last: int) -> None:
    """Factor the columns ``first`` to ``last`` in place, below and including row ``first``."""
    if last - first <= PANEL_COLUMNS:
        _factor_panel(xp, work, order, first, last)
        return
    middle = (first + last) // 2
    _factor(xp, work, order, first, middle)
    left, right = slice(first, middle), slice(middle, last)
    _substitute(xp, work[:, :, :middle], work[:, :, right], first, middle, False, True)
    work[:, middle:, right] -= work[:, middle:, left] @ work[:, left, right]
    _factor(xp, work, order, middle, last)


def _factor_panel(xp: Any, work: Any, order: Any, first: int, last: int) -> None:
    """Factor a few columns one by one, then exchange the rows of all others as theirs were."""
    panel = work[:, first:, first:last].copy()
    each = xp.arange(len(panel))
    rows = xp.broadcast_to(xp.arange(panel.shape[1]), panel.shape[:2]).copy()
    for k in range(last - first):
        best = xp.abs(panel[:, k:, k]).argmax(axis=1) + k
        for part in (panel, rows):
            pivot_row = part[each, best]
            part[each, best] = part[:, k]
            part[:, k] = pivot_row
        pivot = panel[:, k, k]
        panel[:, k + 1 :, k] /= xp.where(pivot == 0, 1, pivot)[:, None]
        panel[:, k + 1 :, k + 1 :] -= panel[:, k + 1 :, k, None] * panel[:, None, k, k + 1 :]
    (moved,) = (rows != xp.arange(panel.shape[1])).any(axis=0).nonzero()
    for part in (work, order):
        part[:, first + moved] = part[each[:, None], first + rows[:, moved]]
    work[:, first:, first:last] = panel
