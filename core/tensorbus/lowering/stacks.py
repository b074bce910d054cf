"""The schedule of sums down columns for light items: each takes a packet of columns and a stretch of rows.

What it finds of each column is kept in registers. Where there is more than one stretch, a second kernel joins
theirs, with neighbouring items for the stretches of one result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from . import index as ix
from .builder import Builder
from .canonical import Fused
from .families import REDUCTIONS
from .index import ONE, ZERO, const
from .ir import INDEX, Apply, Array, Barrier, Expr, Load, Select, Var
from .job import Steps, spread
from .outputs import domain_lengths, same_slots
from .packets import LEAST, packet_of, packets
from .plan import COSTLY
from .reducer import State
from .several import Parts
from .target import Target

ROWS = 4
"""How many rows are asked for before the first is added; twice as many where little is computed of them."""
FEWEST, MOST = 16, 1024
"""Rows of a stretch."""
TURNS = 8
"""How many states of a result an item reads before it adds the first."""
TEAM, SIDE = 256, 8
"""How many items join stretches together, and for how many results side by side."""


def is_stack_of_rows(fused: Fused, target: Target) -> bool:
    """Return whether reductions go over one axis of a group that is not the last, in packets of the last."""
    domain, over = fused.domain, fused.reduced
    if target.swap < SIDE or len(over) != 1 or len(domain) - 1 in over or prod(domain) < LEAST:
        return False
    kinds = [n.inputs[0].spec.dtype for n in fused.graph if n.op in REDUCTIONS]
    return packet_of(target, domain[-1], kinds) > 1


def lower_stack_of_rows(fused: Fused, steps: Steps) -> None:
    """Append the launches of a group whose reductions do not wait for each other, all over one axis."""
    _Stack(fused, steps).lower()


class _Stack(Parts):
    def lower(self) -> None:
        fused, target = self.fused, self.steps.target
        domain, (axis,) = fused.domain, fused.reduced
        kinds = [n.inputs[0].spec.dtype for n in self.reductions]
        read = [n.spec.dtype for n in fused.graph if n.op == "input" and n.spec.shape == domain]
        lanes = packet_of(target, domain[-1], [*kinds, *read])
        places = prod(domain[k] for k in self.kept) // lanes
        rows = domain[axis]
        busy = any(n.op in COSTLY for n in fused.graph)
        wanted = target.items * (3 if busy else 2) // 4  # functions take time beside the memory's
        count = max(min(wanted // places, rows // FEWEST), -(-rows // MOST), 1)
        ahead = ROWS // 2 if busy else ROWS if self.full else 2 * ROWS
        size = -(-rows // (count * ahead)) * ahead  # what is left behind whole turns waits row by row
        count = -(-rows // size)
        b = Builder(self.name)
        pull, slots = fused.puller(b)
        lengths = domain_lengths(b, pull, fused)
        packs = domain[-1] // lanes
        outer, loops = spread(
            b, [b.size("chunks", count), *(lengths[k] for k in self.kept[:-1]), b.size("packets", packs)],
            [count, *(domain[k] for k in self.kept[:-1]), packs],
        )  # fmt: skip
        first = b.let(ix.multiply(outer[-1], const(lanes)), "first")
        index: list[Expr] = [ZERO] * len(domain)
        for k, i in zip(self.kept[:-1], outer[1:-1], strict=True):
            index[k] = i
        arrays = [b.array(d, lanes) for d in self.reducer.dtypes]

        def state(u: Expr) -> State:
            return tuple(Load(a, u, d) for a, d in zip(arrays, self.reducer.dtypes, strict=True))

        def keep(u: Expr, found: State) -> None:
            for a, e in zip(arrays, found, strict=True):
                b.store(a, u, e)

        def adding(row: Expr) -> Callable[[Expr], None]:
            def one(u: Expr) -> None:
                index[axis], index[-1] = row, ix.add(first, u)
                with pull.scope():
                    element = self.element(b, pull, tuple(index), lengths)
                    keep(u, b.all(self.reducer.follow(b, state(u), element)))

            return one

        start: Expr = ZERO
        stop = lengths[axis]
        if count > 1:
            step = b.size("chunk", size)
            start = b.let(ix.multiply(outer[0], step), "start")
            stop = b.let(ix.minimum(ix.add(start, step), stop), "stop")
        with b.loop(ZERO, const(lanes), kind="unroll", prefix="u") as u:
            keep(u, self.reducer.first(start))
        whole = ix.multiply(ix.quotient(ix.subtract(stop, start), const(ahead)), const(ahead))
        even = b.let(ix.add(start, whole), "even")
        with b.loop(start, even, step=ahead) as row:
            packets(b, lanes, *[adding(ix.add(row, const(k))) for k in range(ahead)])
        with b.loop(even, stop) as row:
            packets(b, lanes, adding(row))
        outs = {f"full{k}": o.slot for k, o in enumerate(self.full)}
        if count == 1:

            def finish(u: Expr) -> None:
                with pull.scope():
                    found = b.all(state(u))
                    self.end(b, pull, (*outer[1:-1], ix.add(first, u)), lengths, found)

            packets(b, lanes, finish)
            self.steps.add(b.finish(loops), {**slots, **self.outs()}, same_slots(fused))
            return
        parts = self.temporaries(count)
        names = [b.buffer(name, d, writes=True) for name, d in zip(parts, self.reducer.dtypes, strict=True)]
        numbers = [b.size("chunks", count), *(lengths[k] for k in self.kept)]

        def part(u: Expr) -> None:
            with pull.scope():
                place = b.let(ix.flatten((*outer[:-1], ix.add(first, u)), numbers), "at")
                for name, e in zip(names, b.all(state(u)), strict=True):
                    b.store(name, place, e)

        packets(b, lanes, part)
        self.steps.add(b.finish(loops), {**slots, **parts, **outs}, same_slots(fused))
        self._rest(parts, count)

    def _rest(self, parts: dict[str, int], count: int) -> None:
        """Append what joins the stretches of each result, and makes the outputs of it.

        A group takes ``SIDE`` results, which lie side by side, and shares their stretches among its items.
        """
        b, swap = Builder(f"{self.name}_rest"), self.steps.target.swap
        pull, slots = self.fused.puller(b)
        lengths = domain_lengths(b, pull, self.fused)
        total = prod(self.fused.domain[k] for k in self.kept)
        item, some = Var("i0", INDEX), Var("i1", INDEX)
        columns, stretches = b.size("places", total), b.size("chunks", count)
        column = b.let(ix.modulo(item, const(SIDE)), "column")
        place = b.let(ix.add(ix.multiply(some, const(SIDE)), column), "place")
        here = b.let(ix.minimum(place, ix.subtract(columns, ONE)), "here")
        walkers = TEAM // SIDE
        first = b.let(ix.quotient(item, const(SIDE)), "walker")
        found: State = tuple(b.let(e, "acc", mutable=True) for e in self.reducer.start())
        last = ix.subtract(stretches, ONE)
        each = min(TURNS, -(-count // walkers))
        with b.loop(ZERO, b.size("turns", -(-count // (each * walkers))), prefix="turn") as turn:
            begin = b.let(ix.add(ix.multiply(turn, const(each * walkers)), first), "first")
            read = []
            for number in [ix.add(begin, const(k * walkers)) for k in range(each)]:
                at = b.let(ix.add(ix.multiply(ix.minimum(number, last), columns), here), "at")
                loads = [Load(b.buffer(n, d), at, d) for n, d in zip(parts, self.reducer.dtypes, strict=True)]
                read.append((number, tuple([b.let(e, "part") for e in loads])))
            for number, new in read:  # no read waits for a sum, or for a turn that others have not
                inside = b.let(ix.less(number, stretches), "inside")
                for var, e in zip(found, b.all(self.reducer.combine(b, found, new)), strict=True):
                    b.assign(var, Select(inside, e, var, e.dtype))  # type: ignore[arg-type]
        apart = swap // 2
        while apart >= SIDE:
            other = tuple(b.let(Apply(f"swap_{apart}", (e,), e.dtype), "other") for e in found)
            found = tuple(b.let(e, "all") for e in self.reducer.combine(b, found, other))
            apart //= 2
        names = [b.fresh("team") for _ in found]
        warp = b.let(ix.quotient(item, const(swap)), "warp")
        with b.when(ix.less(ix.modulo(item, const(swap)), const(SIDE))):
            for name, own in zip(names, found, strict=True):
                b.store(name, ix.add(ix.multiply(warp, const(SIDE)), column), own)
        b.emit(Barrier())
        with b.when(ix.less(item, const(SIDE))), b.when(ix.less(place, columns)):
            joined: State | None = None
            for k in range(TEAM // swap):
                kept = ix.add(column, const(k * SIDE))
                part = tuple(Load(n, kept, d) for n, d in zip(names, self.reducer.dtypes, strict=True))
                joined = part if joined is None else b.all(self.reducer.combine(b, joined, part))
            assert joined is not None
            self.end(b, pull, tuple(ix.unflatten(place, [lengths[k] for k in self.kept])), lengths, joined)
        b.emit(Barrier())  # before the next results' values come
        groups = -(-total // SIDE)
        made = b.finish([(item, const(TEAM), TEAM), (some, b.size("groups", groups), groups)])
        arrays = [
            Array(name, d, TEAM // swap * SIDE, "shared")
            for name, d in zip(names, self.reducer.dtypes, strict=True)
        ]
        made = replace(made, kernel=replace(made.kernel, body=(*arrays, *made.kernel.body), group=TEAM))
        rows = {f"out{k}" if k else "out": o.slot for k, o in enumerate(self.rows)}
        self.steps.add(made, {**slots, **parts, **rows}, same_slots(self.fused, full=False))
