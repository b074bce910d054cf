"""Reading a graph element by element: the expression of a node's value at an index.

A node is inlined where it is needed: elementwise ops apply to their operands at the same index, movement ops
read theirs at another index, and buffer reads are loads. So any chain of them becomes part of the kernel
that uses it, with no buffer in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Final

from ...backend_interface.graph import Graph, Node
from ...dtypes.definition import NARROW, bool_, float32, uint64
from ...errors import TensorbusError
from ..op_sets import ELEMENTWISE, PHILOX
from . import index_expr as ix
from .builder import Builder, RuntimeArg, fit, literal
from .dim_symbols import Symbols
from .layout import Layout, factor_groups
from .loop_ir import INDEX, Apply, Assign, Cast, Const, Expr, If, Load, Report, Select, Var

Index = tuple[Expr, ...]
ERRORS: Final = "errors"
_MAX_NESTED: Final = 16
"""How deep expressions nest before a part of them has a name: passes over code, and compilers, recurse into
them. It bounds that recursion, and is no threshold of speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRead:
    """A node whose elements lie in ``buffer``; ``strides`` and ``offset`` name the parameters.

    Views of one buffer with the same strides share parameters.
    """

    buffer: str
    strides: str
    offset: str
    layout: Layout


class Inliner:
    """Emits, into a builder, the values of one group of nodes."""

    def __init__(
        self,
        builder: Builder,
        graph: Graph,
        leaves: Mapping[int, BufferRead],
        scalars: Mapping[int, int],
        sized: bool = False,
    ) -> None:
        """Read ``leaves`` (by node id) and ``scalars`` (operand numbers); ``sized`` as in ``KernelTask``."""
        self.builder = builder
        self.symbols = Symbols(graph)
        self._leaves = dict(leaves)
        self._scalars = scalars
        self._sized = sized
        self._memo: list[dict[tuple[int, Index], Expr]] = [{}]
        self._below: dict[int, int] = {}
        self._depth: dict[Expr, int] = {}
        self._numbers = {id(node): k for k, node in enumerate(graph)}
        self._uses: dict[int, int] = {}
        for node in graph:
            for operand in node.inputs:
                self._uses[id(operand)] = self._uses.get(id(operand), 0) + 1
        for node in graph.outputs:
            self._uses[id(node)] = self._uses.get(id(node), 0) + 1

    def length(self, node: Node, axis: int) -> Expr:
        """Return the length of an axis of a node."""
        return self.builder.size(self.symbols.name(node, axis), node.spec.shape[axis])

    def lengths(self, node: Node) -> tuple[Expr, ...]:
        """Return the lengths of all axes of a node."""
        return tuple(self.length(node, k) for k in range(len(node.spec.shape)))

    def value(self, node: Node, index: Index) -> Expr:
        """Return the value of ``node`` at ``index``, one expression an axis."""
        if node.op in ELEMENTWISE:
            for operand in self._chain(node, index):
                self._single(operand, index)
        return self._single(node, index)

    def _chain(self, node: Node, index: Index) -> list[Node]:
        """Return the elementwise nodes behind ``node`` at the same index, operands first.

        Chains can be thousands of nodes long: Python's stack is no place for them.
        """
        order: list[Node] = []
        seen: set[int] = set()
        stack = [(node, False)]
        while stack:
            at, ready = stack.pop()
            if ready:
                order.append(at)
                continue
            if id(at) in seen or at.op not in ELEMENTWISE or at.spec.shape != node.spec.shape:
                continue
            if id(at) in self._leaves or any((id(at), index) in known for known in self._memo):
                continue
            seen.add(id(at))
            stack.append((at, True))
            stack.extend((operand, False) for operand in reversed(at.inputs))
        return order[:-1]

    def _single(self, node: Node, index: Index) -> Expr:
        key = (id(node), index)
        for known in reversed(self._memo):
            if key in known:
                return known[key]
        result = self._compute(node, index)
        if not isinstance(result, Var | Const) and (
            self._uses.get(id(node), 0) > 1 or _depth(result) > _MAX_NESTED
        ):
            result = self.builder.let(result)
        self._memo[-1][key] = result
        return result

    def bind(self, node: Node, index: Index, value: Expr) -> None:
        """Say what the value of ``node`` at ``index`` is, from here to the end of the scope."""
        self._memo[-1][(id(node), index)] = value

    def bound(self, node: Node, limit: int) -> None:
        """Say that the values of an integer node are from 0 on and below a limit."""
        self._below[id(node)] = limit

    def read(self, node: Node, leaf: BufferRead) -> None:
        """Read ``node`` from a buffer from here on."""
        self._leaves[id(node)] = leaf

    def at(self, node: Node, index: Index) -> Expr:
        """Return the value at an element of a domain of which ``node`` may have fewer: axes of 1, or none."""
        lead = len(index) - len(node.spec.shape)
        at = tuple(ix.ZERO if n == 1 else i for n, i in zip(node.spec.shape, index[lead:], strict=True))
        return self.value(node, at)

    def has_value(self, node: Node, index: Index) -> bool:
        """Return whether the value of ``node`` at an element of a domain has been computed."""
        lead = len(index) - len(node.spec.shape)
        at = tuple(ix.ZERO if n == 1 else i for n, i in zip(node.spec.shape, index[lead:], strict=True))
        return any((id(node), at) in known for known in self._memo)

    def is_leaf(self, node: Node) -> bool:
        """Return whether ``node`` is read from a buffer."""
        return id(node) in self._leaves

    def load(self, leaf: BufferRead, node: Node, index: Index) -> Expr:
        """Return the load of an element that lies in a buffer."""
        b, layout = self.builder, leaf.layout
        b.buffer(leaf.buffer, node.spec.dtype)
        index = tuple(ix.ZERO if n == 1 else i for n, i in zip(layout.shape, index, strict=True))
        place = (
            ix.flatten(index, self.lengths(node))
            if layout.is_contiguous
            else ix.dot(index, [b.size(f"{leaf.strides}s{k}", s) for k, s in enumerate(layout.strides)])
        )
        if layout.late is not None:
            place = ix.add(
                b.param(leaf.offset, INDEX, RuntimeArg("offset", layout.late, layout.offset)), place
            )
        elif layout.offset:
            place = ix.add(b.param(leaf.offset, INDEX, layout.offset), place)
        return Load(leaf.buffer, place, node.spec.dtype)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forget on leaving what was inlined meanwhile: its names are local to the block that was written."""
        self._memo.append({})
        try:
            yield
        finally:
            self._memo.pop()

    def predicated(self, node: Node, otherwise: Expr, condition: Expr, read: Callable[[], Expr]) -> Expr:
        """Return what ``read`` gives where ``condition`` holds; elsewhere nothing of it is evaluated."""
        b = self.builder
        with self.scope(), b.inner() as body:
            value = read()
        if not body:
            return Select(condition, value, otherwise, node.spec.dtype)
        result = b.let(otherwise, "g", mutable=True)
        b.emit(If(condition, (*body, Assign(result, value))))
        return result

    def _compute(self, node: Node, index: Index) -> Expr:
        leaf = self._leaves.get(id(node))
        if leaf is not None:
            return self.load(leaf, node, index)
        operand = self._scalars.get(id(node))
        if operand is not None:
            return self.builder.param(
                self._scalar_name(operand), node.spec.dtype, RuntimeArg("scalar", operand)
            )
        if node.op == "constant":
            value, dtype = node.attrs["value"], node.spec.dtype
            if self._sized and dtype.is_floating and isfinite(value) and abs(value) not in (0, 1, 2):
                return self.builder.param(f"c{self._numbers[id(node)]}", dtype, fit(value, dtype))
            return literal(value, dtype)
        if node.op in ELEMENTWISE:
            return self._apply(node, [self._operand(x, node, index) for x in node.inputs])
        rule = _RULES.get(node.op)
        if rule is None:
            raise TensorbusError(f"no rule reads {node.op!r} element by element")
        return rule(self, node, index)

    def _scalar_name(self, operand: int) -> str:
        """Return the name of a Python scalar: its number among the kernel's, whichever operand it is."""
        lates = [(role, v) for role, (_, v) in self.builder.params.items() if isinstance(v, RuntimeArg)]
        roles = {v.operand: role for role, v in lates if v.what == "scalar"}
        return roles.get(operand, f"a{len(roles)}")

    def _operand(self, x: Node, user: Node, index: Index) -> Expr:
        lead = len(user.spec.shape) - len(x.spec.shape)
        at = tuple(ix.ZERO if n == 1 else i for n, i in zip(x.spec.shape, index[lead:], strict=True))
        return self.value(x, at)

    def _apply(self, node: Node, args: Sequence[Expr]) -> Expr:
        dtype = node.spec.dtype
        if node.op == "where":
            # Both are computed: what stands in a branch, loads and calls alike, is seldom put in vectors.
            then, other = (e if isinstance(e, Var | Const) else self.builder.let(e) for e in args[1:])
            return Select(args[0], then, other, dtype)
        if node.op == "cast":
            return Cast(args[0], dtype) if args[0].dtype is not dtype else args[0]
        return Apply(node.op, tuple(args), dtype)

    def _size(self, node: Node, what: str, value: int) -> Expr:
        if value < 0:
            return self.builder.param(f"{what}_of{self._numbers[id(node)]}", INDEX, value)
        return self.builder.size(f"{what}_of{self._numbers[id(node)]}", value)

    def _broadcast(self, node: Node, index: Index) -> Expr:
        return self._operand(node.inputs[0], node, index)

    def _permute(self, node: Node, index: Index) -> Expr:
        axes = node.attrs["axes"]
        return self.value(node.inputs[0], tuple(index[axes.index(k)] for k in range(len(axes))))

    def _reshape(self, node: Node, index: Index) -> Expr:
        (x,) = node.inputs
        result: list[Expr] = []
        for old, new in factor_groups(x.spec.shape, node.spec.shape):
            place = ix.flatten([index[k] for k in new], [self.length(node, k) for k in new])
            if sum(x.spec.shape[k] != 1 for k in old) > 1 and not isinstance(place, Var | Const):
                place = self.builder.let(place, "i")
            result.extend(ix.unflatten(place, [self.length(x, k) for k in old]))
        return self.value(
            x, tuple(ix.ZERO if n == 1 else i for n, i in zip(x.spec.shape, result, strict=True))
        )

    def _slice(self, node: Node, index: Index) -> Expr:
        a = node.attrs
        at = []
        for k, i in enumerate(index):
            start = self._size(node, f"start{k}", a["start"][k])
            at.append(ix.add(start, ix.multiply(i, self._size(node, f"step{k}", a["step"][k]))))
        return self.value(node.inputs[0], tuple(at))

    def _flip(self, node: Node, index: Index) -> Expr:
        at = [
            ix.subtract(ix.subtract(self.length(node, k), ix.ONE), i) if k in node.attrs["axis"] else i
            for k, i in enumerate(index)
        ]
        return self.value(node.inputs[0], tuple(at))

    def _windows(self, node: Node, index: Index) -> Expr:
        a, (x,) = node.attrs, node.inputs
        rank = len(a["size"])
        lead = len(x.spec.shape) - rank
        at = list(index[:lead])
        for k in range(rank):
            step = self._size(node, f"stride{k}", a["stride"][k])
            wide = self._size(node, f"dilation{k}", a["dilation"][k])
            at.append(ix.add(ix.multiply(index[lead + k], step), ix.multiply(index[lead + rank + k], wide)))
        return self.value(x, tuple(at))

    def _pad(self, node: Node, index: Index) -> Expr:
        (x,) = node.inputs
        conditions: list[Expr] = []
        at: list[Expr] = []
        for k, (i, low, high) in enumerate(zip(index, node.attrs["low"], node.attrs["high"], strict=True)):
            start = self._size(node, f"low{k}", low)
            if low:
                conditions.append(Apply("less_equal", (start, i), bool_))
            if high:
                conditions.append(ix.less(i, ix.add(start, self.length(x, k))))
            at.append(ix.subtract(i, start))
        if not conditions:
            return self.value(x, tuple(at))
        return self.predicated(
            node, self._full(node, index), ix.both(conditions), lambda: self.value(x, tuple(at))
        )

    def _concat(self, node: Node, index: Index) -> Expr:
        axis = node.attrs["axis"]
        operands = [x for x in node.inputs if x.spec.shape[axis]]
        ends, total = [], 0
        for x in operands:
            total += x.spec.shape[axis]
            ends.append(total)
        result: Expr = literal(0, node.spec.dtype)
        for k in range(len(operands) - 1, -1, -1):
            start = self._size(node, f"from{k}", ends[k - 1]) if k else ix.ZERO
            at = (*index[:axis], ix.subtract(index[axis], start), *index[axis + 1 :])
            if k == len(operands) - 1 and len(operands) == 1:
                return self.value(operands[k], at)
            inside = ix.less(index[axis], self._size(node, f"from{k + 1}", ends[k]))
            if k:
                inside = ix.both([Apply("less_equal", (start, index[axis]), bool_), inside])
            result = self.predicated(node, result, inside, partial(self.value, operands[k], at))
            if k % _MAX_NESTED == 0 and not isinstance(result, Var | Const):
                result = self.builder.let(result)
        return result

    def _update(self, node: Node, index: Index) -> Expr:
        x, v = node.inputs
        if 0 in v.spec.shape:
            return self.value(x, index)
        conditions: list[Expr] = []
        at: list[Expr] = []
        for k, (i, start, step) in enumerate(
            zip(index, node.attrs["start"], node.attrs["step"], strict=True)
        ):
            if v.spec.shape[k] == x.spec.shape[k] and step == 1:
                at.append(i)
                continue
            last = start + step * (v.spec.shape[k] - 1)
            low = self._size(node, f"low{k}", min(start, last))
            pace = self._size(node, f"step{k}", abs(step))
            width = ix.add(ix.multiply(ix.subtract(self.length(v, k), ix.ONE), pace), ix.ONE)
            width = self.length(v, k) if abs(step) == 1 else width
            away = ix.subtract(i, low)
            if low != ix.ZERO:
                conditions.append(Apply("less_equal", (low, i), bool_))
            conditions.append(ix.less(away, width))
            if step < 0:
                away = ix.subtract(ix.subtract(width, ix.ONE), away)
            if pace != ix.ONE:
                conditions.append(Apply("equal", (ix.modulo(away, pace), ix.ZERO), bool_))
            at.append(ix.quotient(away, pace))
        if not conditions:
            return self.value(v, tuple(at))
        return self.predicated(
            node, self.value(x, index), ix.both(conditions), lambda: self.value(v, tuple(at))
        )

    def _gather(self, node: Node, index: Index) -> Expr:
        x, *indices = node.inputs
        rank = len(indices[0].spec.shape)
        rows, ok = self.rows(x, indices, index[:rank])
        return self.predicated(
            node, literal(0, node.spec.dtype), ok, lambda: self.value(x, (*rows, *index[rank:]))
        )

    def rows(self, x: Node, indices: Sequence[Node], index: Index) -> tuple[list[Expr], Expr]:
        """Return the row that index operands name at ``index``, and whether it exists; report where not."""
        b = self.builder
        rows: list[Expr] = []
        conditions: list[Expr] = []
        for k, operand in enumerate(indices):
            along = counts(operand)
            if along is not None and operand.spec.shape[along] <= x.spec.shape[k]:
                rows.append(index[along])
                continue
            row = b.let(Cast(self.value(operand, index), INDEX), "row")
            rows.append(row)
            source = operand.inputs[0] if operand.op == "cast" else operand
            if self._below.get(id(source), x.spec.shape[k] + 1) <= x.spec.shape[k]:
                continue
            limit = self.length(x, k)
            b.buffer(ERRORS, INDEX, writes=True)
            b.emit(Report(ERRORS, self.code("gather"), row, limit))
            conditions += [Apply("less_equal", (ix.ZERO, row), bool_), ix.less(row, limit)]
        return rows, b.let(ix.both(conditions), "ok") if conditions else Const(True, bool_)

    def _pick(self, node: Node, index: Index) -> Expr:
        """Return the element of a row that an index chooses: what some gathers are inside a kernel."""
        x, chosen = node.inputs
        axis: int = node.attrs["axis"]
        b, limit = self.builder, self.length(x, axis)
        row = b.let(Cast(self._operand(chosen, node, index), INDEX), "row")
        b.buffer(ERRORS, INDEX, writes=True)
        b.emit(Report(ERRORS, self.code("gather"), row, limit))
        ok = b.let(ix.both([Apply("less_equal", (ix.ZERO, row), bool_), ix.less(row, limit)]), "ok")
        at = (*index[:axis], row, *index[axis + 1 :])
        return self.predicated(node, literal(0, node.spec.dtype), ok, lambda: self._operand(x, node, at))

    def code(self, op: str) -> Expr:
        """Return the number under which the device's errors name ``op``."""
        return self.builder.param(f"code_{op}", INDEX, RuntimeArg("code", 0, op=op))

    def _iota(self, node: Node, index: Index) -> Expr:
        a, dtype, (i,) = node.attrs, node.spec.dtype, index
        wide = float32 if dtype in NARROW else dtype
        number = self._numbers[id(node)]
        if not dtype.is_floating:
            whole = {w: int(fit(int(a[w]), INDEX).real) for w in ("start", "step")}
            start, step = (self.builder.size(f"{w}_of{number}", value) for w, value in whole.items())
            return Cast(ix.add(start, ix.multiply(i, step)), dtype)
        start, step = (self.builder.param(f"{w}_of{number}", wide, float(a[w])) for w in ("start", "step"))
        value = Apply("add", (start, Apply("multiply", (Cast(i, wide), step), wide)), wide)
        return value if wide is dtype else Cast(value, dtype)

    def _bits(self, node: Node, index: Index) -> Expr:
        """Return a random word, one of the four of a block: neighbours share its rounds."""
        (state,), word = node.inputs, uint64
        at = self.builder.let(ix.flatten(index, self.lengths(node)), "word")
        key, first = (self.value(state, (ix.const(k),)) for k in (0, 1))
        block = Apply("add", (first, Cast(ix.quotient(at, ix.const(4)), word)), word)
        return Cast(
            Apply(PHILOX, (key, block, Cast(ix.modulo(at, ix.const(4)), word)), word), node.spec.dtype
        )

    def _full(self, node: Node, index: Index) -> Expr:
        dtype = node.spec.dtype
        return self.builder.param(
            f"value_of{self._numbers[id(node)]}", dtype, fit(node.attrs["value"], dtype)
        )


def counts(node: Node) -> int | None:
    """Return the axis along which an index operand counts from 0, element by element; None for any other."""
    wide = node.spec.dtype.is_integer and node.spec.dtype.itemsize >= 4  # others begin anew
    match node.op:
        case "iota" if wide and (node.attrs["start"], node.attrs["step"]) == (0, 1):
            return 0
        case "cast" if wide:
            return counts(node.inputs[0])
        case "broadcast_to" | "reshape":
            (x,) = node.inputs
            along = counts(x)
            if along is None or x.spec.shape[along] == 1:
                return None
            if node.op == "broadcast_to":
                axis = along + len(node.spec.shape) - len(x.spec.shape)
                return axis if node.spec.shape[axis] == x.spec.shape[along] else None
            long = [k for k, n in enumerate(node.spec.shape) if n != 1]
            return long[0] if len(long) == 1 and sum(n != 1 for n in x.spec.shape) == 1 else None
        case _:
            return None


def _depth(e: Expr) -> int:
    match e:
        case Apply():
            return 1 + max((_depth(a) for a in e.args), default=0)
        case Cast():
            return 1 + _depth(e.arg)
        case Select():
            return 1 + max(_depth(e.then), _depth(e.other), _depth(e.condition))
        case Load():
            return _depth(e.index)
        case _:
            return 0


_RULES: Final[dict[str, Callable[[Inliner, Node, Index], Expr]]] = {
    "broadcast_to": Inliner._broadcast, "permute_dims": Inliner._permute, "reshape": Inliner._reshape,
    "slice": Inliner._slice, "flip": Inliner._flip, "windows": Inliner._windows, "pad": Inliner._pad,
    "concat": Inliner._concat, "slice_update": Inliner._update, "gather": Inliner._gather,
    "iota": Inliner._iota, "full": Inliner._full, "pick": Inliner._pick, "random_bits": Inliner._bits,
}  # fmt: skip
