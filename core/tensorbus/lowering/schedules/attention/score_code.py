"""A score program in a kernel, and the loop over the blocks of a mask that are not empty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....backend_interface.graph import Graph, Node
from ....dtypes.definition import DType, bool_, int32
from ....ops.nn.attention_blocks import EMPTY, PARTIAL, Attrs
from ....ops.nn.score_program import LEAD
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ZERO, const
from ...ir.inline import BufferRead, Inliner
from ...ir.layout import Layout
from ...ir.loop_ir import Apply, Cast, Const, Expr, Load
from .tile import Operand


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a score: of its batch, its head, its query and its key."""

    batch: Expr
    head: Expr
    query: Expr
    key: Expr


class ScoreCode:
    """Emits a program's values: of a score, of whether it counts, and of its derivative."""

    def __init__(
        self, b: Builder, attrs: Attrs, captured: Sequence[tuple[Node, Layout]], derivative: bool = False,
        lengths: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Read what is ``captured`` where it lies; with ``derivative`` there is more to it than the score.

        ``lengths`` are those that the numbers of a score are below: what is indexed by such a number, and as
        long, is read unchecked.
        """
        self.b, self.program = b, attrs.program
        graph = self.program.graph
        backward = self.program.derivative if derivative else None
        outputs = (*graph.outputs, *(() if backward is None else backward.outputs[:1]))
        self.slots: dict[str, int] = {}
        leaves: dict[int, BufferRead] = {}
        for n, (inner, (_, layout)) in enumerate(zip(graph.inputs[LEAD:], captured, strict=True)):
            name = f"c{n}"
            self.slots[name] = layout.slot
            leaves[id(inner)] = BufferRead(buffer=name, strides=f"{name}_", offset=f"{name}_o", layout=layout)
        self._inliner = Inliner(b, Graph(inputs=(), outputs=outputs), leaves, {})
        for inner, length in zip(graph.inputs[1:LEAD], lengths, strict=False):
            self._inliner.bound(inner, length)

    def used(self) -> dict[str, int]:
        """Return the slots of the buffers that were read."""
        return {name: slot for name, slot in self.slots.items() if name in self.b.buffers}

    @property
    def changes(self) -> bool:
        """Whether the program changes scores at all."""
        return self.program.graph.outputs[0] is not self.program.graph.inputs[0]

    def score(self, score: Expr, numbers: Numbers) -> Expr:
        """Return the new score."""
        return self._value(self.program.graph.outputs[0], score, numbers)

    def counts(self, score: Expr, numbers: Numbers) -> Expr:
        """Return whether the score counts."""
        if not self.program.masked:
            return Const(True, bool_)
        return self._value(self.program.graph.outputs[1], score, numbers)

    def derivative(self, gradient: Expr, score: Expr, numbers: Numbers) -> Expr:
        """Return the gradient of the score, given that of the new one."""
        graph = self.program.derivative
        assert graph is not None
        if not self.changes:
            return gradient
        return self._value(graph.outputs[0], score, numbers, (graph.inputs[0], gradient))

    def _value(
        self, node: Node, score: Expr, numbers: Numbers, more: tuple[Node, Expr] | None = None
    ) -> Expr:
        inputs, inliner = self.program.graph.inputs, self._inliner
        known = (numbers.batch, numbers.head, numbers.query, numbers.key)
        with inliner.scope():
            inliner.bind(inputs[0], (), score)
            for inner, number in zip(inputs[1:LEAD], known, strict=True):
                inliner.bind(inner, (), self.b.let(Cast(number, int32), "n"))
            if more is not None:
                inliner.bind(more[0], (), more[1])
            value = inliner.value(node, ())
            return self.b.let(value, "s")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the scores: how many there are, and how many of them a block of the mask has, if any."""

    length: int
    block: int


class BlockLoop:
    """The runs of rows that a tile has to do with: all of them, or those of the blocks that are not empty."""

    def __init__(self, b: Builder, states: Operand | None, masked: bool, rows: Side, role: str) -> None:
        self.b, self.states, self.masked, self.rows, self.role = b, states, masked, rows, role

    def loop(
        self, block: Expr, of_keys: bool, visit: Callable[[Expr, Expr, Expr | None], None],
        part: tuple[Expr, int] | None = None,
    ) -> None:  # fmt: skip
        """Emit ``visit(start, stop, partial)`` for each run; ``block`` is the tile's own on the other side.

        ``of_keys``: the tile is of keys, and the runs of queries. ``partial`` says whether the mask decides;
        None: it does not. With ``part``, its number and length, the runs are those of that part of the rows,
        which is of whole blocks.
        """
        b = self.b
        length = b.size(f"{self.role}_length", self.rows.length)
        if self.states is None:
            first: Expr = ZERO
            last = length
            if part is not None:
                first = b.let(ix.multiply(part[0], b.size("part", part[1])), "first")
                last = b.let(ix.minimum(ix.add(first, b.size("part", part[1])), length), "last")
            visit(first, last, Const(True, bool_) if self.masked else None)
            return
        blocks = -(-self.rows.length // self.rows.block)
        begin: Expr = ZERO
        end = b.size(f"{self.role}_blocks", blocks)
        if part is not None:
            each = b.size("part_blocks", part[1] // self.rows.block)
            begin = b.let(ix.multiply(part[0], each), "begin")
            end = b.let(ix.minimum(ix.add(begin, each), end), "end")
        with b.loop(begin, end, prefix="block") as n:
            row, column = (n, block) if of_keys else (block, n)
            place = ix.add(self.states.row(row), ix.multiply(column, self.states.steps[1]))
            state = b.let(Cast(Load(self.states.name, place, self.states.dtype), int32), "state")
            with b.when(Apply("not_equal", (state, Const(EMPTY, int32)), bool_)):
                size = const(self.rows.block)
                start = b.let(ix.multiply(n, size), "start")
                stop = b.let(ix.minimum(ix.add(start, size), length), "stop")
                partial = b.let(Apply("equal", (state, Const(PARTIAL, int32)), bool_), "partial")
                visit(start, stop, partial if self.masked else None)


def negative_infinity(dtype: DType) -> Const:
    """Return the score of what does not count."""
    return Const(float("-inf"), dtype)
