"""A tile of scores: so many lanes of one side by a run of rows of the other, and the products that make it.

A lane is a query going forward, and a key where the gradients of keys are made. A softmax needs nothing of
another lane, so that no value moves across. On cores with vector units a tile has vectors of lanes; of many
thin cores each work-item is one lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ....backend_interface.graph import Node
from ....dtypes.definition import DType
from ...ir import index_expr as ix
from ...ir.builder import Builder, RuntimeArg, literal
from ...ir.index_expr import ONE, ZERO, const
from ...ir.layout import Layout
from ...ir.loop_ir import INDEX, Apply, Cast, Const, Expr, Load, Var
from ...target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """``vectors`` of ``lanes``, by ``deep`` rows, of which ``rows`` at a time are in registers.

    ``columns`` are how many columns of a result are in registers at a time.
    """

    lanes: int
    vectors: int
    rows: int
    columns: int
    deep: int

    @property
    def wide(self) -> int:
        """The number of lanes in all."""
        return self.lanes * self.vectors

    @property
    def size(self) -> int:
        """The number of scores that a tile has room for: rows are made ``rows`` at a time."""
        return -(-self.deep // self.rows) * self.rows * self.wide


def tile_shape(dtype: DType, target: Target) -> Shape:
    """Return the shape of tiles of ``dtype``: what fits into the registers of a core."""
    limits = target.heuristics
    if not target.row_per_task:
        return Shape(lanes=1, vectors=1, rows=4, columns=8, deep=limits.attention_rows_gpu)
    single = target.pointwise_vector_lanes or target.register_bytes // 4
    lanes = max(4, single * 4 // dtype.itemsize)
    many = 8 if single >= 16 else 6  # two vectors of each, in 32 registers or in 16
    return Shape(lanes=lanes, vectors=2, rows=many, columns=many, deep=limits.attention_rows)


class Operand:
    """The rows of one head of an operand, where it lies."""

    def __init__(self, b: Builder, name: str, node: Node, layout: Layout, lead: Sequence[Expr]) -> None:
        """Name the buffer of ``node`` and its strides; ``lead`` says which batch and head."""
        self.b, self.name, self.dtype = b, b.buffer(name, node.spec.dtype), node.spec.dtype
        self.slot = layout.slot
        place: Expr = ZERO
        if layout.late is not None:
            place = b.param(f"{name}_o", INDEX, RuntimeArg("offset", layout.late, layout.offset))
        elif layout.offset:
            place = b.param(f"{name}_o", INDEX, layout.offset)
        for k, i in enumerate(lead):
            if layout.shape[k] != 1:
                place = ix.add(place, ix.multiply(i, b.size(f"{name}_b{k}", layout.strides[k])))
        self.begin: Expr = place if isinstance(place, Var | Const) else b.let(place, "at")
        inner = layout.strides[len(lead) :]
        self.steps = [b.size(f"{name}_s{k}", s) for k, s in enumerate(inner)]

    def row(self, at: Expr) -> Expr:
        """Return where a row begins."""
        return self.b.let(ix.add(self.begin, ix.multiply(at, self.steps[0])), "base")

    def load(self, base: Expr, column: Expr, wide: DType) -> Expr:
        """Return an element of a row, in the dtype of sums."""
        step = self.steps[1] if len(self.steps) > 1 else ONE
        return cast(Load(self.name, ix.add(base, ix.multiply(column, step)), self.dtype), wide)


def cast(value: Expr, dtype: DType) -> Expr:
    """Return a value in a dtype."""
    return value if value.dtype is dtype else Cast(value, dtype)


class TileCode:
    """Emits what is done to tiles of one shape, into a kernel."""

    def __init__(self, b: Builder, shape: Shape, dtype: DType) -> None:
        self.b, self.shape, self.dtype = b, shape, dtype

    def at(self, row: Expr, lane: Expr) -> Expr:
        """Return the place in an array of the element of a row and a lane."""
        return ix.add(ix.multiply(row, const(self.shape.wide)), lane)

    def lines(self, rows: int) -> str:
        """Declare an array of ``rows`` of all lanes; return its name."""
        return self.b.array(self.dtype, rows * self.shape.wide)

    def get(self, array: str, row: Expr, lane: Expr) -> Expr:
        """Return an element of an array."""
        return Load(array, self.at(row, lane), self.dtype)

    def put(self, array: str, row: Expr, lane: Expr, value: Expr) -> None:
        """Store an element of an array."""
        self.b.store(array, self.at(row, lane), value)

    @contextmanager
    def lane(self) -> Any:
        """Emit a loop over the lanes."""
        with self.b.loop(ZERO, const(self.shape.wide), kind="unroll", prefix="u") as u:
            yield u

    def fill(self, array: str, rows: int, value: float) -> None:
        """Fill an array with a number."""
        with self.b.loop(ZERO, const(rows * self.shape.wide), prefix="u") as u:
            self.b.store(array, u, literal(value, self.dtype))

    def transpose(
        self, array: str, width: int, operand: Operand, first: Expr, limit: Expr, factor: Expr | None = None
    ) -> None:
        """Copy the rows from ``first`` on, one a lane: those behind ``limit`` are the last one again."""
        b = self.b
        with b.loop(ZERO, const(self.shape.wide), prefix="u") as u:
            base = operand.row(ix.minimum(ix.add(first, u), ix.subtract(limit, ONE)))
            with b.loop(ZERO, const(width), prefix="d") as d:
                value = operand.load(base, d, self.dtype)
                value = value if factor is None else Apply("multiply", (value, factor), self.dtype)
                self.put(array, d, u, value)

    def products(
        self, into: str, lines: str, width: int, operand: Operand, first: Expr, count: Expr, limit: Expr
    ) -> None:
        """Make the products of ``count`` rows of an operand with every lane.

        ``lines`` has the lanes, transposed; rows are read up to ``limit``.
        """
        b, s = self.b, self.shape
        with b.loop(ZERO, count, step=s.rows, prefix="j") as j:
            at = b.let(ix.add(first, j), "row")
            last = ix.subtract(limit, ONE)
            bases = [operand.row(ix.minimum(ix.add(at, const(n)), last)) for n in range(s.rows)]
            sums = [self._zeros() for _ in range(s.rows)]
            with b.loop(ZERO, const(width), prefix="d") as d:
                vectors = self._vectors(lines, d)
                for base, row in zip(bases, sums, strict=True):
                    self._add(row, operand.load(base, d, self.dtype), vectors)
            for n, row in enumerate(sums):
                self._store(into, ix.add(j, const(n)), row)

    def accumulate(
        self, into: str, width: int, weights: str, operand: Operand, first: Expr, count: Expr, fade: str = ""
    ) -> None:
        """Add rows of an operand to every lane, times its weights; what was there fades first."""
        whole = width // self.shape.columns * self.shape.columns
        if whole:
            with self.b.loop(ZERO, const(whole), step=self.shape.columns, prefix="d") as d:
                self._columns(into, d, self.shape.columns, weights, operand, first, count, fade)
        if whole < width:
            self._columns(into, const(whole), width - whole, weights, operand, first, count, fade)

    def _columns(
        self, into: str, d: Expr, columns: int, weights: str, operand: Operand, first: Expr, count: Expr,
        fade: str,
    ) -> None:  # fmt: skip
        b, s = self.b, self.shape
        fades = self._vectors(fade, ZERO) if fade else []
        sums = []
        for n in range(columns):
            known = self._vectors(into, ix.add(d, const(n)))
            if fade:
                known = [
                    Apply("multiply", pair, self.dtype, s.lanes) for pair in zip(known, fades, strict=True)
                ]
            sums.append([b.let(x, "c", mutable=True) for x in known])
        with b.loop(ZERO, count, prefix="j") as j:
            base = operand.row(ix.add(first, j))
            vectors = self._vectors(weights, j)
            for n, row in enumerate(sums):
                self._add(row, operand.load(base, ix.add(d, const(n)), self.dtype), vectors)
        for n, row in enumerate(sums):
            self._store(into, ix.add(d, const(n)), row)

    def _zeros(self) -> list[Var]:
        zero = Const(literal(0, self.dtype).value, self.dtype, self.shape.lanes)
        return [self.b.let(zero, "c", mutable=True) for _ in range(self.shape.vectors)]

    def _vectors(self, array: str, row: Expr) -> list[Expr]:
        s = self.shape
        places = [self.at(row, const(v * s.lanes)) for v in range(s.vectors)]
        return [self.b.let(Load(array, place, self.dtype, s.lanes), "y") for place in places]

    def _add(self, sums: Sequence[Var], value: Expr, vectors: Sequence[Expr]) -> None:
        lanes = self.shape.lanes
        wide = self.b.let(Cast(self.b.let(value, "x"), self.dtype, lanes) if lanes > 1 else value, "x")
        for total, vector in zip(sums, vectors, strict=True):
            self.b.assign(total, Apply("fma", (wide, vector, total), self.dtype, lanes))

    def _store(self, array: str, row: Expr, values: Sequence[Expr]) -> None:
        for v, value in enumerate(values):
            self.b.store(array, self.at(row, const(v * self.shape.lanes)), value)
