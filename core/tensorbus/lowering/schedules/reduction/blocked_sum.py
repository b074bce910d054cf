"""Blocked summation: elements add up in blocks, and these in blocks again, however long a sum is.

A sum that adds one element after the other loses as many units in its last place as there are elements, at
worst; in blocks of ``b``, on ``log_b(n)`` levels, ``b`` for each level (Higham, *Accuracy and Stability of
Numerical Algorithms*, 4.2). Narrow floats add up in float32, in the same blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Generic, NamedTuple, Protocol, TypeVar

from ...heuristics import Heuristics
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ONE, ZERO, const
from ...ir.loop_ir import Expr, Kind, Var
from .reducer import ProductReducer, Reducer, State

S = TypeVar("S")


class Span(NamedTuple):
    """The range of a loop: ``[start, stop)``, of ``most`` places at most."""

    start: Expr
    stop: Expr
    most: int


class Nest(NamedTuple):
    """A loop around others: what it goes over, and what is done with its index before these."""

    span: Span
    put: Callable[[Expr], None]


class AddRows(Protocol):
    """A function that adds rows to a state."""

    def __call__(self, row: Expr, count: int = 1) -> None:
        """Emit the addition of ``count`` rows from ``row`` on."""


def block_of(reducer: Reducer | ProductReducer, limits: Heuristics) -> int:
    """Return how many states are combined one after the other at most; 0: order is nothing to the result."""
    parts = reducer.parts if isinstance(reducer, ProductReducer) else (reducer,)
    rounds = any(
        part.op in ("sum", "logsumexp") and (part.dtypes[0].is_floating or part.dtypes[0].is_complex)
        for part in parts
    )
    return limits.sum_block if rounds else 0


@dataclass(slots=True, kw_only=True)
class BlockedState(Generic[S]):
    """The state that elements are added to, which is a block's own inside of loops that are longer.

    ``fresh`` emits a new state of nothing, ``join`` the addition of the second to the first. ``block``: see
    ``block_of``.
    """

    b: Builder
    block: int
    state: S
    fresh: Callable[[], S]
    join: Callable[[S, S], None]

    @classmethod
    def plain(cls, b: Builder, state: S) -> BlockedState[S]:
        """Return a state that all is added to in order."""
        return cls(b=b, block=0, state=state, fresh=lambda: state, join=lambda whole, part: None)

    @contextmanager
    def own(self) -> Iterator[None]:
        """Let what is emitted meanwhile add up alone, then join it to the rest."""
        whole, self.state = self.state, self.fresh()
        yield
        self.join(whole, self.state)
        self.state = whole

    def loop(
        self, span: Span, body: Callable[[Expr], None], *, step: int = 1, chain: int = 1,
        kind: Kind = "serial", prefix: str = "k",
    ) -> None:  # fmt: skip
        """Emit a loop over ``span``, ``step`` at a time; ``body(k)`` adds ``chain`` states in a row."""
        turns = -(-span.most // step)
        if not self.block or turns * chain <= self.block:
            with self.b.loop(span.start, span.stop, step=step, kind=kind, prefix=prefix) as k:
                body(k)
            return
        width = max(self.block // chain, 1)
        while width * self.block < turns:
            width *= self.block
        with _blocks(self.b, span, width * step) as part, self.own():
            if width == 1:
                body(part.start)
                return
            self.loop(part, body, step=step, chain=chain, kind=kind, prefix=prefix)

    def nest_rows(self, loops: Sequence[Nest], rows: Span, add: AddRows, unroll: int) -> None:
        """Emit loops around one over ``rows``, which takes ``unroll`` of them at a time while there are."""

        def add_rows() -> None:
            start, stop, most = rows
            if unroll > 1:
                whole = ix.multiply(ix.quotient(ix.subtract(stop, start), const(unroll)), const(unroll))
                even = self.b.let(ix.add(start, whole), "even")
                self.loop(Span(start, even, most), partial(add, count=unroll), step=unroll)
                start, most = even, unroll - 1
            self.loop(Span(start, stop, most), add)

        self.nest(loops, add_rows, max(rows.most // unroll + unroll - 1, 1))

    def nest(
        self, loops: Sequence[Nest], inner: Callable[[], None], chain: int, kind: Kind = "serial"
    ) -> None:
        """Emit loops around ``inner``, the outermost first; ``inner`` adds ``chain`` states in a row."""
        if not loops:
            inner()
            return
        (span, put), *rest = loops
        below = min(chain, self.block or chain) * prod(loop.span.most for loop in rest)
        alone = bool(self.block) and below > self.block

        def body(i: Expr) -> None:
            put(i)
            if alone:
                with self.own():
                    self.nest(rest, inner, chain, kind)
            else:
                self.nest(rest, inner, chain, kind)

        self.loop(span, body, chain=1 if alone else max(below, 1), kind=kind)


@contextmanager
def _blocks(b: Builder, span: Span, size: int) -> Iterator[Span]:
    """Emit a loop over blocks of ``span``; yields what a block goes over.

    Their size is a parameter: kernels that differ in it only are one.
    """
    length = b.size(f"w{len(b.params)}", size)
    count = ix.quotient(ix.add(ix.subtract(span.stop, span.start), ix.subtract(length, ONE)), length)
    with b.loop(ZERO, count, prefix="block") as number:
        start = b.let(ix.add(span.start, ix.multiply(number, length)), "start")
        yield Span(start, b.let(ix.minimum(ix.add(start, length), span.stop), "end"), size)


def registers(
    b: Builder, reducer: Reducer | ProductReducer, state: tuple[Var, ...], block: int
) -> BlockedState[tuple[Var, ...]]:
    """Return the blocked form of a state that lies in variables."""

    def fresh() -> tuple[Var, ...]:
        return tuple(b.let(e, "acc", mutable=True) for e in reducer.start())

    def join(whole: tuple[Var, ...], part: tuple[Var, ...]) -> None:
        for var, e in zip(whole, reducer.combine(b, whole, part), strict=True):
            b.assign(var, e)

    return BlockedState(b=b, block=block, state=state, fresh=fresh, join=join)


def pairwise(b: Builder, reducer: Reducer | ProductReducer, state: State, added: Sequence[State]) -> State:
    """Return the state with others, which are joined to each other by twos before."""
    while len(added) > 1:
        pairs = [reducer.combine(b, *added[k : k + 2]) for k in range(0, len(added) - 1, 2)]
        added = [*pairs, *added[2 * len(pairs) :]]
    return reducer.combine(b, state, added[0]) if added else state


Base = Callable[[], State]
"""Returns what a scan has come to so far: the state of a block, on top of those before it."""


def running(
    b: Builder, reducer: Reducer, first: State, span: Span, block: int,
    body: Callable[[Expr, tuple[Var, ...], Base], None], *, step: int = 1, prefix: str = "k",
) -> tuple[Var, ...]:  # fmt: skip
    """Emit the loop of a scan that begins with ``first``; return what all comes to, mutable.

    ``body(k, state, base)`` adds what is at ``k`` to ``state``; ``base()`` is what the scan has come to.
    """

    def local(state: State) -> tuple[Var, ...]:
        return tuple(b.let(e, "acc", mutable=True) for e in state)

    def block_sum(span: Span, before: State) -> tuple[Var, ...]:
        own, turns = local(reducer.start()), -(-span.most // step)
        if turns <= block:
            with b.loop(span.start, span.stop, step=step, prefix=prefix) as k:
                body(k, own, lambda: reducer.combine(b, before, own))
            return own
        width = block
        while width * block < turns:
            width *= block
        with _blocks(b, span, width * step) as block_span:
            base = tuple(b.let(e, "before") for e in reducer.combine(b, before, own))
            part = block_sum(block_span, base)
            for var, e in zip(own, reducer.combine(b, own, part), strict=True):
                b.assign(var, e)
        return own

    if not block or -(-span.most // step) <= block:
        state = local(first)
        with b.loop(span.start, span.stop, step=step, prefix=prefix) as k:
            body(k, state, lambda: state)
        return state
    begin = tuple(b.let(e, "before") for e in first)
    return local(reducer.combine(b, begin, block_sum(span, begin)))
