"""The sizes of a scatter, and the place of an element in its result: all its schedules ask for them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from ....backend_interface.graph import Node
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.inline import Index, Inliner
from ...ir.kernel_task import KernelTask
from ...ir.loop_ir import Expr, Var
from ...target import Target
from ..schedule import Verdict
from .modes import MODES

INT32_NUMBERS: Final = 1 << 31
"""Rows and indices are fewer: their numbers are 32 bits long."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The rows of a scatter, how wide they are, how many indices name them, and the op that joins values."""

    rows: int
    wide: int
    count: int
    op: str | None

    @classmethod
    def of(cls, root: Node) -> Sizes:
        """Return the sizes of a scatter."""
        x, _, *indices = root.inputs
        rows = max(prod(x.spec.shape[: len(indices)]), 1)
        wide = max(prod(x.spec.shape[len(indices) :]), 1)
        return cls(rows, wide, prod(indices[0].spec.shape), MODES.get(root.attrs["mode"]))

    def few(self, target: Target) -> Verdict:
        """Return whether work-items number rows and indices in 32 bits."""
        if target.row_per_task:
            return "it is for work-items"
        return True if max(self.rows, self.count) < INT32_NUMBERS else "numbers take more than 32 bits"

    def side_by_side(self, target: Target) -> bool:
        """Return whether neighbouring work-items read one index for the columns of its row."""
        limits = target.heuristics
        return not target.row_per_task and bool(target.subgroup_size) and self.wide >= limits.scatter_wide_row


def element_place(
    b: Builder, task: KernelTask, inliner: Inliner, row: Expr, column: Expr
) -> tuple[Index, Var]:
    """Return the index of a column within a row, and the place of that element in the result."""
    x, _, *indices = task.root.inputs
    tail = ix.unflatten(column, [inliner.length(x, k) for k in range(len(indices), len(x.spec.shape))])
    wide = Sizes.of(task.root).wide
    return tuple(tail), b.let(ix.add(ix.multiply(row, b.size("wide", wide)), column), "to")
