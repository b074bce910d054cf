"""Kernels generated from a dialect: each op through the same code generator that compiles whole graphs.

An eager call is a graph of one op, or of its decomposition. Its launches are worked out once for each pattern
of shapes and strides; the code is compiled once for each structure, whatever the sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Protocol

from ..backend_interface.graph import Graph, Node
from ..backend_interface.protocols import Call, Kernel, KernelTable, Shape
from ..backend_interface.strided_array import StridedArray
from ..dtypes.definition import DType, Scalar, bool_
from ..errors import UnsupportedDtypeError
from ..lowering.codegen.dialect import Dialect
from ..lowering.codegen.render import render
from ..lowering.ir.builder import Launch, RuntimeArg, fit
from ..lowering.ir.kernel_task import COUNTS_SLOT, ERROR_SLOT
from ..lowering.ir.layout import Layout
from ..lowering.ir.verify import verify
from ..lowering.op_sets import ELEMENTWISE, INLINED, OPTIONAL, REDUCTIONS, SCHEDULED, accumulator
from ..lowering.program.lower import lower
from ..lowering.program.program import Program, steps_of
from ..ops import lazy_families
from ..ops.definition import Spec, table
from ..ops.fused_update import is_fused_update
from ..system.weak_tables import WeakTable
from .strided_views import strided_views

_verified: Final[set[str]] = set()
Run = Callable[[Sequence[Any], Sequence[Scalar]], Any]
MAX_PROGRAMS: Final = 256
_COPIES: Final[WeakTable[Any, dict[Any, Any]]] = WeakTable()
"""Kernels that copy values that are not in C order, by compiler, and by dtype, unit, shape and strides."""
MAX_CONCAT_OPERANDS: Final = 16
"""The most operands of a concat that one kernel reads: its code and its parameters grow with each."""


GENERATED_COMPOSITES: Final = (
    "mean", "random_bits", "fold", "max_pool", "take_along_axis", "scatter_along_axis"
)  # fmt: skip
"""Composites that a device whose kernels are all generated names in ``fused``: a launch each, not several."""


class Compiler(Protocol):
    """Turns source into launches on a device, and supplies its memory. ``index`` is the unit."""

    def dialect(self, index: int) -> Dialect:
        """Return the language as the unit speaks it."""
        ...

    def describe(self, index: int) -> str:
        """Return the unit's name, for messages."""
        ...

    def allocate(self, nbytes: int, index: int) -> Any:
        """Return a new buffer. Raises ``OutOfMemoryError``."""
        ...

    def prepare(self, source: str, launch: Launch, index: int) -> Run:
        """Return what runs a kernel with its grid and its static parameters.

        It takes the buffers in order (None for an empty one) and the values of the parameters that are
        ``RuntimeArg``, in order; it may return an event.
        """
        ...

    def errors(self, index: int) -> Any:
        """Return the buffer that kernels report data-dependent errors in, which is looked at when waiting."""
        ...

    def error_code(self, op: str) -> int:
        """Return the number under which kernels report errors of ``op``."""
        ...

    # Where its target has ``counts`` it has ``counts(index)``: the buffer of so many int32, all of them 0, in
    # which what is queued now counts its groups; nothing that may run beside it counts in the same one.
    # It may have ``is_own(buffer, index) -> bool``: whether what is queued next may write over a buffer that
    # nobody else refers to. Without it changes in place make new values. It may have ``template(source,
    # launch, index)``, a launch for many sizes, see ``executors.program_template``: without it each size is
    # prepared.


def from_dialect(compiler: Compiler, fused: Iterable[str] = ()) -> KernelTable:
    """Return the kernels of prims, of composites that take few launches, and of those named in ``fused``."""
    views = strided_views(lambda x, index: pack(compiler, x, index))
    lazy_families.load_all()
    composites = [op.name for op in table if op.family in _WHOLE_FAMILIES]
    names = [*ELEMENTWISE, *SCHEDULED, *_WHOLE_OPS, *composites, *fused]
    kernels: dict[str, Any] = dict(views)
    programs = GeneratedPrograms(compiler)
    for name in names:
        prepare = _Preparer(compiler)
        generated = Kernel(name="generated", prepare=prepare, inplace=prepare.over, programs=programs)
        kernels.setdefault(name, generated)
    return kernels


def pack(compiler: Compiler, x: StridedArray, index: int) -> StridedArray:
    """Return ``x`` in C order: itself where it is, else a copy."""
    if x.is_contiguous and x.offset == 0:
        return x
    known = _COPIES.setdefault(compiler, {})
    key = (x.dtype, index, x.shape, x.strides, x.offset != 0)
    kernel = known.get(key)
    if kernel is None:
        if len(known) >= MAX_PROGRAMS:
            known.clear()
        node = Node(op="input", spec=Spec(x.shape, x.dtype))
        # A cast to its own dtype is a copy, and makes the node one that must be computed.
        copy = Node(op="cast", inputs=(node,), attrs={"dtype": x.dtype}, spec=node.spec)
        graph = Graph(inputs=(node,), outputs=(copy,))
        kernel = known[key] = _Generated(compiler, "copy", graph, [x], index)
    packed: StridedArray = kernel.run([x])
    return packed


def common_buffer(compiler: Any, slot: int, index: int) -> Any:
    """Return the buffer of a slot that is no program's own: where errors are reported, or groups counted."""
    return compiler.counts(index) if slot == COUNTS_SLOT else compiler.errors(index)


def _references(x: StridedArray) -> int:
    return sys.getrefcount(x.buffer)


_UNSHARED_REFERENCES: Final = _references(StridedArray([], (), (), 0, bool_))


class _Preparer:
    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler

    def __call__(self, call: Call) -> Callable[..., Any]:
        compiler, index = self.compiler, call.index
        _check_dtypes(compiler, call)
        if call.op == "concat" and len(call.dtypes) > MAX_CONCAT_OPERANDS:
            return self._in_groups(call)
        known: dict[Any, _Generated] = {}

        def kernel_of(values: Sequence[Any]) -> _Generated:
            key = _lies(values)
            kernel = known.get(key)
            if kernel is None:
                if len(known) >= MAX_PROGRAMS:
                    known.clear()
                kernel = known[key] = _Generated(
                    compiler, call.op, _graph(call, values, compiler.dialect(index)), values, index
                )
            return kernel

        if call.op in table and table[call.op].results:
            return lambda *values: tuple(kernel_of(values).every(values))
        return lambda *values: kernel_of(values).run(values)

    def over(self, call: Call, place: int) -> Callable[..., bool] | None:
        """Return what writes the result of an elementwise op over an operand that lies packed."""
        compiler, index = self.compiler, call.index
        is_own = getattr(compiler, "is_own", None)
        if is_own is None or call.op not in ELEMENTWISE:
            return None
        known: dict[Any, _Generated] = {}

        def write(*values: Any) -> bool:
            x = values[place]
            if (
                x.offset
                or not x.is_contiguous
                or _references(x) != _UNSHARED_REFERENCES
                or not is_own(x.buffer, index)
            ):
                return False
            kernel = known.get(key := _lies(values))
            if kernel is None:
                if len(known) >= MAX_PROGRAMS:
                    known.clear()
                graph = _graph(call, values, compiler.dialect(index))
                kernel = known[key] = _Generated(compiler, call.op, graph, values, index, {0: place})
            return kernel.written(values)

        return write

    def _in_groups(self, call: Call) -> Callable[..., StridedArray]:
        """Return what concatenates many operands: groups of them first, then the groups."""
        assert call.shapes is not None  # only plans of elementwise ops leave them open
        groups = [slice(k, k + MAX_CONCAT_OPERANDS) for k in range(0, len(call.dtypes), MAX_CONCAT_OPERANDS)]
        group_calls = [_concat_call(call, call.shapes[group]) for group in groups]
        parts = [self(part) for part in group_calls]
        whole = self(_concat_call(call, tuple(part.out_shape or () for part in group_calls)))

        def run(*values: Any) -> Any:
            return whole(*[part(*values[group]) for part, group in zip(parts, groups, strict=True)])

        return run


def _lies(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return what the launches for operands depend on: how they lie; None for a Python number."""
    return tuple([(v.shape, v.strides, v.offset != 0) if type(v) is StridedArray else None for v in values])


class GeneratedPrograms:
    """Kernels of several ops: see ``compilation.FusedKernels``."""

    least: Final = 0

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler

    def keeps(self, op: str, index: int) -> bool:
        """Return whether the code generator pulls an op into kernels, reduces by it, scatters or updates."""
        if op in OPTIONAL:
            return OPTIONAL[op] in self.compiler.dialect(index).expressions
        return op in INLINED or op in REDUCTIONS or op == "scatter" or is_fused_update(op)

    def prepare(self, name: str, graph: Graph, index: int) -> Callable[[Sequence[Any]], list[Any]] | None:
        """Return what runs a graph of arrays, whose launches are worked out once for each way they lie."""
        compiler, types = self.compiler, self.compiler.dialect(index).types
        if not all(d in types for n in graph for d in (n.spec.dtype, accumulator(n.spec.dtype))):
            return None
        from ..decompose.update_bodies import with_bodies

        graph = with_bodies(graph)
        known: dict[Any, _Generated] = {}

        def run(values: Sequence[Any]) -> list[Any]:
            key = _lies(values)
            kernel = known.get(key)
            if kernel is None:
                if len(known) >= MAX_PROGRAMS:
                    known.clear()
                kernel = known[key] = _Generated(compiler, name, graph, values, index)
            return kernel.every(values)

        return run


def _concat_call(call: Call, shapes: tuple[Shape, ...]) -> Call:
    """Return the concat of operands of ``shapes``, otherwise like ``call``."""
    axis = call.attrs["axis"]
    length = sum(shape[axis] for shape in shapes)
    out = (*shapes[0][:axis], length, *shapes[0][axis + 1 :])
    count = len(shapes)
    return replace(call, dtypes=call.dtypes[:count], weak=call.weak[:count], shapes=shapes, out_shape=out)


def _check_dtypes(compiler: Compiler, call: Call) -> None:
    known = compiler.dialect(call.index).types
    for d in (*call.dtypes, call.out_dtype, *map(accumulator, call.dtypes)):
        if d not in known:
            names = ", ".join(t.name for t in known)
            raise UnsupportedDtypeError(
                f"{call.op}: {compiler.describe(call.index)} has no {d}; it has {names}."
                f" Cast with .to(dtype), or move to another device."
            )


def _graph(call: Call, values: Sequence[Any], dialect: Dialect) -> Graph:
    """Return the graph of one call: the op itself where a schedule knows it, else its decomposition."""
    shapes = [v.shape if type(v) is StridedArray else () for v in values]
    specs = [Spec(s, d) for s, d in zip(shapes, call.dtypes, strict=True)]
    whole = call.op in ELEMENTWISE or call.op in SCHEDULED or call.op in _WHOLE_OPS
    if whole or OPTIONAL.get(call.op) in dialect.expressions:
        inputs = tuple(Node(op="input", attrs={"index": k}, spec=s) for k, s in enumerate(specs))
        shape = call.out_shape if call.out_shape is not None else _broadcast(shapes)
        out = Node(op=call.op, inputs=inputs, attrs=call.attrs, spec=Spec(shape, call.out_dtype))
        if not (call.op in table and table[call.op].results):
            return Graph(inputs=inputs, outputs=(out,))
        from ..decompose.tracer import graph_of_op

        return graph_of_op(call.op, specs, call.attrs)
    from ..decompose.tracer import trace

    return trace(call.op, specs, call.attrs)


_WHOLE_FAMILIES: Final = frozenset({"elementwise", "softmax", "normalization"})
_WHOLE_OPS: Final = frozenset({"pad", "concat", "slice_update", "gather", "iota", "full"})


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    from ..ops.elementwise.family import broadcast_shapes

    return broadcast_shapes(*shapes)


class _Generated:
    """A program bound to a device: what one pattern of operands runs."""

    def __init__(
        self, compiler: Compiler, op: str, graph: Graph, values: Sequence[Any], index: int,
        replaces: Mapping[int, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        dialect = compiler.dialect(index)
        layouts = [
            Layout(k, v.shape, v.strides, 0, k if v.offset else None) if type(v) is StridedArray else None
            for k, v in enumerate(values)
        ]
        sized = op not in table or table[op].family != "elementwise"
        program = lower(graph, layouts, dialect.target, sized, replaces=replaces)
        self.compiler = compiler
        self.index = index
        self.sizes = {
            slot: max(size, 1) * d.itemsize if size else 0 for slot, (size, d) in program.sizes.items()
        }
        self.program: Program = program
        self.dtypes: list[DType] = [x.spec.dtype for x in graph.outputs]
        steps = [step for item in program.steps for step in steps_of(item)]
        self.steps = [self._bind(op, step.launch, step.slots, graph, dialect) for step in steps]
        last = max([*self.sizes, *[x.slot for x in program.outputs]], default=-1)
        self._room = [None] * (max(last + 1 - len(values), 0) - min(ERROR_SLOT, COUNTS_SLOT))
        self._schedule = self._scheduled(len(values))
        self._results = [
            (x.slot, x.shape, x.strides, x.offset, x.late, dtype)
            for x, dtype in zip(program.outputs, self.dtypes, strict=True)
        ]
        run = self._single() or self._one_launch()
        self.run: Callable[[Sequence[Any]], StridedArray] = run or self._first

    def _bind(
        self, op: str, launch: Launch, slots: tuple[int, ...], graph: Graph, dialect: Dialect
    ) -> tuple[Run, tuple[int, ...], tuple[Callable[[Sequence[Any]], Any], ...]]:
        late: list[Callable[[Sequence[Any]], Any]] = []
        values: list[Any] = []
        for value in launch.values:
            if isinstance(value, RuntimeArg) and value.what == "code":
                value = self.compiler.error_code(op)
            elif isinstance(value, RuntimeArg):
                late.append(_reader(value, graph))
            values.append(value)
        bound = replace(launch, values=tuple(values))
        source = render(launch.kernel, dialect)
        if source not in _verified:
            verify(launch.kernel)
            _verified.add(source)
        return self.compiler.prepare(source, bound, self.index), slots, tuple(late)

    def _single(self) -> Callable[[Sequence[Any]], StridedArray] | None:
        """Return the short way for one launch into one new buffer, which most calls are."""
        out = self.program.outputs[0]
        if len(self.steps) != 1 or len(self.sizes) != 1 or out.slot not in self.sizes:
            return None
        launch, slots, late = self.steps[0]
        compiler, index, nbytes = self.compiler, self.index, self.sizes[out.slot]
        if ERROR_SLOT in slots:
            return None
        shape, strides, offset, dtype, own = out.shape, out.strides, out.offset, self.dtypes[0], out.slot

        def run(values: Sequence[Any]) -> StridedArray:
            buffer = compiler.allocate(nbytes, index)
            launch(
                [buffer if s == own else values[s].buffer for s in slots],
                [read(values) for read in late] if late else (),
            )
            return StridedArray(buffer, shape, strides, offset, dtype)

        return run

    def _one_launch(self) -> Callable[[Sequence[Any]], StridedArray] | None:
        """Return the short way for one launch that needs more memory than its result, which is new."""
        out = self.program.outputs[0]
        if len(self.steps) != 1 or out.late is not None or not self.sizes.get(out.slot):
            return None
        launch, slots, late = self.steps[0]
        compiler, index, dtype = self.compiler, self.index, self.dtypes[0]
        shape, strides, offset = out.shape, out.strides, out.offset
        inputs = [s for s in slots if s >= 0 and s not in self.sizes]
        own = [*dict.fromkeys([out.slot, *(s for s in slots if s in self.sizes)])]
        common = [s for s in slots if s < 0]
        nbytes = [self.sizes[s] for s in own]
        order = [[*own, *inputs, *common].index(s) for s in slots]

        def run(values: Sequence[Any]) -> StridedArray:
            blocks = [compiler.allocate(n, index) if n else None for n in nbytes]
            buffer = blocks[0]
            blocks += [values[s].buffer for s in inputs]
            blocks += [common_buffer(compiler, s, index) for s in common]
            launch([blocks[k] for k in order], [read(values) for read in late] if late else ())
            return StridedArray(buffer, shape, strides, offset, dtype)

        return run

    def written(self, values: Sequence[Any]) -> bool:
        """Write the result over the operand that it replaces; return whether that can be done."""
        (out,), over = self.program.outputs, self.program.replaceable.get(0)
        if over is None or len(self.steps) != 1 or ERROR_SLOT in self.steps[0][1]:
            return False
        launch, slots, late = self.steps[0]
        launch([values[over if s == out.slot else s].buffer for s in slots], [read(values) for read in late])
        return True

    def _first(self, values: Sequence[Any]) -> StridedArray:
        return self.every(values)[0]

    def every(self, values: Sequence[Any]) -> list[StridedArray]:
        """Run all launches; return all results."""
        compiler, index = self.compiler, self.index
        allocate = compiler.allocate
        buffers: list[Any] = [v.buffer if type(v) is StridedArray else None for v in values]
        buffers += self._room
        for launch, slots, late, new, common, frees in self._schedule:
            for slot, nbytes in new:
                buffers[slot] = allocate(nbytes, index)
            for slot in common:
                buffers[slot] = common_buffer(compiler, slot, index)
            launch([buffers[s] for s in slots], [read(values) for read in late] if late else ())
            for slot in frees:
                buffers[slot] = None
        return [
            StridedArray(
                buffers[slot], shape, strides, offset if place is None else offset + values[place].offset, d
            )
            for slot, shape, strides, offset, place, d in self._results
        ]  # fmt: skip

    def _scheduled(self, count: int) -> list[Any]:
        """Return each step with the buffers that it is the first to use, what is common, and what it frees.

        Buffers are a list by slot, of ``count`` operands and ``_room``; slots below 0 count from its end.
        """
        seen = {*range(count)}
        schedule: list[Any] = []
        for (launch, slots, late), frees in zip(self.steps, self.program.frees, strict=True):
            new = [s for s in dict.fromkeys(slots) if s >= 0 and s not in seen]
            seen.update(new)
            sized = tuple([(s, self.sizes[s]) for s in new if self.sizes[s]])
            common = tuple(dict.fromkeys([s for s in slots if s < 0]))
            schedule.append((launch, slots, late, sized, common, tuple(frees)))
        return schedule


def _reader(late: RuntimeArg, graph: Graph) -> Callable[[Sequence[Any]], Any]:
    operand, plus = late.operand, late.plus
    if late.what == "offset":
        return lambda values: values[operand].offset + plus
    dtype = graph.inputs[operand].spec.dtype
    return lambda values: fit(values[operand], dtype)
