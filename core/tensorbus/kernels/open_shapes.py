"""Programs of one op for many shapes, so that a length which changes at each call is not lowered each time.

An op whose operands have had several shapes, in a text that grows or batches of any size, is lowered once on
lengths that are symbols. A new shape then takes what binding its launches takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..backend_interface.graph import Graph
from ..backend_interface.protocols import Call, Shape
from ..backend_interface.strided_array import StridedArray
from ..decompose.tracer import graph_of_op, trace
from ..dtypes.definition import DType
from ..lowering.codegen.dialect import Dialect
from ..lowering.codegen.render import render
from ..lowering.ir.layout import packed
from ..lowering.program.lower import lower
from ..lowering.program.program import Program, sized
from ..ops.definition import Spec, table
from ..system import fork_safe_locks
from ..tracing.plan_env import PlanEnv
from ..tracing.sym_int import substitution

SHAPES_BEFORE_PLAN: Final = 4
"""How many shapes of one pattern are lowered by themselves: lengths that differ among them are then open."""
MAX_PLANS: Final = 6
"""How many plans a pattern has, for lengths below and above what decides how it is computed."""
MAX_PATTERNS: Final = 256
MIN_OPEN_LENGTH: Final = 2
"""The least open length: those of 0 and 1 are broadcast, or leave nothing to do."""
Places = tuple[tuple[int, int], ...]
"""Operands and axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeProgram:
    """A program for operands of some shapes, its graph, and the source of each kernel by its id."""

    graph: Graph
    program: Program
    sources: Mapping[int, str]


@dataclass(slots=True)
class _Pattern:
    """The shapes that one call has had, each by the shapes of its operands, and the plans made of them."""

    shapes: list[tuple[Shape, ...]] = field(default_factory=list)
    plans: list[_Plan] = field(default_factory=list)
    closed: bool = False


class OpenShapes:
    """The plans of one op on a device. ``dialect(index)`` is the language of a unit."""

    def __init__(self, dialect: Callable[[int], Dialect]) -> None:
        self._dialect = dialect
        self._patterns: dict[Any, _Pattern] = {}
        self._lock = fork_safe_locks.simple()

    def program(self, call: Call, values: Sequence[Any], is_whole: bool) -> ShapeProgram | None:
        """Return the program of a call for these values; None where they are to be lowered by themselves.

        ``is_whole``: a schedule knows the op itself, and it is not decomposed.
        """
        arrays = [v for v in values if type(v) is StridedArray]
        if call.op not in table or not arrays or not all(v.offset == 0 and v.is_contiguous for v in arrays):
            return None
        pattern = self._pattern(call, values)
        if pattern is None:
            return None
        shapes = tuple([v.shape if type(v) is StridedArray else () for v in values])
        for plan in pattern.plans:
            known = plan.at(shapes)
            if known is not None:
                return known
        with self._lock:
            if pattern.closed:
                return None
            if shapes not in pattern.shapes:
                pattern.shapes.append(shapes)
            if len(pattern.shapes) < SHAPES_BEFORE_PLAN:
                return None
            met = pattern.shapes
            if any(min(lengths) < MIN_OPEN_LENGTH for lengths in _lengths(met)):
                pattern.shapes = met[1:]
                return None
            pattern.shapes = []
            new = _plan(call, values, met, self._dialect(call.index), is_whole)
            pattern.closed = new is None or len(pattern.plans) + 1 >= MAX_PLANS
            if new is None:
                return None
            pattern.plans = [new, *pattern.plans]
        return new.at(shapes)

    def _pattern(self, call: Call, values: Sequence[Any]) -> _Pattern | None:
        """Return what calls that differ in lengths alone share; None for attributes without a key."""
        if not all(map(_is_plain, call.attrs.values())):
            return None
        ranks = tuple([len(v.shape) if type(v) is StridedArray else -1 for v in values])
        key = (call.dtypes, call.out_dtype, call.index, ranks, repr(sorted(call.attrs.items())))
        pattern = self._patterns.get(key)
        if pattern is None:
            if len(self._patterns) >= MAX_PATTERNS:
                self._patterns.clear()
            pattern = self._patterns[key] = _Pattern()
        return pattern


class _Plan:
    """A program with open lengths: ``symbols`` has the places of each, ``fixed`` all other lengths."""

    def __init__(
        self, graph: Graph, program: Program, sources: Mapping[int, str], env: PlanEnv,
        symbols: Mapping[str, Places], fixed: Mapping[tuple[int, int], int],
    ) -> None:  # fmt: skip
        self._graph, self._program, self._sources = graph, program, sources
        self._symbols, self._fixed = symbols, fixed
        self._holds = env.holds()
        self._substitute = substitution(env.symbols, lambda close: sized(program, close))

    def at(self, shapes: Sequence[Shape]) -> ShapeProgram | None:
        """Return the program for operands of these shapes; None where the plan does not serve them."""
        if any(shapes[k][axis] != n for (k, axis), n in self._fixed.items()):
            return None
        sizes: dict[str, int] = {}
        for name, places in self._symbols.items():
            lengths = {shapes[k][axis] for k, axis in places}
            if len(lengths) > 1 or min(lengths) < MIN_OPEN_LENGTH:
                return None
            (sizes[name],) = lengths
        if not self._holds(**sizes):
            return None
        program = sized(self._program, self._substitute(sizes))
        return ShapeProgram(graph=self._graph, program=program, sources=self._sources)


def _lengths(shapes: Sequence[tuple[Shape, ...]]) -> dict[tuple[int, ...], Places]:
    """Return the lengths that differ among shapes, each as it was in all of them, with its places.

    >>> _lengths([((2, 3), (3, 4)), ((5, 3), (3, 4)), ((7, 3), (3, 6))])
    {(2, 5, 7): ((0, 0),), (4, 4, 6): ((1, 1),)}
    """
    places: dict[tuple[int, ...], Places] = {}
    for k, shape in enumerate(shapes[-1]):
        for axis in range(len(shape)):
            lengths = tuple([past[k][axis] for past in shapes])
            if len({*lengths}) > 1:
                places[lengths] = (*places.get(lengths, ()), (k, axis))
    return places


def _is_plain(x: Any) -> bool:
    """Return whether a text tells an attribute from all others."""
    if type(x) is tuple:
        return all(map(_is_plain, x))
    return x is None or type(x) in (int, float, bool, str, complex, DType)


def _plan(
    call: Call, values: Sequence[Any], shapes: Sequence[tuple[Shape, ...]], dialect: Dialect, is_whole: bool
) -> _Plan | None:  # fmt: skip
    """Return the plan of a call whose operands have had these shapes; None where none serves several."""
    symbols = _lengths(shapes)
    every = [(k, axis) for k, shape in enumerate(shapes[-1]) for axis in range(len(shape))]
    is_open = {place for places in symbols.values() for place in places}
    fixed = {(k, axis): shapes[-1][k][axis] for k, axis in every if (k, axis) not in is_open}
    env = PlanEnv()
    lengths_at: dict[tuple[int, int], Any] = dict(fixed)
    named: dict[str, Places] = {}
    for lengths, places in symbols.items():
        name = f"s{len(named)}"
        named[name] = places
        lengths_at |= dict.fromkeys(places, env.symbol(name, lengths[-1], least=MIN_OPEN_LENGTH))
    open_shapes = [
        tuple([lengths_at[k, axis] for axis in range(len(shape))]) for k, shape in enumerate(shapes[-1])
    ]
    specs = [Spec(shape, dtype) for shape, dtype in zip(open_shapes, call.dtypes, strict=True)]
    graph = (graph_of_op if is_whole else trace)(call.op, specs, call.attrs)
    layouts = [
        packed(k, shape) if type(v) is StridedArray else None
        for k, (v, shape) in enumerate(zip(values, open_shapes, strict=True))
    ]
    is_sized = table[call.op].family != "elementwise"
    program = lower(graph, layouts, dialect.target, is_sized)
    if env.serves_one_size() or graph.outputs[0].spec.dtype is not call.out_dtype:
        return None
    sources = {id(kernel): render(kernel, dialect) for kernel in program.kernels()}
    return _Plan(graph, program, sources, env, named, fixed)
