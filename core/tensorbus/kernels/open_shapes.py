"""Programs of eager calls for many shapes: a length that changes at each call is not lowered each time.

A call whose operands have had several shapes, in a text that grows or batches of any size, is lowered once
on lengths that are symbols, and on strides that are multiples of them or symbols too. A new shape then takes
what computing the numbers of its launches takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod
from typing import Any, Final

from ..backend_interface.graph import Graph
from ..backend_interface.strided_array import StridedArray
from ..dtypes.definition import DType
from ..lowering.ir.layout import Layout, packed
from ..lowering.program.lower import lower
from ..ops.definition import Spec
from ..system import fork_safe_locks
from ..tracing.plan_env import PlanEnv
from ..tracing.sym_int import FUNCTIONS
from .generated_program import Compiler, GeneratedProgram
from .open_program import OpenProgram, SizedProgram

SHAPES_BEFORE_PLAN: Final = 3
"""How many shapes of one pattern there are, the last included, when lengths that differ become open."""
MAX_PLANS: Final = 16
"""How many plans a pattern keeps: for other widths, for lengths on either side of what decides how."""
SIZES_FOR_PLAN: Final = 8
"""How many new sizes plans must have served for each that is made beyond the first ``MAX_PLANS``."""
MAX_PATTERNS: Final = 256
MAX_REMEMBERED: Final = 32
"""How many calls without a plan a pattern remembers."""
MIN_OPEN_LENGTH: Final = 2
"""The least open length: those of 0 and 1 are broadcast, or leave nothing to do."""
MAX_FACTORS: Final = 3
"""The most lengths that a stride is the product of, besides a number."""
Specs = Sequence[Spec]
Sizes = Callable[[tuple[int, ...]], Sequence[int] | None]
"""From the numbers of a call to the values of a plan's symbols; None where it does not serve them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A call whose lengths may be open. ``key`` tells it from all others but for lengths and ``attrs``.

    ``graph`` is its graph for operands of these specs and these attributes; None where it has none that
    serves. ``attrs`` are lengths that are no operand's, by name. ``sized``: see ``lower``. ``replaces`` says
    which result may lie over which operand.
    """

    name: str
    key: Any
    dtypes: Sequence[DType]
    graph: Callable[[Specs, Mapping[str, Any]], Graph | None]
    attrs: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)
    sized: bool = True
    replaces: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Pattern:
    """The numbers of past calls alike, the plans, that of the last call first, and what had none.

    ``failed`` has for axes the numbers for which no plan of other lengths of them served several.
    ``attempts`` counts those at plans, ``served`` the sizes that they served.
    """

    numbers: list[tuple[int, ...]] = field(default_factory=list)
    plans: list[_Plan] = field(default_factory=list)
    failed: dict[frozenset[int], tuple[int, ...]] = field(default_factory=dict)
    attempts: int = 0
    served: int = 0

    def at(self, numbers: tuple[int, ...], values: Sequence[Any]) -> SizedProgram | GeneratedProgram | None:
        """Return the program that a plan gives for these numbers."""
        for plan in self.plans:
            known = plan.at(numbers, values)
            if known is not None:
                self.served += 1
                if self.plans[0] is not plan:
                    self.plans = [plan, *[other for other in self.plans if other is not plan]]
                return known
        return None

    def alike(self, numbers: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
        """Return past calls that differ from this one in as few lengths as possible; none where they are few.

        So layers of several widths, each of which meets one length after the other, leave their widths alone.
        """
        away = {past: _differing(past, numbers, count) for past in self.numbers}
        for axes in sorted({own for own in away.values() if own is not None}, key=len):
            near = [past for past, own in away.items() if own is not None and own <= axes]
            if len(near) >= SHAPES_BEFORE_PLAN - 1 and self._is_worth_a_plan(axes, numbers):
                return near
        return []

    def _is_worth_a_plan(self, axes: frozenset[int], numbers: tuple[int, ...]) -> bool:
        """Return whether no plan was in vain for these axes at lengths near these."""
        past = self.failed.get(axes, ())
        return not past or any(numbers[k] >= 2 * past[k] or past[k] >= 2 * numbers[k] for k in axes)


class OpenShapes:
    """The plans of calls on the units of a device."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._patterns: dict[Any, _Pattern] = {}
        self._lock = fork_safe_locks.simple()

    def program(
        self, call: OpenCall, values: Sequence[Any], index: int
    ) -> SizedProgram | GeneratedProgram | None:
        """Return the program of a call for these values; None where they are to be lowered by themselves."""
        form, lengths, steps = _form(values, call.attrs)
        key = (call.key, index, form)
        pattern = self._patterns.get(key)
        if pattern is None:
            if len(self._patterns) >= MAX_PATTERNS:
                self._patterns.clear()
            pattern = self._patterns[key] = _Pattern()
        numbers = (*lengths, *steps)
        known = pattern.at(numbers, values)
        if known is not None or not numbers:
            return known
        with self._lock:
            if pattern.attempts - pattern.served // SIZES_FOR_PLAN >= MAX_PLANS:
                return None
            near = pattern.alike(numbers, len(lengths))
            pattern.numbers = [*[past for past in pattern.numbers if past != numbers], numbers]
            del pattern.numbers[:-MAX_REMEMBERED]
            if not near:
                return None
            met = [*near, numbers]
            pattern.attempts += 1
            new = _Plan.of(self._compiler, call, values, form, met, len(lengths), index)
            if new is None:
                pattern.failed[frozenset(k for k, _ in _open(met, len(lengths)))] = numbers
                return None
            pattern.plans = [new, *pattern.plans[: MAX_PLANS - 1]]
        return new.at(numbers, values)


def _form(
    values: Sequence[Any], attrs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], list[int], list[int]]:  # fmt: skip
    """Return what calls alike share, their lengths, and the strides of operands that are not packed.

    Of each operand that is its rank; of one that is not packed also the signs of its strides, and whether it
    begins later than its buffer.
    """
    form: list[Any] = []
    lengths: list[int] = []
    steps: list[int] = []
    for v in values:
        if type(v) is not StridedArray:
            form.append(None)
            continue
        lengths += v.shape
        late = v.offset != 0
        if not late and v.is_contiguous:
            form.append(len(v.shape))
            continue
        strides = _strides(v)
        steps += strides
        form.append((late, *[(s > 0) - (s < 0) for s in strides]))
    for value in attrs.values():
        own = value if type(value) is tuple else (value,)
        form.append(len(own))
        lengths += own
    return tuple(form), lengths, steps


def _strides(x: StridedArray) -> list[int]:
    """Return the strides of an array, those of axes of length 1 as if they were longer."""
    strides: list[int] = []
    step = 1
    for length, stride in zip(reversed(x.shape), reversed(x.strides), strict=True):
        step = stride if length != 1 else step
        strides.append(step)
        step *= length
    return strides[::-1]


def _open(numbers: Sequence[tuple[int, ...]], count: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return those of the first ``count`` numbers that differ among calls, each as it was in all of them.

    >>> _open([(2, 3, 7), (5, 3, 8), (2, 3, 9)], 2)
    [(0, (2, 5, 2))]
    """
    columns = enumerate(zip(*numbers, strict=True))
    return [(k, column) for k, column in columns if k < count and any(n != column[0] for n in column)]


def _differing(a: tuple[int, ...], b: tuple[int, ...], count: int) -> frozenset[int] | None:
    """Return which of the first ``count`` numbers differ; None where there is none, or one is not open."""
    columns = _open((a, b), count)
    if not columns or any(min(column) < MIN_OPEN_LENGTH for _, column in columns):
        return None
    return frozenset(k for k, _ in columns)


class _Plan:
    """A program with open lengths, and the function that finds its symbols in the numbers of a call."""

    def __init__(self, program: OpenProgram, sizes: Sizes) -> None:
        self._program, self._sizes = program, sizes

    def at(self, numbers: tuple[int, ...], values: Sequence[Any]) -> SizedProgram | GeneratedProgram | None:
        """Return the program for a call of these numbers; None where the plan does not serve it."""
        sizes = self._sizes(numbers)
        return None if sizes is None else self._program.at(sizes, values)

    @classmethod
    def of(
        cls, compiler: Compiler, call: OpenCall, values: Sequence[Any], form: Sequence[Any],
        met: Sequence[tuple[int, ...]], count: int, index: int,
    ) -> _Plan | None:  # fmt: skip
        """Return the plan of a call that has had these numbers; None where none serves several.

        The first ``count`` numbers are lengths, the others strides.
        """
        env = PlanEnv()
        symbols = _symbols(env, met, count)
        if symbols is None:
            return None
        left = iter(symbols)
        shapes = [tuple([next(left) for _ in v.shape]) if type(v) is StridedArray else () for v in values]
        attrs = {
            name: tuple([next(left) for _ in value]) if type(value) is tuple else next(left)
            for name, value in call.attrs.items()
        }
        layouts = [
            None if kind is None else packed(k, shape) if type(kind) is int
            else Layout(k, shape, tuple([next(left) for _ in shape]), 0, k if kind[0] else None)
            for k, (kind, shape) in enumerate(zip(form, shapes, strict=False))
        ]  # fmt: skip
        specs = [Spec(shape, dtype) for shape, dtype in zip(shapes, call.dtypes, strict=True)]
        graph = call.graph(specs, attrs)
        if graph is None:
            return None
        target = compiler.dialect(index).target
        program = lower(graph, layouts, target, call.sized, replaces=call.replaces)
        if env.serves_one_size():
            return None
        return cls(
            OpenProgram(compiler, call.name, graph, program, env, index), _sizes_of(symbols, env, count)
        )


def _symbols(env: PlanEnv, met: Sequence[tuple[int, ...]], count: int) -> list[Any] | None:
    """Return lengths and strides with symbols for those that differ; None where a stride can have none.

    Lengths that have always been equal are one. A stride is a multiple of a product of lengths if it has
    always been, as that of an axis before others is, else a symbol of its own, as that of padded rows is.
    """
    symbols: list[Any] = []
    named: dict[tuple[int, ...], Any] = {}
    for k, column in enumerate(zip(*met, strict=True)):
        if all(n == column[0] for n in column):
            symbols.append(column[0])
            continue
        symbol = named.get(column) if k < count else _product(column, named)
        if symbol is None:
            if k >= count and min(column) < 1:
                return None
            least = MIN_OPEN_LENGTH if k < count else 1
            symbol = named[column] = env.symbol(f"s{len(named)}", column[-1], least=least)
        symbols.append(symbol)
    return symbols


def _product(column: tuple[int, ...], named: Mapping[tuple[int, ...], Any]) -> Any:
    """Return the multiple of a product of lengths that a stride has always been, or None."""
    if column in named:
        return named[column]
    for many in range(1, MAX_FACTORS + 1):
        for factors in combinations(named.items(), many):
            products = [prod(numbers) for numbers in zip(*[of for of, _ in factors], strict=True)]
            times = column[-1] // products[-1]
            if times and all(n == times * p for n, p in zip(column, products, strict=True)):
                return times * prod([symbol for _, symbol in factors])
    return None


def _sizes_of(symbols: Sequence[Any], env: PlanEnv, count: int) -> Sizes:
    """Return the function that takes the numbers of a call to the values of the symbols.

    It returns None for numbers that are not those of the plan, or for which its conditions do not hold.
    """
    lines = ["def sizes(v):"]
    named: set[str] = set()
    for k, symbol in enumerate(symbols):
        text = str(symbol)
        if text in env.symbols and text not in named:
            named.add(text)
            lines.append(f"    {text} = v[{k}]")
            lines.append(f"    if {text} < {MIN_OPEN_LENGTH if k < count else 1}: return None")
        else:
            lines.append(f"    if v[{k}] != {text}: return None")
    lines += [f"    if not ({condition}): return None" for condition in env.conditions]
    lines.append(f"    return ({', '.join(env.symbols)},)")
    scope: dict[str, Any] = {"__builtins__": {}, **FUNCTIONS}
    exec("\n".join(lines), scope)
    function: Sizes = scope["sizes"]
    return function
