"""The schedule of matmul: each item makes a small tile of the result in vector registers.

The right operand is packed into panels as wide as a tile, which makes every load a whole vector, pads the
last panel with zeros and keeps a panel in cache while rows pass by. A product with few tiles and a long inner
axis is cut along it, and the parts are summed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ..dtypes import DType, uint8, uint16, uint32, uint64
from ..graph.graph import Node
from ..ops.op import Spec
from . import index as ix
from .builder import Builder, Late, literal
from .collapse import collapse
from .index import ONE, ZERO, const
from .ir import INDEX, Apply, Assign, Cast, Const, Expr, Load, Var
from .job import Job, Steps
from .layout import Layout, packed
from .pointwise import lower_map
from .reduce import lower_reduction
from .reducer import accumulator
from .target import Target

LONG = 512


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
    rows = target.tile if m >= target.tile else 4 if m >= 3 else m
    if dtype.is_complex:  # no vectors of structs: a tile of single elements
        return _Tile(rows=min(rows, 4), vectors=min(4, n), lanes=1, direct=not target.solo_rows)
    item = dtype.itemsize
    whole = min(target.lanes, max(target.register // item, 1))
    pair = 2 if target.solo_rows else 1
    direct = same and b is not None and b.strides[-1] == 1
    if not target.solo_rows:
        return _Tile(rows=rows, vectors=1, lanes=whole, direct=True)
    if direct and m <= 4 * rows:
        for lanes, vectors in ((whole, pair), (whole, 1), (8, 1), (4, 1)):
            if n % (lanes * vectors) == 0 and lanes <= whole:
                return _Tile(rows=rows, vectors=vectors, lanes=lanes, direct=True)
    if direct and n % (pair * whole) == 0 and m <= 16 * rows:
        return _Tile(rows=rows, vectors=pair, lanes=whole, direct=True)
    lanes = min(whole, 16 if n > 8 else 8 if n > 4 else 4)
    return _Tile(rows=rows, vectors=pair if n > whole else 1, lanes=lanes, direct=False)


def lower_matmul(job: Job, steps: Steps) -> None:
    """Append the launches of a ``matmul`` whose left operand lies in a buffer; the right one need not."""
    root = job.root
    x, y = job.leaves[id(root.inputs[0])], job.leaves.get(id(root.inputs[1]))
    if 0 in root.spec.shape:
        return
    given = root.inputs[0].spec.dtype
    dtype = _unsigned(accumulator(given))
    *batch, m, n = root.spec.shape
    k = x.shape[-1]
    tile = _tile(m, n, y, given is dtype, dtype, steps.target)
    tiles = -(-m // tile.rows) * -(-n // tile.columns) * prod(batch)
    parts = min(-(-steps.target.groups // tiles), k // LONG) if tiles < steps.target.groups else 1
    part = -(-k // max(parts, 1))
    sizes = _Sizes(m=m, n=n, k=k, batch=tuple(batch), parts=-(-k // part) if part else 1, part=part)
    result = root.spec.dtype
    out = job.out
    total = prod(root.spec.shape)
    if result is not dtype or sizes.parts > 1:
        out = steps.temporary(total * sizes.parts, dtype)
    fits = y is not None and given is dtype and y.strides[-1] == 1 and n % tile.columns == 0
    right = y if y is not None and tile.direct and fits else _pack(job, steps, tile, dtype)
    _product(job, steps, tile, sizes, dtype, right, out)
    shape = (total,)
    if sizes.parts > 1:
        summed = job.out if result is dtype else steps.temporary(total, dtype)
        stacked = Node(op="input", spec=Spec((sizes.parts, total), dtype))
        made = Node(
            op="sum", inputs=(stacked,), attrs={"axis": (0,), "keepdims": False}, spec=Spec(shape, dtype)
        )
        lower_reduction(
            Job(root=made, leaves={id(stacked): packed(out, stacked.spec.shape)}, scalars={}, out=summed),
            steps,
        )
        out = summed
    if result is not dtype:
        wide = Node(op="input", spec=Spec(shape, dtype))
        made = Node(op="cast", inputs=(wide,), attrs={"dtype": result}, spec=Spec(shape, result))
        lower_map(Job(root=made, leaves={id(wide): packed(out, shape)}, scalars={}, out=job.out), steps)


def _pack(job: Job, steps: Steps, tile: _Tile, dtype: DType) -> Layout:
    """Append the copy of the right operand as (batch, panel, k, column), padded with zeros."""
    y = node = job.root.inputs[1]
    *batch, k, n = y.spec.shape
    panels = -(-n // tile.columns)
    leaves, scalars = job.leaves, job.scalars
    if (given := leaves.get(id(y))) is not None:
        batch = [1 if s == 0 else length for length, s in zip(batch, given.strides, strict=False)]
        lean = replace(given, shape=(*batch, k, n))
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
    lower_map(collapse(Job(root=node, leaves=leaves, scalars=scalars, out=slot, sized=job.sized)), steps)
    return packed(slot, shape)


def _product(
    job: Job, steps: Steps, tile: _Tile, sizes: _Sizes, dtype: DType, right: Layout, out: int
) -> None:
    b = Builder(f"tb_matmul_{tile.rows}x{tile.columns}")
    x = job.leaves[id(job.root.inputs[0])]
    stored = job.root.inputs[0].spec.dtype
    b.buffer("x0", stored)
    b.buffer("x1", dtype)
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
    if not steps.target.solo_rows:
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
    left_at, right_at = _batch_places(b, sizes, x, right, tile, in_batch)
    row = b.let(ix.multiply(row_tile, const(tile.rows)), "row")
    column = b.let(ix.multiply(panel, const(tile.columns)), "column")
    last = ix.subtract(m, ONE)
    bases = []
    for r in range(tile.rows):
        line = ix.minimum(ix.add(row, const(r)), last) if tile.rows > 1 else row
        bases.append(b.let(ix.add(left_at, ix.multiply(line, b.size("x0_m", x.strides[-2]))), "base"))
    if tile.direct:
        right_at = b.let(ix.add(right_at, column), "right")
        step: Expr = b.size("x1_k", right.strides[-2])
    else:
        step = const(tile.columns)
        right_at = b.let(ix.add(right_at, ix.multiply(panel, ix.multiply(k, step))), "right")
    zero = Const(literal(0, dtype).value, dtype, tile.lanes)
    sums = [[b.let(zero, "c", mutable=True) for _ in range(tile.vectors)] for _ in range(tile.rows)]
    with b.loop(start, stop) as i:
        from_right = b.let(ix.add(right_at, ix.multiply(i, step)), "r")
        vectors = [
            b.let(Load("x1", ix.add(from_right, const(v * tile.lanes)), dtype, tile.lanes), "y")
            for v in range(tile.vectors)
        ]
        for r in range(tile.rows):
            one: Expr = Load("x0", ix.add(bases[r], ix.multiply(i, b.size("x0_k", x.strides[-1]))), stored)
            one = one if stored is dtype else Cast(one, dtype)
            wide = b.let(Cast(one, dtype, tile.lanes), "x")
            for v in range(tile.vectors):
                b.emit(Assign(sums[r][v], Apply("fma", (wide, vectors[v], sums[r][v]), dtype, tile.lanes)))
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
    steps.add(b.finish(loops, solo=steps.target.solo_rows), {"x0": x.slot, "x1": right.slot, "out": out})


def _batch_places(
    b: Builder, sizes: _Sizes, x: Layout, right: Layout, tile: _Tile, at: Expr
) -> tuple[Expr, Expr]:
    """Return where the operands of one product of the batch begin."""
    rank = len(sizes.batch)
    index = ix.unflatten(at, [b.size(f"b{k}", v) for k, v in enumerate(sizes.batch)])
    index = tuple(i if isinstance(i, Var | Const) else b.let(i, "b") for i in index)
    places = []
    for name, layout, inner in (("x0", x, 2), ("x1", right, 2 if tile.direct else 3)):
        place: Expr = ZERO
        if layout.late is not None:
            place = b.param(f"{name}_o", INDEX, Late("offset", layout.late, layout.offset))
        elif layout.offset:
            place = b.param(f"{name}_o", INDEX, layout.offset)
        lead = rank - (len(layout.shape) - inner)
        for k in range(lead, rank):
            if layout.shape[k - lead] != 1:
                place = ix.add(place, ix.multiply(index[k], b.size(f"{name}_b{k}", layout.strides[k - lead])))
        places.append(b.let(place, "at") if not isinstance(place, Var | Const) else place)
    return places[0], places[1]
