"""Statements that show numbers and decide nothing are put off until behind the work that follows them.

``print(f"loss {loss.item():.3f}")`` before ``loss.backward()`` would end a segment. A copy of the value is
taken in its place, as part of the program, and the statement runs behind the last work of its block. So that
nobody can tell,

- it is a call of ``print``, of ``append``, of a logger, a progress bar or a meter; ``late_effect_calls``
  looks at what is called, at the beginning of each call of the function;
- what it shows beside the numbers are constants, and names that the function never binds, whose values do not
  change (``shown_numbers``); what of it can be evaluated without the numbers is, before all else;
- its texts cannot fail, whatever the numbers are;
- nothing that it passes shows anything, breaks, may leave the block, or reads what it adds to;
- where Python runs the segment, because a program failed say, it runs where it is written;
- where reads raise what failed before them, nothing has changed when the device is asked (``late_errors``).

Below an ``if`` whose test Python knows, either the whole of it is put off, with copies of the numbers in
each call, or the ``if`` stays where it is, as part of the segment, and what stands in its branches is put
off: there is a program for each outcome then, and that of a step that shows nothing does not wait for the
device. The first is for devices that need not be waited for, and tests whose outcome does not change.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ..capture.break_sites import Position
from .evaluation_order import BreakMarks
from .late_reads import LateReads
from .name_flow import names_bound, names_read
from .shown_numbers import Everything, ShownNumbers, no_arguments, shrink
from .shown_statements import (
    LEAVING,
    Condition,
    LateBranches,
    LateEffect,
    Shown,
    ShownStatement,
    shows,
)

PUT_OFF: Final = ".put_off"
FINISH: Final = ".finish"
BEGIN: Final = ".begin"
END: Final = ".end"
IS_CALM: Final = ".is_calm"
EAGERLY: Final = ".eagerly"
CHECKED: Final = ".checked"
CALLS: Final = ".calls"
LOOKED: Final = ".looked"
"""The names of the functions of ``late_effect_calls`` in rewritten functions, and of what they work on."""
MAX_TESTS: Final = 3
"""How many tests may have programs of their own: a segment has one for all their outcomes together."""
_Numbers = Mapping[str, ast.expr]


class LateEffects:
    """Finds the statements of a function that can be put off, and puts them off; ``effects`` are those.

    ``queues``: some device that the function uses is to be waited for.
    """

    def __init__(
        self, node: ast.FunctionDef, marks: BreakMarks, local: Container[str], reads: LateReads, queues: bool
    ) -> None:
        self._marks, self._local, self._reads, self._queues = marks, local, reads, queues
        self.effects: list[LateEffect] = []
        self.late: dict[int, ast.stmt] = {}
        """The statements that run what was put off, by id."""
        self.branched: dict[int, ast.stmt] = {}
        """The statements with branches that are parts of segments, by id."""
        self.outcomes: dict[str, tuple[str, ast.expr]] = {}
        """The names of outcomes of comparisons that Python makes before the segment, by the comparison."""
        self._tests: set[str] = set()
        self._parameters = {x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)}
        self._bound = frozenset[str]().union(*(names_bound(s, Everything()) for s in node.body))

    @property
    def places(self) -> tuple[Position, ...]:
        """The places where what was put off is written: breaks there keep it from waiting."""
        return (*[effect.at for effect in self.effects], *self._reads.places)

    def put_off(self, body: Sequence[ast.stmt], fresh: Callable[[], str]) -> list[ast.stmt]:
        """Return the statements of a block, with reads and effects behind what follows."""
        refused: set[int] = set()
        known = len(self.effects), len(self._reads.checks)

        def shown(s: ast.stmt, numbers: _Numbers) -> bool:
            return id(s) not in refused and self._shown(s, body, numbers, fresh) is not None

        while True:
            out, numbers = self._reads.put_off(body, fresh, shown)
            out, failed = self._put_off(out, body, fresh, numbers)
            if not failed:
                return out
            refused |= failed
            del self.effects[known[0] :], self._reads.checks[known[1] :], self._reads.places[known[1] :]

    def _known(self, fresh: Callable[[], str], e: ast.Compare) -> str:
        """Return the name of the outcome of a comparison of identities."""
        known = self.outcomes.setdefault(ast.dump(e), (fresh(), e))
        return known[0]

    def _shown(
        self, s: ast.stmt, body: Sequence[ast.stmt], numbers: _Numbers, fresh: Callable[[], str]
    ) -> Shown | None:
        """Return a statement as what can be put off, or None."""
        if id(s) in self._reads.handled:
            return None
        before = {n for x in body if x.lineno < s.lineno for n in names_bound(x, Everything())}
        looking = ShownStatement(
            self._marks,
            self._local,
            self._bound,
            before | self._parameters,
            numbers,
            not self._queues,
            partial(self._known, fresh),
            self._reads,
            fresh,
        )
        out = looking.shown(s)
        if isinstance(out, LateBranches):
            tests = self._tests | {ast.dump(test) for test in out.tests}
            if len(tests) > MAX_TESTS:
                return None
        return out

    def _put_off(
        self, body: Sequence[ast.stmt], original: Sequence[ast.stmt], fresh: Callable[[], str],
        numbers: Mapping[int, _Numbers],
    ) -> tuple[list[ast.stmt], set[int]]:  # fmt: skip
        """Return the statements of a block, those that can wait behind what follows; the last ones first.

        Statements that cannot, although they show numbers which are bound late, are returned by id.
        """
        out, failed = [*body], set[int]()
        for k in reversed(range(len(out))):
            s = out[k]
            if id(s) not in numbers and not self._marks.within(s):
                continue
            shown = self._shown(s, original, numbers.get(id(s), {}), fresh)
            place = None if shown is None else self._place(shown, out, k + 1)
            if shown is None or place is None:
                failed |= {id(s)} & numbers.keys()
                continue
            if isinstance(last := out[place - 1], ast.Return):
                out[place - 1 : place] = _taken_apart(last, fresh())
            self._insert(shown, out, k, place, fresh)
        return out, failed

    def _place(self, shown: Shown, out: Sequence[ast.stmt], first: int) -> int | None:
        """Return behind how many statements of a block something may run, if work lies between."""
        place = None
        touched = frozenset[str]().union(*(effect.targets for effect in shown.effects))
        for k in range(first, len(out)):
            s = out[k]
            if id(s) in self.late:  # of a later effect, which runs right behind this one
                return k
            if id(s) in self._reads.late:  # where the segment ends anyway
                return place
            if self._marks.within(s) or shows(s) or not touched.isdisjoint(names_read(s, Everything())):
                return place
            if isinstance(s, ast.Return):
                return k + 1 if self._marks.has_ops(s) or place is not None else None
            if any(isinstance(n, LEAVING) for n in ast.walk(s)):
                return place
            if self._marks.has_ops(s):
                place = k + 1
        return place

    def _insert(
        self, shown: Shown, out: list[ast.stmt], k: int, place: int, fresh: Callable[[], str]
    ) -> None:
        names: dict[int, str] = {}
        late = []
        for effect in shown.effects:
            name = names[id(effect)] = fresh()
            number = len(self.effects)
            self.effects.append(effect)
            parts: list[ast.expr] = [
                ast.Name(CALLS, ast.Load()), ast.Constant(number), ast.Name(name, ast.Load())
            ]  # fmt: skip
            run = ast.Expr(ast.Call(ast.Name(FINISH, ast.Load()), parts, []))
            self.late[id(run)] = run
            late.append(_located(run, out[k]))
        if isinstance(out[place - 1], ast.Return):
            place -= 1
        out[place:place] = late
        taken = self._taken(shown, names)
        if isinstance(shown, LateBranches):
            self._tests |= {ast.dump(test) for test in shown.tests}
            targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names.values()]
            first = _located(ast.Assign(targets, ast.Constant(None)), shown.original)
            shrink(first, *targets, first.value)
            out[k : k + 1] = [first, taken]
        else:
            out[k] = taken

    def _taken(self, shown: Shown | ast.stmt, names: Mapping[int, str]) -> ast.stmt:
        """Return what stands in the place of a statement: what copies the numbers that it shows."""
        if isinstance(shown, ast.stmt):
            return shown
        if isinstance(shown, LateBranches):
            out = copy.copy(shown.original)
            out.test = shown.test
            out.body = [self._taken(x, names) for x in shown.body]
            out.orelse = [self._taken(x, names) for x in shown.orelse]
            self.branched[id(out)] = out
            return out
        number = next(k for k, effect in enumerate(self.effects) if effect is shown)
        is_rare = isinstance(shown.statement, ast.If)
        arguments: list[ast.expr] = [ast.Constant(number), ast.Constant(is_rare)]
        for _, kind, operand in shown.reads:
            arguments += [ast.Constant(kind), operand]
        target: list[ast.expr] = [ast.Name(names[id(shown)], ast.Store())]
        call = ast.Call(ast.Name(PUT_OFF, ast.Load()), arguments, [])
        taken: ast.stmt = _located(ast.Assign(target, call), shown.original, [x for *_, x in shown.reads])
        shrink(call)
        return taken

    # What the rewritten function does with them.

    @property
    def looks(self) -> bool:
        """Return whether something is looked at before it is put off."""
        return bool(self.effects) or any(x.checked or x.ahead for x in self._reads.checks)

    def around(self, body: list[ast.stmt], node: ast.FunctionDef) -> list[ast.stmt]:
        """Return the body of the rewritten function with what effects need around it."""
        if not self.looks:
            return body
        parts = [part for effect in self.effects for part in _looked_at(effect, effect.conditions)]
        parts += [part for x in self._reads.checks for part in _looked_at(x, ())]
        looked = ast.Assign(
            [ast.Name(LOOKED, ast.Store())], ast.Lambda(no_arguments(), ast.Tuple(parts, ast.Load()))
        )
        refused = ast.If(
            ast.UnaryOp(ast.Not(), ast.Call(_loaded(IS_CALM), [_loaded(LOOKED)], [])),
            [ast.Return(ast.Call(ast.Name(EAGERLY, ast.Load()), *_own_arguments(node.args)))], [],
        )  # fmt: skip
        definitions: list[ast.stmt] = []
        for number, effect in enumerate(self.effects):
            names = [ast.arg(name) for name, *_ in effect.reads]
            definition: Any = ast.FunctionDef(
                name=f".effect{number}", args=no_arguments(names), body=[effect.statement],
                decorator_list=[], returns=None,
            )  # fmt: skip
            definition.type_params = []
            definitions.append(ast.copy_location(definition, effect.statement))
        every: list[ast.expr] = [ast.Name(f".effect{k}", ast.Load()) for k in range(len(self.effects))]
        targets: list[ast.expr] = []
        for effect in self.effects:
            names_of: list[ast.expr] = [ast.Name(n, ast.Load()) for n in sorted(effect.targets)]
            targets.append(ast.Tuple(names_of, ast.Load()))
        arguments: list[ast.expr] = [ast.Tuple(every, ast.Load()), ast.Tuple(targets, ast.Load())]
        begin = ast.Assign(
            [ast.Name(CALLS, ast.Store())], ast.Call(ast.Name(BEGIN, ast.Load()), arguments, [])
        )
        end = ast.Expr(ast.Call(ast.Name(END, ast.Load()), [ast.Name(CALLS, ast.Load())], []))
        around = [looked, refused, *definitions, begin, ast.Try(body, [], [], [end])]
        for s in (looked, refused, begin, end, around[-1]):
            for n in ast.walk(s) if s is not around[-1] else (s,):
                if not hasattr(n, "lineno") and "lineno" in n._attributes:
                    ast.copy_location(n, node.body[0])
        return around


def _looked_at(x: LateEffect | ShownNumbers, conditions: Sequence[Condition]) -> list[ast.expr]:
    """Return what is looked at ahead for a statement, as expressions of pairs."""
    if conditions:
        first, *inner = conditions
        of = ast.Lambda(no_arguments(), ast.Tuple(_looked_at(x, inner), ast.Load()))
        names = ast.Lambda(no_arguments(), ast.Tuple([*first.names], ast.Load()))
        test: list[ast.expr] = [names, ast.Lambda(no_arguments(), first.test), ast.Constant(first.holds), of]
        return [ast.Tuple([ast.Constant("if"), ast.Tuple(test, ast.Load())], ast.Load())]
    parts: list[ast.expr] = [ast.Tuple([ast.Constant(kind), e], ast.Load()) for kind, e in x.checked]
    return [*parts, *[ast.Tuple([ast.Constant("value"), e], ast.Load()) for e in x.ahead]]


def _loaded(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _located(statement: Any, like: ast.stmt, others: Iterable[ast.expr] = ()) -> Any:
    """Give all new nodes of a statement the place of another."""
    old = {id(n) for e in others for n in ast.walk(e)}
    for n in ast.walk(statement):
        if id(n) not in old:
            ast.copy_location(n, like)
    return statement


def _taken_apart(s: ast.Return, name: str) -> list[ast.stmt]:
    """Return what computes the value of a return statement, and one that returns it."""
    if s.value is None:
        return [s]
    assign = ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), s.value)], s.value)
    last = ast.Return(ast.copy_location(ast.Name(name, ast.Load()), s.value))
    ast.copy_location(last, s)
    last.lineno, last.col_offset = s.end_lineno or s.lineno, s.end_col_offset or 0  # where no op is recorded
    return [ast.copy_location(assign, s), last]


def _own_arguments(of: ast.arguments) -> tuple[list[ast.expr], list[ast.keyword]]:
    """Return the arguments with which a function calls another one of the same parameters."""
    args: list[ast.expr] = [ast.Name(x.arg, ast.Load()) for x in (*of.posonlyargs, *of.args)]
    if of.vararg is not None:
        args.append(ast.Starred(ast.Name(of.vararg.arg, ast.Load()), ast.Load()))
    keywords = [ast.keyword(x.arg, ast.Name(x.arg, ast.Load())) for x in of.kwonlyargs]
    if of.kwarg is not None:
        keywords.append(ast.keyword(None, ast.Name(of.kwarg.arg, ast.Load())))
    return args, keywords
