"""Reads of numbers that nothing needs yet are put off until Python needs the number.

Of ``value = loss.item()``, ``loss.backward()``, ``optimizer.step()``, ``return value`` the first line would
end a segment. A copy of the value is taken in its place, which is part of the program, and the name is bound
before the statement that uses it. So is what is computed of such numbers and cannot fail: a mean, a text.
What is read is what was there, and nobody can tell when, as such a read has no effect, and where what lies
between fails, the name is not used any more.

A read that can fail stays where it is written, as what lies behind it must not happen then: ``int`` of a
dtype that has nan and inf, ``float`` of a complex one. A read of a device that queues its work raises what
failed in any of it: it waits where the program can be asked first (``late_errors``). Dtype and device are
known to the capture that comes to the copy: it breaks there, and the function is divided anew with the read
in its place.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..capture.break_sites import Position
from .evaluation_order import BreakMarks
from .late_read_calls import SEQUENCES
from .name_flow import names_bound, names_read
from .shown_numbers import (
    Everything,
    LateRead,
    LateValue,
    ShownNumbers,
    Unfit,
    by_name,
    is_number,
    is_text,
    read_by,
    shrink,
    start_of,
)

SNAPSHOT: Final = ".snapshot"
"""The name of ``snapshot`` in rewritten functions."""
_HANDLING: Final = (ast.Try, ast.With)
_CLOSING: Final = (ast.Lambda, ast.FunctionDef, ast.GeneratorExp, ast.ClassDef)
_LEAVING: Final = (ast.Return, ast.Break, ast.Continue, ast.Delete)
_READ: Final = ".r"
_Part = tuple[ast.Name, ast.expr]


@dataclass(kw_only=True, slots=True)
class _Binding:
    """A statement that binds names to numbers that are read: the copies that it takes, and what runs late."""

    statement: ast.stmt
    snapshots: list[ast.stmt]
    late: ast.stmt
    names: frozenset[str]
    numbers: dict[str, ast.expr]
    analysis: ShownNumbers


@dataclass(kw_only=True, slots=True)
class _Block:
    """A block in the making: ``shown`` has, by id of a statement to put off, the numbers that it may show."""

    out: list[ast.stmt] = field(default_factory=list)
    shown: dict[int, dict[str, ast.expr]] = field(default_factory=dict)
    pending: list[_Binding] = field(default_factory=list)
    numbers: dict[str, ast.expr] = field(default_factory=dict)
    waiting: list[ast.stmt] = field(default_factory=list)
    has_work: bool = False
    """Whether work lies behind the first of the bindings that are pending."""

    @property
    def names(self) -> frozenset[str]:
        """The names that are bound late."""
        return frozenset[str]().union(*(b.names for b in self.pending))


class LateReads:
    """Finds the reads of a function that can be put off; ``late`` has the ids of those that were."""

    def __init__(self, node: ast.FunctionDef, marks: BreakMarks, local: Container[str]) -> None:
        self._marks, self._local, self._node = marks, local, node
        self.late: dict[int, ast.stmt] = {}
        self.checks: list[ShownNumbers] = []
        """What is to be looked at ahead for the texts that are made late."""
        self.places: list[Position] = []
        """The beginnings of the statements for which it is."""
        inner = [n for s in node.body for n in ast.walk(s)]
        self.handled = {id(n) for s in inner if isinstance(s, _HANDLING) for n in ast.walk(s)}
        """Ids of what stands in blocks that somebody may leave by an error, and go on."""
        self._shared = frozenset[str]().union(
            *(names_read(n, local) for n in inner if isinstance(n, _CLOSING))
        )
        self._bound = frozenset[str]().union(*(names_bound(s, Everything()) for s in node.body))
        self._reading = Counter(n.id for n in inner if isinstance(n, ast.Name) and not _stores(n))
        self._summed = _numbers_summed(node, inner, local)

    def put_off(
        self, body: Sequence[ast.stmt], fresh: Callable[[], str],
        shows: Callable[[ast.stmt, dict[str, ast.expr]], bool],
    ) -> tuple[list[ast.stmt], dict[int, dict[str, ast.expr]]]:  # fmt: skip
        """Return the statements of a block, with reads where they are needed; ``fresh()`` gives new names.

        What ``shows`` numbers that are read late, and can be put off itself, needs none of them: these
        statements are returned by id, with expressions of the numbers.
        """
        block = _Block()
        for s in body:
            binding = self._binding(s, block, fresh)
            if binding is not None and not self._follows(binding, block):
                self._bind(block)
                binding = self._binding(s, block, fresh)
            if binding is not None:
                block.pending.append(binding)
                if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
                    block.numbers = _without(block.numbers, s.target.id)  # only the name itself shows it now
                block.numbers |= binding.numbers
                block.out.append(s)
                continue
            if block.pending:
                used = names_read(s, self._local) & block.names
                if used and used <= block.numbers.keys() and shows(s, block.numbers):
                    block.shown[id(s)] = dict(block.numbers)
                    block.waiting.append(s)
                elif used or not block.names.isdisjoint(names_bound(s, self._local)) or _may_leave(s):
                    self._bind(block)
            if block.pending and id(s) not in block.shown:
                block.has_work = block.has_work or self._marks.has_ops(s) or self._marks.within(s)
            block.out.append(s)
        self._bind(block)
        return block.out, block.shown

    def in_branch(
        self, s: ast.stmt, numbers: Mapping[str, ast.expr], fresh: Callable[[], str]
    ) -> tuple[list[ast.stmt], dict[str, ast.expr]] | None:
        """Return the copies for a statement that binds names which only its block shows, and the numbers.

        The names are not bound at all then. None where the statement is another one.
        """
        binding = self._binding(s, _Block(numbers=dict(numbers)), fresh)
        if (
            binding is None
            or binding.numbers.keys() != binding.names
            or not binding.names.isdisjoint(numbers)
        ):
            return None
        looks = binding.analysis.checked or binding.analysis.ahead
        return None if looks else (binding.snapshots, binding.numbers)

    def count_of_reads(self, names: Iterable[str]) -> Counter[str]:
        """Return how often the function reads names."""
        return Counter({name: self._reading[name] for name in names})

    def _follows(self, binding: _Binding, block: _Block) -> bool:
        """Return whether a binding may run late behind those that are pending."""
        if isinstance(binding.statement, ast.AugAssign):
            return True
        return block.names.isdisjoint(binding.names)

    def _bind(self, block: _Block) -> None:
        """Bind the pending names here; where they are written, if no work lies between."""
        inlined: Counter[str] = Counter()
        for s in [*block.waiting, *(b.statement for b in block.pending)]:
            inlined.update(n.id for n in ast.walk(s) if isinstance(n, ast.Name) and not _stores(n))
        live = {n for n in block.names if self._reading[n] > inlined[n]}
        if block.has_work or (block.waiting and not live):
            for binding in block.pending:
                k = next(k for k, s in enumerate(block.out) if s is binding.statement)
                block.out[k : k + 1] = binding.snapshots
                self.checks.append(binding.analysis)
                self.places.append(start_of(binding.statement))
                if block.has_work and live:
                    self.late[id(binding.late)] = binding.late
                    block.out.append(binding.late)
        else:
            for s in block.waiting:
                del block.shown[id(s)]
        block.pending, block.numbers, block.waiting, block.has_work = [], {}, [], False

    def _binding(self, s: Any, block: _Block, fresh: Callable[[], str]) -> _Binding | None:
        """Return a statement as one that binds names late, if it can be one."""
        if id(s) in self.handled or id(s) in self._marks.whole | self._marks.at_once:
            return None
        parts = self._parts(s)
        names = frozenset(target.id for target, _ in parts)
        if not parts or len(names) < len(parts) or not self._shared.isdisjoint(names):
            return None
        if any(n not in self._local for n in names):
            return None
        analysis = ShownNumbers(self._marks, self._local, self._bound, names, block.numbers, fresh)
        if not analysis.depends(s.value):
            return None
        try:
            late = [(target, self._late_value(analysis, value)) for target, value in parts]
        except Unfit:
            return None
        if isinstance(s, ast.AugAssign) and (is_text(late[0][1]) or not _is_plain(late[0][1])):
            return None
        is_read = all(isinstance(e, LateRead) for _, e in late)
        probe = None if is_read else _probe([e for _, e in late], analysis)
        late = [(target, by_name(e)) for target, e in late]
        analysis.checked = [x for x in analysis.checked if x[0] not in ("float", "int")]
        out = copy.copy(s)
        out.value = late[0][1] if len(late) == 1 else ast.copy_location(_tuple_of(late), s.value)
        if isinstance(s, ast.AugAssign):
            probe = ast.Constant("+=" if isinstance(s.op, ast.Add) else "-=")
        snapshots = [self._snapshot(s, name, kind, of, probe) for name, kind, of in analysis.reads]
        numbers = {} if isinstance(s, ast.AugAssign) else {t.id: e for t, e in late if _is_plain(e)}
        return _Binding(
            statement=s, snapshots=snapshots, late=out, names=names, numbers=numbers, analysis=analysis
        )

    def _parts(self, s: Any) -> list[_Part]:
        """Return the names that a statement binds, each with the expression of its value."""
        value = getattr(s, "value", None)
        if isinstance(s, ast.Assign) and len(s.targets) == 1:
            target = s.targets[0]
            if isinstance(target, ast.Name):
                return [(target, s.value)]
            if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
                return []
            names = [x for x in target.elts if isinstance(x, ast.Name)]
            plain = len(names) == len(target.elts) == len(value.elts)
            return [*zip(names, value.elts, strict=True)] if plain else []
        if isinstance(s, ast.AnnAssign) and value is not None and isinstance(s.target, ast.Name):
            return [(s.target, value)]
        if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name) and s.target.id in self._summed:
            is_there = any(s.target.id in names_bound(x, self._local) for x in _before(s, self._node.body))
            return [(s.target, s.value)] if is_there and isinstance(s.op, (ast.Add, ast.Sub)) else []
        return []

    def _late_value(self, analysis: ShownNumbers, e: ast.expr) -> ast.expr:
        """Return what a name is bound to late. A number that is bound late already is found by its name."""
        if isinstance(e, ast.Name) and analysis.has(e.id):
            return e
        if not analysis.depends(e):
            if not isinstance(e, ast.Constant):
                raise Unfit
            return e
        return analysis.value(e)

    def _snapshot(
        self, s: ast.stmt, name: str, kind: str, operand: ast.expr, probe: ast.expr | None
    ) -> ast.stmt:
        arguments: list[ast.expr] = [operand, ast.Constant(kind)]
        call = ast.Call(ast.Name(SNAPSHOT, ast.Load()), arguments + ([] if probe is None else [probe]), [])
        statement = ast.Assign([ast.Name(name, ast.Store())], call)
        old = {id(n) for n in ast.walk(operand)}
        for n in ast.walk(statement):
            if id(n) not in old:
                ast.copy_location(n, s)
        shrink(call)
        return statement


def _tuple_of(parts: Sequence[_Part]) -> ast.Tuple:
    return ast.Tuple([e for _, e in parts], ast.Load())


def _probe(values: Sequence[ast.expr], analysis: ShownNumbers) -> ast.expr:
    """Return a function of what is read that fails where the late expressions would, for its type."""
    bodies = [_Probing(analysis).visit(copy.deepcopy(e)) for e in values]
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(_READ)],
        vararg=None,
        kwonlyargs=[],
        kw_defaults=[],
        kwarg=None,
        defaults=[],
    )
    return ast.Lambda(arguments, ast.Tuple(bodies, ast.Load()))


class _Probing(ast.NodeTransformer):
    def __init__(self, analysis: ShownNumbers) -> None:
        self._analysis = analysis

    def visit_LateRead(self, node: LateRead) -> ast.AST:
        return ast.copy_location(ast.Name(_READ, ast.Load()), node)

    def visit_LateValue(self, node: LateValue) -> ast.AST:
        return ast.copy_location(ast.Constant(0), node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not self._analysis.has(node.id):
            return node
        numbers: ast.AST = self.visit(copy.deepcopy(self._analysis.numbers_of(node.id)))
        return numbers


def _without(numbers: dict[str, ast.expr], name: str) -> dict[str, ast.expr]:
    """Return numbers without one, and without those that are computed of it."""
    gone, count = {name}, 0
    while len(gone) > count:
        count = len(gone)
        gone |= {n for n, e in numbers.items() if not gone.isdisjoint(_names(e))}
    return {n: e for n, e in numbers.items() if n not in gone}


def _names(e: ast.expr) -> list[str]:
    return [n.id for n in ast.walk(e) if isinstance(n, ast.Name)]


def _is_plain(e: ast.expr) -> bool:
    """Return whether a late expression gives a number or a text, of which nobody can tell two apart."""
    return not any(
        isinstance(n, (ast.Tuple, ast.List)) or (isinstance(n, LateRead) and n.kind in SEQUENCES)
        for n in ast.walk(e)
    )


def _numbers_summed(node: ast.FunctionDef, inner: Sequence[ast.AST], local: Container[str]) -> frozenset[str]:
    """Return the names that hold numbers, as all that binds them gives numbers."""
    sources: dict[str, list[ast.expr]] = {}
    for s in inner:
        for t, value in [(t, s.value) for t in s.targets] if isinstance(s, ast.Assign) else ():
            if isinstance(t, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = [*zip(t.elts, value.elts, strict=False)]
            else:
                pairs = [(t, value)]
            for x, e in pairs:
                if isinstance(x, ast.Name):
                    sources.setdefault(x.id, []).append(e)
        if isinstance(s, (ast.AnnAssign, ast.AugAssign)) and isinstance(s.target, ast.Name):
            is_sum = isinstance(s, ast.AnnAssign) or isinstance(s.op, (ast.Add, ast.Sub))
            sources.setdefault(s.target.id, []).append(s.value if s.value and is_sum else ast.Constant(None))
    stores = Counter(n.id for n in inner if isinstance(n, ast.Name) and _stores(n))
    others = {x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)}
    others |= {n.name for n in inner if isinstance(n, (ast.ExceptHandler, ast.FunctionDef)) and n.name}
    others |= {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del)}
    names = frozenset(n for n in sources if len(sources[n]) == stores[n] and n not in others)
    while True:
        sure = frozenset(n for n in names if all(_gives_number(e, names, local) for e in sources[n]))
        if sure == names:
            return names
        names = sure


def _before(s: ast.stmt, body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the assignments of a function's own block that have run whenever it comes to a statement."""
    return [x for x in body if isinstance(x, (ast.Assign, ast.AnnAssign)) and (x.end_lineno or 0) < s.lineno]


def _gives_number(e: ast.expr, names: Container[str], local: Container[str]) -> bool:
    if isinstance(e, ast.Name):
        return e.id in names
    if isinstance(e, ast.BinOp) and isinstance(
        e.op, (ast.Add, ast.Sub, ast.Div)
    ):  # never too large for a float
        return _gives_number(e.left, names, local) and _gives_number(e.right, names, local)
    return is_number(e) or read_by(e, local)[0] in ("item", "float", "int")


def _stores(n: ast.Name) -> bool:
    return isinstance(n.ctx, ast.Store)


def _may_leave(s: ast.stmt) -> bool:
    """Return whether a statement may leave the block that it stands in, with the name bound or not."""
    return any(isinstance(n, _LEAVING) for n in ast.walk(s))
