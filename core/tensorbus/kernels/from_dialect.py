"""Kernels generated from a dialect: each op through the same code generator that compiles whole graphs.

An eager call is a graph of one op, or of its decomposition. Its launches are worked out once for each pattern
of shapes and strides; the code is compiled once for each structure, whatever the sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from ..backend_interface.graph import Graph, Node
from ..backend_interface.protocols import Call, Kernel, KernelTable, Shape
from ..backend_interface.strided_array import StridedArray
from ..dtypes.definition import DType, bool_
from ..errors import UnsupportedDtypeError
from ..lowering.codegen.dialect import Dialect
from ..lowering.op_sets import ELEMENTWISE, INLINED, OPTIONAL, REDUCTIONS, SCHEDULED, accumulator
from ..ops import lazy_families
from ..ops.definition import Spec, table
from ..ops.fused_update import is_fused_update
from ..system.weak_tables import WeakTable
from .generated_program import NOTHING, Compiler, GeneratedProgram
from .open_program import SizedProgram
from .open_shapes import OpenCall, OpenShapes
from .strided_views import strided_views

MAX_PROGRAMS: Final = 256
Known = dict[Any, GeneratedProgram | SizedProgram]
"""Programs by how their operands lie."""
_COPIES: Final[WeakTable[Any, tuple[Known, OpenShapes]]] = WeakTable()
"""Kernels that copy values that are not in C order, by compiler, and by dtype, unit, shape and strides."""
OPEN_ATTRS: Final = {"iota": "length", "full": "shape"}
"""Attributes that are lengths, so that other values of them are another size of the same call."""
MAX_CONCAT_OPERANDS: Final = 16
"""The most operands of a concat that one kernel reads: its code and its parameters grow with each."""


GENERATED_COMPOSITES: Final = (
    "mean", "random_bits", "fold", "max_pool", "take_along_axis", "scatter_along_axis"
)  # fmt: skip
"""Composites that a device whose kernels are all generated names in ``fused``: a launch each, not several."""


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
    copies = _COPIES.get(compiler)
    if copies is None:
        copies = _COPIES.setdefault(compiler, ({}, OpenShapes(compiler)))
    known, programs = copies
    key = (x.dtype, index, x.shape, x.strides, x.offset != 0)
    kernel = known.get(key)
    if kernel is None:
        call = OpenCall(name="copy", key=x.dtype, dtypes=(x.dtype,), graph=_copy)
        kernel = _keep(known, key, programs.program(call, [x], index))
    if kernel is None:
        graph = _copy((Spec(x.shape, x.dtype),), {})
        kernel = known[key] = GeneratedProgram(compiler, "copy", graph, [x], index)
    return kernel.run([x])


def _copy(specs: Sequence[Spec], _: Mapping[str, Any]) -> Graph:
    """Return the graph of a copy: a cast to its own dtype makes the node one that must be computed."""
    node = Node(op="input", spec=specs[0])
    copy = Node(op="cast", inputs=(node,), attrs={"dtype": node.spec.dtype}, spec=node.spec)
    return Graph(inputs=(node,), outputs=(copy,))


Program = TypeVar("Program", bound="GeneratedProgram | SizedProgram | None")


def _keep(known: Known, key: Any, program: Program) -> Program:
    """Keep a program, if it is one, and return it."""
    if program is not None:
        if len(known) >= MAX_PROGRAMS:
            known.clear()
        known[key] = program
    return program


def _references(x: StridedArray) -> int:
    return sys.getrefcount(x.buffer)


_UNSHARED_REFERENCES: Final = _references(StridedArray([], (), (), 0, bool_))


def is_alone(compiler: Any, x: StridedArray, index: int) -> bool:
    """Return whether nothing but ``x`` refers to its packed memory, and what is queued next may write there.

    ``compiler`` has ``is_own(buffer, index)``.
    """
    if x.offset or not x.is_contiguous or _references(x) != _UNSHARED_REFERENCES:
        return False
    return bool(compiler.is_own(x.buffer, index))


class _Preparer:
    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self._open = OpenShapes(compiler)

    def __call__(self, call: Call) -> Callable[..., Any]:
        compiler, index = self.compiler, call.index
        _check_dtypes(compiler, call)
        if call.op == "concat" and len(call.dtypes) > MAX_CONCAT_OPERANDS:
            return self._in_groups(call)
        known: Known = {}
        open_call = _open_call(call, compiler.dialect(index))

        def kernel_of(values: Sequence[Any]) -> GeneratedProgram | SizedProgram:
            key = _layouts(values)
            kernel = known.get(key)
            if kernel is None and open_call is not None:
                kernel = _keep(known, key, self._open.program(open_call, values, index))
            if kernel is None:
                graph = _graph(call, values, compiler.dialect(index))
                kernel = _keep(known, key, GeneratedProgram(compiler, call.op, graph, values, index))
            return kernel

        if call.op in table and table[call.op].results:
            return lambda *values: tuple(kernel_of(values).every(values))
        if len(call.dtypes) == 2:
            return _of_two(known, kernel_of)
        return lambda *values: kernel_of(values).run(values)

    def over(self, call: Call, place: int) -> Callable[..., bool] | None:
        """Return what writes the result of an elementwise op over an operand that lies packed."""
        compiler, index = self.compiler, call.index
        if getattr(compiler, "is_own", None) is None or call.op not in ELEMENTWISE:
            return None
        known: Known = {}
        open_call = _open_call(call, compiler.dialect(index), {0: place})

        def write(*values: Any) -> bool:
            if not is_alone(compiler, values[place], index):
                return False
            kernel = known.get(key := _layouts(values))
            if kernel is None and open_call is not None:
                kernel = _keep(known, key, self._open.program(open_call, values, index))
            if kernel is None:
                graph = _graph(call, values, compiler.dialect(index))
                program = GeneratedProgram(compiler, call.op, graph, values, index, {0: place})
                kernel = _keep(known, key, program)
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


def _of_two(
    known: Known, kernel_of: Callable[[Sequence[Any]], GeneratedProgram | SizedProgram]
) -> Callable[[Any, Any], StridedArray]:
    """Return what runs the kernel of two operands: most calls have two, whose key is made in place."""

    def run(x: Any, y: Any) -> StridedArray:
        if type(x) is StridedArray and type(y) is StridedArray:
            key = (x.shape, x.strides, x.offset != 0), (y.shape, y.strides, y.offset != 0)
            kernel = known.get(key)
            if kernel is not None:
                return kernel.run((x, y))
        return kernel_of((x, y)).run((x, y))

    return run


def _layouts(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return what the launches for operands depend on: how they lie; None for a Python number."""
    return tuple([(v.shape, v.strides, v.offset != 0) if type(v) is StridedArray else None for v in values])


class GeneratedPrograms:
    """Kernels of several ops: see ``compilation.FusedKernels``."""

    least: Final = 0

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self._open = OpenShapes(compiler)

    def keeps(self, op: str, index: int) -> bool:
        """Return whether the code generator pulls an op into kernels, reduces by it, scatters or updates."""
        if op in OPTIONAL:
            return OPTIONAL[op] in self.compiler.dialect(index).expressions
        return op in INLINED or op in REDUCTIONS or op == "scatter" or is_fused_update(op)

    def prepare(
        self, name: str, graph: Graph, index: int, replaces: Mapping[int, int] = NOTHING
    ) -> Callable[[Sequence[Any]], list[Any]] | None:
        """Return what runs a graph of arrays, whose launches are worked out once for each way they lie."""
        compiler = self.compiler
        if not self._has_types(graph, index):
            return None
        from ..decompose.update_bodies import with_bodies

        graph = with_bodies(graph)
        known: dict[Any, GeneratedProgram] = {}
        arrays = [k for k, node in enumerate(graph.inputs) if "scalar" not in node.attrs]
        last: tuple[Any, Any] = None, None  # a layout, and the program for it

        def run(values: Sequence[Any]) -> list[Any]:
            nonlocal last
            # Shapes are the graph's, and tuples of strides the same objects: equal at once, and never hashed.
            layout = [values[k].strides for k in arrays], [values[k].offset for k in arrays]
            before, kernel = last
            if layout != before:
                kernel = bound(values)
                last = layout, kernel
            results: list[Any] = kernel.all(values)
            return results

        def bound(values: Sequence[Any]) -> GeneratedProgram:
            key = _layouts(values)
            kernel = known.get(key)
            if kernel is None:
                if len(known) >= MAX_PROGRAMS:
                    known.clear()
                kernel = known[key] = GeneratedProgram(compiler, name, graph, values, index, replaces)
            return kernel

        return run

    def prepare_open(
        self, name: str, key: Any, trace: Callable[[Sequence[Spec]], Graph | None], graph: Graph, index: int
    ) -> _AnyShapes | None:
        """Return what runs a function for operands of any shapes; None where the language lacks a dtype.

        ``graph`` is that for operands of some shapes, ``trace`` returns it for others.
        """
        if not self._has_types(graph, index):
            return None
        dtypes = tuple([node.spec.dtype for node in graph.inputs])
        call = OpenCall(name=name, key=key, dtypes=dtypes, graph=lambda specs, _: trace(specs))
        return _AnyShapes(self.compiler, self._open, call, index)

    def _has_types(self, graph: Graph, index: int) -> bool:
        types = self.compiler.dialect(index).types
        return all(d in types for n in graph for d in (n.spec.dtype, accumulator(n.spec.dtype)))


class _AnyShapes:
    """The programs of a function for operands of any shapes: see ``compilation.OpenRun``."""

    def __init__(self, compiler: Compiler, programs: OpenShapes, call: OpenCall, index: int) -> None:
        self._compiler, self._programs, self._call, self._index = compiler, programs, call, index
        self._known: Known = {}

    def serves(self, values: Sequence[Any]) -> bool:
        """Return whether there is a program for these values without tracing the function for them."""
        key = _layouts(values)
        return key in self._known or self._opened(key, values) is not None

    def _opened(self, key: Any, values: Sequence[Any]) -> GeneratedProgram | SizedProgram | None:
        return _keep(self._known, key, self._programs.program(self._call, values, self._index))

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """Return the results for values, of shapes that ``serves`` or that the function was traced for."""
        key = _layouts(values)
        kernel = self._known.get(key) or self._opened(key, values)
        if kernel is None:
            call = self._call
            graph = call.graph([Spec(v.shape, d) for v, d in zip(values, call.dtypes, strict=True)], {})
            assert graph is not None, "it was traced for these shapes"
            program = GeneratedProgram(self._compiler, call.name, graph, values, self._index)
            kernel = _keep(self._known, key, program)
        return kernel.every(values)


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
    if _is_whole(call, dialect):
        inputs = tuple(Node(op="input", attrs={"index": k}, spec=s) for k, s in enumerate(specs))
        shape = call.out_shape if call.out_shape is not None else _broadcast(shapes)
        out = Node(op=call.op, inputs=inputs, attrs=call.attrs, spec=Spec(shape, call.out_dtype))
        if not (call.op in table and table[call.op].results):
            return Graph(inputs=inputs, outputs=(out,))
        from ..decompose.tracer import graph_of_op

        return graph_of_op(call.op, specs, call.attrs)
    from ..decompose.tracer import trace

    return trace(call.op, specs, call.attrs)


def _open_call(call: Call, dialect: Dialect, replaces: Mapping[int, int] = NOTHING) -> OpenCall | None:
    """Return a call as one whose lengths may be open; None where a text does not tell its attributes."""
    if call.op not in table or not all(map(_is_plain, call.attrs.values())):
        return None
    name = OPEN_ATTRS.get(call.op)
    attrs = {} if name is None else {name: call.attrs[name]}
    fixed = sorted((key, value) for key, value in call.attrs.items() if key != name)
    is_whole = _is_whole(call, dialect)

    def graph(specs: Sequence[Spec], lengths: Mapping[str, Any]) -> Graph | None:
        from ..decompose.tracer import graph_of_op, trace

        traced = (graph_of_op if is_whole else trace)(call.op, specs, {**call.attrs, **lengths})
        return traced if traced.outputs[0].spec.dtype is call.out_dtype else None

    return OpenCall(
        name=call.op, key=(call.op, call.dtypes, call.out_dtype, repr(fixed), *replaces.items()),
        dtypes=call.dtypes, graph=graph, attrs=attrs, sized=table[call.op].family != "elementwise",
        replaces=replaces,
    )  # fmt: skip


def _is_plain(x: Any) -> bool:
    """Return whether a text tells an attribute from all others."""
    if type(x) is tuple:
        return all(map(_is_plain, x))
    return x is None or type(x) in (int, float, bool, str, complex, DType)


def _is_whole(call: Call, dialect: Dialect) -> bool:
    """Return whether a schedule knows the op itself."""
    whole = call.op in ELEMENTWISE or call.op in SCHEDULED or call.op in _WHOLE_OPS
    return whole or OPTIONAL.get(call.op) in dialect.expressions


_WHOLE_FAMILIES: Final = frozenset({"elementwise", "softmax", "normalization"})
_WHOLE_OPS: Final = frozenset({"pad", "concat", "slice_update", "gather", "iota", "full"})


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    from ..ops.elementwise.family import broadcast_shapes

    return broadcast_shapes(*shapes)
