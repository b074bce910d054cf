"""The schedule of matmul: each work-item makes a small tile of the result in vector registers.

The right operand is packed into panels as wide as a tile, which makes every load a whole vector, pads the
last panel with zeros and keeps a panel in cache while rows pass by. A product with few tiles and a long inner
axis is cut along it, and the parts are summed. A left operand that is in no buffer is computed where it is
read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Final

from ...backend_interface.graph import Graph, Node
from ...dtypes.definition import DType, uint8, uint16, uint32, uint64
from ...ops.definition import Spec
from ..fusion.collapse_dims import collapse
from ..ir import index_expr as ix
from ..ir.builder import Builder, RuntimeArg, literal
from ..ir.index_expr import ONE, ZERO, const
from ..ir.kernel_task import KernelTask, LaunchList
from ..ir.layout import Layout, packed
from ..ir.loop_ir import INDEX, Apply, Assign, Cast, Const, Expr, Load, Var
from ..op_sets import accumulator
from ..target import Target
from .pointwise.pointwise import lower_map
from .reduction.reduction import lower_reduction
from .schedule import Schedule, ScheduleRequest, Verdict

_Line = Callable[[Expr], Expr]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tile:
    """``rows`` by ``vectors`` of ``lanes``.

    ``direct``: the right operand is read in rows, where it lies or padded; else from panels.
    """

    rows: int
    vectors: int
    lanes: int
    direct: bool

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """``batch`` products of ``m`` x ``k`` by ``k`` x ``n``, in ``parts`` pieces of the inner axis."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    parts: int
    part: int


def _unsigned(dtype: DType) -> DType:
    """Return the dtype in which products of integers wrap without undefined behaviour."""
    return {1: uint8, 2: uint16, 4: uint32, 8: uint64}[dtype.itemsize] if dtype.is_integer else dtype


def _tile(m: int, n: int, b: Layout | None, same: bool, dtype: DType, target: Target) -> _Tile:
    rows = target.tile_rows if m >= target.tile_rows else 4 if m >= 3 else m
    if dtype.is_complex:  # no vectors of structs: a tile of single elements
        return _Tile(rows=min(rows, 4), vectors=min(4, n), lanes=1, direct=not target.row_per_task)
    item = dtype.itemsize
    whole = min(target.lanes, max(target.register_bytes // item, 1))
    pair = 2 if target.row_per_task else 1
    direct = same and b is not None and b.strides[-1] == 1
    if not target.row_per_task:
        return _Tile(rows=rows, vectors=1, lanes=whole, direct=True)
    if direct and m <= 4 * rows:
        for lanes, vectors in ((whole, pair), (whole, 1), (8, 1), (4, 1)):
            if n % (lanes * vectors) == 0 and lanes <= whole:
                return _Tile(rows=rows, vectors=vectors, lanes=lanes, direct=True)
    if direct and n % (pair * whole) == 0 and m <= 16 * rows:
        return _Tile(rows=rows, vectors=pair, lanes=whole, direct=True)
    lanes = min(whole, 16 if n > 8 else 8 if n > 4 else 4)
    return _Tile(rows=rows, vectors=pair if n > whole else 1, lanes=lanes, direct=False)


def lower_matmul(task: KernelTask, steps: LaunchList) -> None:
    """Append the launches of a ``matmul``; its operands need not lie in buffers."""
    limits = steps.target.heuristics
    root = task.root
    y = task.inputs.get(id(root.inputs[1]))
    if 0 in root.spec.shape:
        return
    operand_dtype = root.inputs[0].spec.dtype
    dtype = _unsigned(accumulator(operand_dtype))
    *batch, m, n = root.spec.shape
    k = root.inputs[0].spec.shape[-1]
    tile = _tile(m, n, y, operand_dtype is dtype, dtype, steps.target)
    tiles = -(-m // tile.rows) * -(-n // tile.columns) * prod(batch)
    parts = (
        min(-(-steps.target.tasks_to_fill // tiles), k // limits.matmul_min_part)
        if tiles < steps.target.tasks_to_fill
        else 1
    )
    part = -(-k // max(parts, 1))
    sizes = _Sizes(m=m, n=n, k=k, batch=tuple(batch), parts=-(-k // part) if part else 1, part=part)
    result = root.spec.dtype
    out = task.out
    total = prod(root.spec.shape)
    if result is not dtype or sizes.parts > 1:
        out = steps.temporary(total * sizes.parts, dtype)
    fits = y is not None and operand_dtype is dtype and y.strides[-1] == 1 and n % tile.columns == 0
    right = y if y is not None and tile.direct and fits else _pack(task, steps, tile, dtype)
    _product(task, steps, tile, sizes, dtype, right, out)
    shape = (total,)
    if sizes.parts > 1:
        summed = task.out if result is dtype else steps.temporary(total, dtype)
        stacked = Node(op="input", spec=Spec((sizes.parts, total), dtype))
        product = Node(
            op="sum", inputs=(stacked,), attrs={"axis": (0,), "keepdims": False}, spec=Spec(shape, dtype)
        )
        lower_reduction(
            KernelTask(
                root=product, inputs={id(stacked): packed(out, stacked.spec.shape)}, scalars={}, out=summed
            ),
            steps,
        )
        out = summed
    if result is not dtype:
        wide = Node(op="input", spec=Spec(shape, dtype))
        product = Node(op="cast", inputs=(wide,), attrs={"dtype": result}, spec=Spec(shape, result))
        lower_map(
            KernelTask(root=product, inputs={id(wide): packed(out, shape)}, scalars={}, out=task.out), steps
        )


def _pack(task: KernelTask, steps: LaunchList, tile: _Tile, dtype: DType) -> Layout:
    """Append the copy of the right operand as (batch, panel, k, column), padded with zeros."""
    y = node = task.root.inputs[1]
    *batch, k, n = y.spec.shape
    panels = -(-n // tile.columns)
    leaves, scalars = task.inputs, task.scalars
    if (leaf := leaves.get(id(y))) is not None:
        batch = [1 if s == 0 else length for length, s in zip(batch, leaf.strides, strict=False)]
        lean = replace(leaf, shape=(*batch, k, n))
        node = Node(op="input", spec=Spec(lean.shape, y.spec.dtype))
        leaves, scalars = {id(node): lean}, {}
    wide = panels * tile.columns
    if wide != n:
        none = (0,) * (len(batch) + 2)
        node = Node(op="pad", inputs=(node,), attrs={"low": none, "high": (*none[1:], wide - n), "value": 0},
                    spec=Spec((*batch, k, wide), y.spec.dtype))  # fmt: skip
    rank = len(batch)
    if y.spec.dtype is not dtype:
        node = Node(op="cast", inputs=(node,), attrs={"dtype": dtype}, spec=Spec(node.spec.shape, dtype))
    shape: tuple[int, ...] = (*batch, k, wide)
    if not tile.direct:
        split = (*batch, k, panels, tile.columns)
        node = Node(op="reshape", inputs=(node,), attrs={"shape": split}, spec=Spec(split, dtype))
        axes = (*range(rank), rank + 1, rank, rank + 2)
        shape = (*batch, panels, k, tile.columns)
        node = Node(op="permute_dims", inputs=(node,), attrs={"axes": axes}, spec=Spec(shape, dtype))
    elif node.op == "input":
        node = Node(op="cast", inputs=(node,), attrs={"dtype": dtype}, spec=Spec(shape, dtype))
    slot = steps.temporary(prod(shape), dtype)
    lower_map(
        collapse(KernelTask(root=node, inputs=leaves, scalars=scalars, out=slot, sized=task.sized)), steps
    )
    return packed(slot, shape)


def _product(
    task: KernelTask, steps: LaunchList, tile: _Tile, sizes: _Sizes, dtype: DType, right: Layout, out: int
) -> None:
    b = Builder(f"tb_matmul_{tile.rows}x{tile.columns}")
    operand = _Left(b, task, tile, dtype, steps.target)
    b.buffer("right", dtype)
    b.buffer("out", dtype, writes=True)
    m, n, k = (b.size(role, v) for role, v in (("m", sizes.m), ("n", sizes.n), ("k", sizes.k)))
    row_tile, panel, item = Var("i0", INDEX), Var("i1", INDEX), Var("i2", INDEX)
    batch, count = prod(sizes.batch), prod(sizes.batch) * sizes.parts
    row_tiles, panels = -(-sizes.m // tile.rows), -(-sizes.n // tile.columns)
    loops = [
        (row_tile, b.size("row_tiles", row_tiles), row_tiles),
        (panel, b.size("panels", panels), panels),
        (item, b.size("items", count), count),
    ]
    if not steps.target.row_per_task:
        loops[:2] = [(Var("i0", INDEX), *loops[1][1:]), (Var("i1", INDEX), *loops[0][1:])]
        panel, row_tile = loops[0][0], loops[1][0]
    loops = loops[: 3 if count > 1 else 2]
    at: Expr = item if count > 1 else ZERO
    start: Expr = ZERO
    stop: Expr = k
    if sizes.parts > 1:
        size = b.size("chunk", sizes.part)
        number = b.let(ix.quotient(at, b.size("batch", batch)), "part")
        start = b.let(ix.multiply(number, size), "start")
        stop = b.let(ix.minimum(ix.add(start, size), k), "stop")
        in_batch: Expr = b.let(ix.modulo(at, b.size("batch", batch)), "b") if batch > 1 else ZERO
    else:
        in_batch = at
    index = ix.unflatten(in_batch, [b.size(f"b{k}", v) for k, v in enumerate(sizes.batch)])
    index = tuple([i if isinstance(i, Var | Const) else b.let(i, "b") for i in index])
    right_at = _begin(b, "right", right, index, 2 if tile.direct else 3)
    row = b.let(ix.multiply(row_tile, const(tile.rows)), "row")
    column = b.let(ix.multiply(panel, const(tile.columns)), "column")
    last = ix.subtract(m, ONE)
    rows = [ix.minimum(ix.add(row, const(r)), last) if tile.rows > 1 else row for r in range(tile.rows)]
    lines = operand.lines(index, rows)
    if tile.direct:
        right_at = b.let(ix.add(right_at, column), "right")
        step: Expr = b.size("right_k", right.strides[-2])
    else:
        step = const(tile.columns)
        right_at = b.let(ix.add(right_at, ix.multiply(panel, ix.multiply(k, step))), "right")
    zero = Const(literal(0, dtype).value, dtype, tile.lanes)
    sums = [[b.let(zero, "c", mutable=True) for _ in range(tile.vectors)] for _ in range(tile.rows)]

    def add(i: Expr, lines: Sequence[_Line]) -> None:
        from_right = b.let(ix.add(right_at, ix.multiply(i, step)), "r")
        vectors = [
            b.let(Load("right", ix.add(from_right, const(v * tile.lanes)), dtype, tile.lanes), "y")
            for v in range(tile.vectors)
        ]
        for r in range(tile.rows):
            wide = b.let(Cast(lines[r](i), dtype, tile.lanes), "x")
            for v in range(tile.vectors):
                b.emit(Assign(sums[r][v], Apply("fma", (wide, vectors[v], sums[r][v]), dtype, tile.lanes)))

    operand.loop(start, stop, lines, add)
    whole = sizes.n % tile.columns == 0
    for r in range(tile.rows):
        line = ix.add(row, const(r))
        with b.when(ix.less(line, m)):
            to = ix.add(ix.multiply(ix.add(ix.multiply(at, m), line), n), column)
            for v in range(tile.vectors):
                shift = const(v * tile.lanes)
                if tile.lanes == 1 and not whole:
                    with b.when(ix.less(ix.add(column, shift), n)):
                        b.store("out", ix.add(to, shift), sums[r][v])
                    continue
                left = None if whole else ix.subtract(n, ix.add(column, shift))
                b.store("out", ix.add(to, shift), sums[r][v], left)
    steps.add(
        b.finish(loops, task=steps.target.row_per_task), {**operand.slots, "right": right.slot, "out": out}
    )


class _Left:
    """The left operand of a product in its kernel: read where it lies, or computed from what does.

    Work-items that are alone compute some elements of each row of a tile ahead: compilers make vectors of
    that.
    """

    def __init__(self, b: Builder, task: KernelTask, tile: _Tile, dtype: DType, target: Target) -> None:
        self.b, self.rows, self.dtype = b, tile.rows, dtype
        self.ahead = target.heuristics.matmul_computed_ahead
        self.node = task.root.inputs[0]
        self.layout = task.inputs.get(id(self.node))
        self.slots: dict[str, int]
        if self.layout is None:
            self.inliner, self.slots = task.inliner(b, Graph(inputs=(), outputs=(self.node,)))
        else:
            self.slots = {b.buffer("x0", self.node.spec.dtype): self.layout.slot}
        self.array = (
            b.array(dtype, self.rows * self.ahead) if self.layout is None and target.row_per_task else ""
        )

    def lines(self, batch: tuple[Expr, ...], rows: Sequence[Expr]) -> list[_Line]:
        """Return what gives the element at a place of each of ``rows``, of one product of the batch."""
        b, x = self.b, self.layout
        if x is None:
            return [partial(self._computed, batch, row) for row in rows]
        begin = _begin(b, "x0", x, batch, 2)
        bases = [ix.add(begin, ix.multiply(row, b.size("x0_m", x.strides[-2]))) for row in rows]
        return [partial(self._loaded, b.let(base, "base"), b.size("x0_k", x.strides[-1])) for base in bases]

    def loop(
        self, start: Expr, stop: Expr, lines: Sequence[_Line],
        add: Callable[[Expr, Sequence[_Line]], None],
    ) -> None:  # fmt: skip
        """Emit the loops over the inner axis; ``add`` emits what is done at a place of it."""
        b = self.b
        if not self.array:
            with b.loop(start, stop) as k:
                add(k, lines)
            return
        with b.loop(start, stop, step=self.ahead) as first:
            end = b.let(ix.minimum(ix.add(first, const(self.ahead)), stop), "end")
            for r, line in enumerate(lines):
                with b.loop(first, end) as k:
                    b.store(self.array, self._place(r, k, first), line(k))
            with b.loop(first, end) as k:
                add(k, [partial(self._read_ahead, r, first) for r in range(self.rows)])

    def _place(self, r: int, k: Expr, first: Expr) -> Expr:
        return ix.add(const(r * self.ahead), ix.subtract(k, first))

    def _read_ahead(self, r: int, first: Expr, k: Expr) -> Expr:
        return Load(self.array, self._place(r, k, first), self.dtype)

    def _loaded(self, base: Expr, step: Expr, k: Expr) -> Expr:
        return self._summed(Load("x0", ix.add(base, ix.multiply(k, step)), self.node.spec.dtype))

    def _computed(self, batch: tuple[Expr, ...], row: Expr, k: Expr) -> Expr:
        with self.inliner.scope():
            return self._summed(self.inliner.at(self.node, (*batch, row, k)))

    def _summed(self, value: Expr) -> Expr:
        return value if value.dtype is self.dtype else Cast(value, self.dtype)


def _begin(b: Builder, name: str, x: Layout, batch: Sequence[Expr], inner: int) -> Expr:
    """Return where one product of the batch begins in an operand, whose last ``inner`` axes are its own."""
    place: Expr = ZERO
    if x.late is not None:
        place = b.param(f"{name}_o", INDEX, RuntimeArg("offset", x.late, x.offset))
    elif x.offset:
        place = b.param(f"{name}_o", INDEX, x.offset)
    lead = len(batch) - (len(x.shape) - inner)
    for k in range(lead, len(batch)):
        if x.shape[k - lead] != 1:
            place = ix.add(place, ix.multiply(batch[k], b.size(f"{name}_b{k}", x.strides[k - lead])))
    return place if isinstance(place, Var | Const) else b.let(place, "at")


def _applies(request: ScheduleRequest, target: Target) -> Verdict:
    return request.single(target)


def _build(request: ScheduleRequest, launches: LaunchList) -> None:
    lower_matmul(request.task, launches)


TILED_MATMUL: Final = Schedule(
    name="tiled matmul",
    about="a tile of the result in vector registers for each work-item or task",
    kinds=frozenset({"matmul"}), applies=_applies, build=_build,
)  # fmt: skip
