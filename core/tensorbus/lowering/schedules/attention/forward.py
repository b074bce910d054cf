"""The schedule of ``flex_attention``: a tile of queries goes over its keys, and has its softmax with it.

The online softmax of Milakov and Gimelshein (2018), by tiles as of Dao et al. (2022): scores are made in
registers, changed and masked where they lie, and used at once. Blocks that the mask says are empty are not
looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....backend_interface.graph import Node
from ....dtypes.definition import DType, bool_
from ....ops.nn.attention_blocks import Attrs
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import LaunchList
from ...ir.layout import Layout
from ...ir.loop_ir import INDEX, Apply, Expr, Select, Var
from ...op_sets import accumulator
from ...target import Target
from ..schedule import Schedule, ScheduleRequest, Verdict
from .score_code import BlockLoop, Numbers, ScoreCode, Side, negative_infinity
from .tile import Operand, TileCode, cast, tile_shape


class Problem:
    """A call of attention: its operands, where they lie, and its lengths."""

    def __init__(self, request: ScheduleRequest, operands: Sequence[Node], attrs: Attrs) -> None:
        self.attrs = attrs
        self.where = request.where
        self.query, self.key, self.value, *extra = operands
        self.states = extra[0] if attrs.block_size is not None else None
        self.captured = [(x, self.layout(x)) for x in (extra if attrs.block_size is None else extra[1:])]
        self.batch, self.heads, self.queries, width = self.query.spec.shape
        self.width = int(width)  # arrays are as wide: an open length becomes a known one
        self.own_batch, self.own_heads, self.keys, _ = self.key.spec.shape
        self.deep = int(self.value.spec.shape[3])
        self.dtype: DType = accumulator(self.query.spec.dtype)
        self.blocks = attrs.block_size or (0, 0)

    def layout(self, node: Node) -> Layout:
        """Return where a value lies."""
        return self.where[id(node)]

    def operand(self, b: Builder, name: str, node: Node, lead: Sequence[Expr]) -> Operand:
        """Return an operand of a kernel: the rows of a batch and a head."""
        return Operand(b, name, node, self.layout(node), lead)

    def own_head(self, b: Builder, head: Expr) -> Expr:
        """Return which head of keys a head of queries has."""
        share = self.heads // self.own_heads if self.own_heads else 1
        return head if share == 1 else b.let(ix.quotient(head, b.size("heads_share", share)), "own")


def tiles_of(length: int, block: int, wide: int) -> tuple[int, int]:
    """Return how many tiles there are along one side, and how many of them in a block of the mask.

    No tile reaches over the end of a block: one state is that of all of it.
    """
    if not block:
        return -(-length // wide), 0
    each = -(-min(block, max(length, 1)) // wide)
    return length // block * each + -(-(length % block) // wide), each


def tile_range(
    b: Builder, tile: Expr, each: int, block: int, wide: int, limit: Expr
) -> tuple[Expr, Expr, Expr]:  # fmt: skip
    """Return the first lane's place, where those of its block end, and the number of the block."""
    if not block:
        first = b.let(ix.multiply(tile, const(wide)), "first")
        return first, limit, ZERO
    number = b.let(ix.quotient(tile, b.size("tiles_each", each)), "block")
    within = ix.modulo(tile, b.size("tiles_each", each))
    begin = ix.multiply(number, b.size("block_size", block))
    first = b.let(ix.add(begin, ix.multiply(within, const(wide))), "first")
    stop = b.let(ix.minimum(ix.add(begin, b.size("block_size", block)), limit), "stop")
    return first, stop, number


def _forward(request: ScheduleRequest, launches: LaunchList) -> None:
    p = Problem(request, request.root.inputs, Attrs(**request.root.attrs))
    out, lse = request.results
    emit_forward(p, launches, {"out": out, "lse": lse})


@dataclass(frozen=True, slots=True)
class KeyParts:
    """``count`` parts of the keys, each of ``length`` of them, which are gone over side by side."""

    count: int
    length: int


class _OnlineSoftmax:
    """The running maximum and sum over the keys so far, for each lane of a tile of queries.

    ``result`` is the sum of values by the exponentials of their scores less ``highest``, not divided by
    ``total``, the sum of these exponentials. ``scores`` are those of the next keys.
    """

    def __init__(self, code: TileCode, deep: int) -> None:
        self.code, self.deep, self.dtype = code, deep, code.dtype
        self.result, self.scores = code.lines(deep), code.b.array(code.dtype, code.shape.size)
        self.highest, self.total, self.rescale = code.lines(1), code.lines(1), code.lines(1)

    def start(self) -> None:
        """Emit the state of no keys."""
        self.code.fill(self.result, self.deep, 0.0)
        self.code.fill(self.total, 1, 0.0)
        self.code.fill(self.highest, 1, float("-inf"))

    def add(self, value: Operand, start: Expr, rows: Expr) -> None:
        """Emit the state with ``rows`` keys more, from ``start`` on, whose scores are made."""
        b, code, dtype = self.code.b, self.code, self.dtype
        peak, top = code.lines(1), code.lines(1)
        with code.lane() as u:
            code.put(peak, ZERO, u, code.get(self.highest, ZERO, u))
        with b.loop(ZERO, rows, prefix="j") as j, code.lane() as u:
            both = (code.get(peak, ZERO, u), code.get(self.scores, j, u))
            code.put(peak, ZERO, u, Apply("maximum", both, dtype))
        with code.lane() as u:
            high = b.let(code.get(peak, ZERO, u), "high")
            masked = Apply("equal", (high, negative_infinity(dtype)), bool_)
            base = b.let(Select(masked, literal(0, dtype), high, dtype), "top")
            code.put(top, ZERO, u, base)
            less = b.let(Apply("subtract", (code.get(self.highest, ZERO, u), base), dtype), "less")
            rescale = b.let(Apply("exp", (less,), dtype), "rescale")
            code.put(self.rescale, ZERO, u, rescale)
            code.put(self.total, ZERO, u, Apply("multiply", (code.get(self.total, ZERO, u), rescale), dtype))
            code.put(self.highest, ZERO, u, high)
        with b.loop(ZERO, rows, prefix="j") as j, code.lane() as u:
            less = b.let(
                Apply("subtract", (code.get(self.scores, j, u), code.get(top, ZERO, u)), dtype), "less"
            )
            share = b.let(Apply("exp", (less,), dtype), "share")
            code.put(self.scores, j, u, share)
            code.put(self.total, ZERO, u, Apply("add", (code.get(self.total, ZERO, u), share), dtype))
        code.accumulate(self.result, self.deep, self.scores, value, start, rows, self.rescale)

    def store_part(self, at: Expr, u: Expr) -> None:
        """Emit the stores of the state of lane ``u``, row ``at`` of all parts."""
        b, code = self.code.b, self.code
        with b.loop(ZERO, const(self.deep), prefix="d") as d:
            b.store("partial", ix.add(ix.multiply(at, const(self.deep)), d), code.get(self.result, d, u))
        b.store("sum", at, code.get(self.total, ZERO, u))
        b.store("top", at, code.get(self.highest, ZERO, u))

    def store(self, at: Expr, u: Expr, out: DType) -> None:
        """Emit the stores of attention and its logarithm for lane ``u``, row ``at`` of them."""
        b, code, dtype = self.code.b, self.code, self.dtype
        total = b.let(code.get(self.total, ZERO, u), "sum")
        masked = b.let(Apply("equal", (total, literal(0, dtype)), bool_), "dead")
        by = b.let(Select(masked, literal(1, dtype), total, dtype), "by")
        with b.loop(ZERO, const(self.deep), prefix="d") as d:
            share = Apply("divide", (code.get(self.result, d, u), by), dtype)
            b.store("out", ix.add(ix.multiply(at, const(self.deep)), d), cast(share, out))
        logs = Apply("add", (code.get(self.highest, ZERO, u), Apply("log", (by,), dtype)), dtype)
        b.store("lse", at, Select(masked, negative_infinity(dtype), b.let(logs, "log"), dtype))


@dataclass(frozen=True, slots=True)
class _Grid:
    """The parallel loops, and which tile, part of the keys, head and batch is a work-item's."""

    tile: Expr
    part: Expr
    head: Expr
    batch: Expr
    loops: list[tuple[Var, Expr, int]]

    @classmethod
    def of(cls, b: Builder, p: Problem, tiles: int, parts: KeyParts | None) -> _Grid:
        """Return the grid of a problem."""
        first, second, batch = (Var(f"i{k}", INDEX) for k in range(3))
        if parts is None:
            loops = [
                (first, b.size("tiles", tiles), tiles), (second, b.size("heads", p.heads), p.heads),
                (batch, b.size("batch", p.batch), p.batch),
            ]  # fmt: skip
            return cls(first, ZERO, second, batch, loops)
        # Heads that share keys are neighbours.
        loops = [
            (first, b.size("heads", p.heads), p.heads),
            (second, b.size("numbers", tiles * parts.count), tiles * parts.count),
            (batch, b.size("batch", p.batch), p.batch),
        ]  # fmt: skip
        part = b.let(ix.quotient(second, b.size("tiles", tiles)), "part")
        return cls(b.let(ix.modulo(second, b.size("tiles", tiles)), "tile"), part, first, batch, loops)


def emit_forward(
    p: Problem, launches: LaunchList, results: Mapping[str, int], parts: KeyParts | None = None
) -> None:
    """Append the kernel that goes over the keys; ``results`` are the slots of what it stores.

    Of a part of the keys that is what its exponentials come to, not divided yet: the sum of their products
    with values, their sum, and the score that they are of (``partial``, ``sum``, ``top``).
    """
    shape = tile_shape(p.dtype, launches.target)
    name = f"tb_attention_{p.width}_{p.deep}_{shape.wide}x{shape.deep}"
    b = Builder(name if parts is None else f"{name}_parts")
    code = TileCode(b, shape, p.dtype)
    count, each = tiles_of(p.queries, p.blocks[0], shape.wide)
    if not count * p.heads * p.batch:
        return
    grid = _Grid.of(b, p, count, parts)
    head, batch = grid.head, grid.batch
    own = p.own_head(b, head)
    query = p.operand(b, "query", p.query, (batch, head))
    key, value = (p.operand(b, n, x, (batch, own)) for n, x in (("key", p.key), ("value", p.value)))
    states = None if p.states is None else p.operand(b, "states", p.states, (batch, head))
    limit = b.size("queries", p.queries)
    first, stop, block = tile_range(b, grid.tile, each, p.blocks[0], shape.wide, limit)
    lines, softmax = code.lines(p.width), _OnlineSoftmax(code, p.deep)
    scale = b.param("scale", p.dtype, p.attrs.scale)
    code.transpose(lines, p.width, query, first, limit, scale)
    softmax.start()
    program = ScoreCode(b, p.attrs, p.captured)

    def numbers(start: Expr, j: Expr, u: Expr) -> Numbers:
        place = ix.minimum(ix.add(first, u), ix.subtract(limit, ONE))
        return Numbers(batch, head, place, ix.add(start, j))

    def tile_of_keys(start: Expr, rows: Expr, partial: Expr | None) -> None:
        scores = softmax.scores
        code.products(scores, lines, p.width, key, start, rows, b.size("keys", p.keys))
        if program.changes:
            with b.loop(ZERO, rows, prefix="j") as j, code.lane() as u:
                old = b.let(code.get(scores, j, u), "s")
                code.put(scores, j, u, program.score(old, numbers(start, j, u)))
        if partial is not None:
            with b.when(partial), b.loop(ZERO, rows, prefix="j") as j, code.lane() as u:
                old = b.let(code.get(scores, j, u), "s")
                counts = program.counts(old, numbers(start, j, u))
                code.put(scores, j, u, Select(counts, old, negative_infinity(p.dtype), p.dtype))
        softmax.add(value, start, rows)

    def run_of_keys(start: Expr, end: Expr, partial: Expr | None) -> None:
        with b.loop(start, end, step=shape.deep, prefix="key") as k:
            rows = b.let(ix.minimum(ix.subtract(end, k), const(shape.deep)), "rows")
            tile_of_keys(k, rows, partial)

    blocks = BlockLoop(b, states, p.attrs.program.masked, Side(p.keys, p.blocks[1]), "keys")
    blocks.loop(block, False, run_of_keys, None if parts is None else (grid.part, parts.length))
    for result in results:
        b.buffer(result, p.query.spec.dtype if result == "out" else p.dtype, writes=True)
    with b.loop(ZERO, const(shape.wide), prefix="u") as u:
        place = b.let(ix.add(first, u), "place")
        with b.when(ix.less(place, stop)):
            line = batch
            if parts is not None:
                line = ix.add(ix.multiply(grid.part, b.size("batch", p.batch)), batch)
            line = ix.add(ix.multiply(line, b.size("heads", p.heads)), head)
            at = b.let(ix.add(ix.multiply(line, limit), place), "line")
            if parts is None:
                softmax.store(at, u, p.query.spec.dtype)
            else:
                softmax.store_part(at, u)
    slots = {o.name: o.slot for o in (query, key, value, states) if o is not None}
    task = parts is None and launches.target.row_per_task
    launches.add(b.finish(grid.loops, task=task), {**slots, **program.used(), **results})


def _applies(request: ScheduleRequest, target: Target) -> Verdict:
    return True if request.root.op == "flex_attention" else "it is the derivative"


FLEX_ATTENTION: Final = Schedule(
    name="online softmax by tiles",
    about="a tile of queries for each task or work-item, which goes over the blocks of keys that count",
    kinds=frozenset({"attention"}), applies=_applies, build=_forward,
)  # fmt: skip
