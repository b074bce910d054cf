"""The schedule of the derivative of ``flex_attention``: two passes, each of which makes the scores again.

A tile of queries goes over its keys and adds up the gradient of the queries; a tile of keys goes over its
queries and adds up those of keys and values. Nothing is added to from two sides, so that results do not
depend on time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ....backend_interface.graph import Node
from ....dtypes.definition import bool_
from ....ops.nn.attention_blocks import Attrs
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import LaunchList
from ...ir.loop_ir import INDEX, Apply, Expr, Load, Select, Var
from ...target import Target
from ..schedule import Schedule, ScheduleRequest, Verdict
from .forward import Problem, tile_range, tiles_of
from .score_code import BlockLoop, Numbers, ScoreCode, Side, negative_infinity
from .tile import Operand, Shape, TileCode, cast, tile_shape

_BEHIND: Final = "behind"
"""The buffer of what is subtracted from the gradients of shares: ``ops.nn.flex_attention_gradients``."""


class _Pass:
    """One of the two kernels: its operands, and what it does to a tile of scores."""

    def __init__(self, name: str, p: Problem, request: ScheduleRequest, shape: Shape) -> None:
        self.p, self.shape = p, shape
        self.grad, self.grad_lse, self.out, self.lse = request.root.inputs[:4]
        self.b = Builder(f"tb_attention_{name}_{p.width}_{p.deep}_{shape.wide}x{shape.deep}")
        self.code = TileCode(self.b, shape, p.dtype)
        self.slots: dict[str, int] = {}
        self.scores, self.shares = (self.b.array(p.dtype, shape.size) for _ in range(2))
        self.scale = self.b.param("scale", p.dtype, p.attrs.scale)
        self.program = ScoreCode(self.b, p.attrs, p.captured, derivative=True)
        self.queries, self.keys = self.b.size("queries", p.queries), self.b.size("keys", p.keys)

    def operand(self, name: str, node: Node, *lead: Expr) -> Operand:
        """Return an operand of this kernel."""
        operand = self.p.operand(self.b, name, node, lead)
        self.slots[name] = operand.slot
        return operand

    def line(self, batch: Expr, head: Expr, place: Expr) -> Expr:
        """Return where what belongs to a query lies in a packed buffer."""
        heads = ix.add(ix.multiply(batch, self.b.size("heads", self.p.heads)), head)
        return self.b.let(ix.add(ix.multiply(heads, self.queries), place), "line")

    def finite(self, logarithm: Expr) -> Expr:
        """Return the logarithm of a row, 0 for one that sees nothing: the shares are 0 then."""
        value = self.b.let(logarithm, "log")
        none = Apply("equal", (value, negative_infinity(self.p.dtype)), bool_)
        return self.b.let(Select(none, literal(0, self.p.dtype), value, self.p.dtype), "log")

    @contextmanager
    def elements(self, rows: Expr) -> Iterator[tuple[Expr, Expr]]:
        """Emit the loops over the elements of a tile."""
        with self.b.loop(ZERO, rows, prefix="j") as j, self.code.lane() as u:
            yield j, u

    def slope(self, j: Expr, u: Expr, log: Expr, behind: Expr, numbers: Numbers) -> None:
        """Turn a score into its share, and the gradient of the share into that of the score."""
        b, code, dtype = self.b, self.code, self.p.dtype
        score = b.let(code.get(self.scores, j, u), "s")
        new = self.program.score(score, numbers) if self.program.changes else score
        share = b.let(Apply("exp", (Apply("subtract", (new, log), dtype),), dtype), "share")
        away = Apply("subtract", (code.get(self.shares, j, u), behind), dtype)
        changed = b.let(Apply("multiply", (share, away), dtype), "changed")
        slope = self.program.derivative(changed, score, numbers)
        code.put(self.scores, j, u, share)
        code.put(self.shares, j, u, Apply("multiply", (slope, self.scale), dtype))

    def mask(self, j: Expr, u: Expr, numbers: Numbers) -> None:
        """Leave nothing of an element that does not count."""
        zero = literal(0, self.p.dtype)
        counts = self.b.let(self.program.counts(zero, numbers), "kept")
        for array in (self.scores, self.shares):
            value = self.b.let(self.code.get(array, j, u), "s")
            self.code.put(array, j, u, Select(counts, value, zero, self.p.dtype))

    def runs(self, start: Expr, end: Expr) -> Iterator[tuple[Expr, Expr]]:
        """Emit the loop over the tiles of a run of rows."""
        with self.b.loop(start, end, step=self.shape.deep, prefix="run") as first:
            yield first, self.b.let(ix.minimum(ix.subtract(end, first), const(self.shape.deep)), "rows")

    def store(self, name: str, array: str, width: int, first: Expr, stop: Expr, lines: Expr, length: Expr,
              node: Node) -> None:  # fmt: skip
        """Store the rows of a result: those of the tile's lanes that there are."""
        dtype = node.spec.dtype
        self.b.buffer(name, dtype, writes=True)
        with self.b.loop(ZERO, const(self.shape.wide), prefix="u") as u:
            place = self.b.let(ix.add(first, u), "place")
            with self.b.when(ix.less(place, stop)):
                at = self.b.let(ix.add(ix.multiply(lines, length), place), "line")
                with self.b.loop(ZERO, const(width), prefix="d") as d:
                    value = cast(self.code.get(array, d, u), dtype)
                    self.b.store(name, ix.add(ix.multiply(at, const(width)), d), value)


def _of_queries(p: Problem, request: ScheduleRequest, launches: LaunchList, behind: int) -> None:
    """Append the pass over keys: the gradient of the queries, and what the other pass subtracts."""
    shape = tile_shape(p.dtype, launches.target)
    t = _Pass("queries", p, request, shape)
    b, code = t.b, t.code
    tile, head, batch = (Var(f"i{k}", INDEX) for k in range(3))
    count, each = tiles_of(p.queries, p.blocks[0], shape.wide)
    own = p.own_head(b, head)
    query, grad, out = (
        t.operand(n, x, batch, head) for n, x in (("query", p.query), ("grad", t.grad), ("out", t.out))
    )
    lse, grad_lse = (t.operand(n, x, batch, head) for n, x in (("lse", t.lse), ("grad_lse", t.grad_lse)))
    key, value = (t.operand(n, x, batch, own) for n, x in (("key", p.key), ("value", p.value)))
    states = None if p.states is None else t.operand("states", p.states, batch, head)
    first, stop, block = tile_range(b, tile, each, p.blocks[0], shape.wide, t.queries)
    lines, grads, result = code.lines(p.width), code.lines(p.deep), code.lines(p.width)
    logs, subtracted = code.lines(1), code.lines(1)
    code.transpose(lines, p.width, query, first, t.queries, t.scale)
    code.transpose(grads, p.deep, grad, first, t.queries)
    code.fill(result, p.width, 0.0)
    b.buffer(_BEHIND, p.dtype, writes=True)
    with b.loop(ZERO, const(shape.wide), prefix="u") as u:
        place = b.let(ix.minimum(ix.add(first, u), ix.subtract(t.queries, ONE)), "place")
        code.put(logs, ZERO, u, t.finite(lse.load(lse.row(place), ZERO, p.dtype)))
        total = b.let(literal(0, p.dtype), "sum", mutable=True)
        base = out.row(place)
        with b.loop(ZERO, const(p.deep), prefix="d") as d:
            product = Apply("multiply", (code.get(grads, d, u), out.load(base, d, p.dtype)), p.dtype)
            b.assign(total, Apply("add", (total, product), p.dtype))
        less = grad_lse.load(grad_lse.row(place), ZERO, p.dtype)
        rest = b.let(Apply("subtract", (total, less), p.dtype), "rest")
        code.put(subtracted, ZERO, u, rest)
        with b.when(ix.less(ix.add(first, u), stop)):
            b.store(_BEHIND, t.line(batch, head, place), rest)

    def numbers(start: Expr, j: Expr, u: Expr) -> Numbers:
        place = ix.minimum(ix.add(first, u), ix.subtract(t.queries, ONE))
        return Numbers(batch, head, place, ix.add(start, j))

    def run_of_keys(begin: Expr, end: Expr, partial: Expr | None) -> None:
        for start, rows in t.runs(begin, end):
            code.products(t.scores, lines, p.width, key, start, rows, t.keys)
            code.products(t.shares, grads, p.deep, value, start, rows, t.keys)
            with t.elements(rows) as (j, u):
                log, less = code.get(logs, ZERO, u), code.get(subtracted, ZERO, u)
                t.slope(j, u, log, less, numbers(start, j, u))
            if partial is not None:
                with b.when(partial), t.elements(rows) as (j, u):
                    t.mask(j, u, numbers(start, j, u))
            code.accumulate(result, p.width, t.shares, key, start, rows)

    blocks = BlockLoop(b, states, p.attrs.program.masked, Side(p.keys, p.blocks[1]), "keys")
    blocks.loop(block, False, run_of_keys)
    heads = ix.add(ix.multiply(batch, b.size("heads", p.heads)), head)
    t.store("dquery", result, p.width, first, stop, heads, t.queries, p.query)
    loops = [
        (tile, b.size("tiles", count), count), (head, b.size("heads", p.heads), p.heads),
        (batch, b.size("batch", p.batch), p.batch),
    ]  # fmt: skip
    slots = {**t.slots, **t.program.used(), "dquery": request.results[0], _BEHIND: behind}
    launches.add(b.finish(loops, task=launches.target.row_per_task), slots)


def _of_keys(p: Problem, request: ScheduleRequest, launches: LaunchList, behind: int) -> None:
    """Append the pass over queries: the gradients of keys and values."""
    shape = tile_shape(p.dtype, launches.target)
    t = _Pass("keys", p, request, shape)
    b, code = t.b, t.code
    tile, own, own_batch = (Var(f"i{k}", INDEX) for k in range(3))
    count, each = tiles_of(p.keys, p.blocks[1], shape.wide)
    key, value = (t.operand(n, x, own_batch, own) for n, x in (("key", p.key), ("value", p.value)))
    first, stop, block = tile_range(b, tile, each, p.blocks[1], shape.wide, t.keys)
    lines, values = code.lines(p.width), code.lines(p.deep)
    of_keys, of_values = code.lines(p.width), code.lines(p.deep)
    code.transpose(lines, p.width, key, first, t.keys, t.scale)
    code.transpose(values, p.deep, value, first, t.keys)
    code.fill(of_keys, p.width, 0.0)
    code.fill(of_values, p.deep, 0.0)
    b.buffer(_BEHIND, p.dtype)

    def of_head(batch: Expr, head: Expr) -> None:
        query, grad, lse = (
            t.operand(n, x, batch, head) for n, x in (("query", p.query), ("grad", t.grad), ("lse", t.lse))
        )
        states = None if p.states is None else t.operand("states", p.states, batch, head)

        def numbers(at: Expr, u: Expr) -> Numbers:
            place = ix.minimum(ix.add(first, u), ix.subtract(t.keys, ONE))
            return Numbers(batch, head, at, place)

        def run_of_queries(begin: Expr, end: Expr, partial: Expr | None) -> None:
            for start, rows in t.runs(begin, end):
                code.products(t.scores, lines, p.width, query, start, rows, t.queries)
                code.products(t.shares, values, p.deep, grad, start, rows, t.queries)
                with b.loop(ZERO, rows, prefix="j") as j:
                    at = b.let(ix.add(start, j), "at")
                    log = t.finite(lse.load(lse.row(at), ZERO, p.dtype))
                    less = b.let(Load(_BEHIND, t.line(batch, head, at), p.dtype), "less")
                    with code.lane() as u:
                        t.slope(j, u, log, less, numbers(at, u))
                if partial is not None:
                    with b.when(partial), t.elements(rows) as (j, u):
                        t.mask(j, u, numbers(ix.add(start, j), u))
                code.accumulate(of_keys, p.width, t.shares, query, start, rows)
                code.accumulate(of_values, p.deep, t.scores, grad, start, rows)

        blocks = BlockLoop(b, states, p.attrs.program.masked, Side(p.queries, p.blocks[0]), "queries")
        blocks.loop(block, True, run_of_queries)

    def of_batch(batch: Expr) -> None:
        share = p.heads // p.own_heads
        if share == 1:
            of_head(batch, own)
            return
        with b.loop(ZERO, b.size("heads_share", share), prefix="h") as h:
            of_head(batch, b.let(ix.add(ix.multiply(own, b.size("heads_share", share)), h), "head"))

    if p.own_batch == p.batch:
        of_batch(own_batch)
    else:
        with b.loop(ZERO, b.size("batches", p.batch), prefix="batch") as each_batch:
            of_batch(each_batch)
    heads = ix.add(ix.multiply(own_batch, b.size("own_heads", p.own_heads)), own)
    t.store("dkey", of_keys, p.width, first, stop, heads, t.keys, p.key)
    t.store("dvalue", of_values, p.deep, first, stop, heads, t.keys, p.value)
    loops = [
        (tile, b.size("tiles", count), count), (own, b.size("own_heads", p.own_heads), p.own_heads),
        (own_batch, b.size("own_batch", p.own_batch), p.own_batch),
    ]  # fmt: skip
    results = {"dkey": request.results[1], "dvalue": request.results[2], _BEHIND: behind}
    launches.add(
        b.finish(loops, task=launches.target.row_per_task), {**t.slots, **t.program.used(), **results}
    )


def _gradients(request: ScheduleRequest, launches: LaunchList) -> None:
    root = request.root
    p = Problem(request, root.inputs[4:], Attrs(**root.attrs))
    behind = launches.temporary(p.batch * p.heads * p.queries, p.dtype)
    _of_queries(p, request, launches, behind)
    _of_keys(p, request, launches, behind)


def _applies(request: ScheduleRequest, target: Target) -> Verdict:
    return True if request.root.op == "flex_attention_gradients" else "it is no derivative"


FLEX_ATTENTION_GRADIENTS: Final = Schedule(
    name="two passes by tiles",
    about="a tile of queries goes over its keys, then a tile of keys over its queries; scores are made again",
    kinds=frozenset({"attention"}), applies=_applies, build=_gradients,
)  # fmt: skip
