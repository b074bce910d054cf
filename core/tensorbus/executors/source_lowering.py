"""Programs in a device's own language: generated kernels and eager ones, launched in order.

Nothing waits between launches; the device's queue keeps their order. A program is made for the layouts that
its inputs have, and kept for when they come again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

from ..backend_interface.compilation import (
    CompiledForInspection,
    CompileRequest,
    Executable,
    Knob,
    ProgramPart,
    at_sizes,
)
from ..backend_interface.graph import Graph
from ..backend_interface.strided_array import StridedArray
from ..devices.device import Device
from ..kernels.from_dialect import pack
from ..kernels.generated_program import Compiler
from ..lowering.ir.layout import Layout, Shape, packed
from ..lowering.program.program import Program, sized
from ..ops.matmul.matmul_epilogue import NAME as AFFINE
from ..system.items import items_at
from ..tracing.plan_env import PlanEnv
from ..tracing.sym_int import is_open, substitution
from .legalize import LegalizeContext, is_generated, legalize
from .library_call import has_kernel
from .program_template import ProgramTemplate
from .source_program import BoundProgram, lowered

MAX_KNOWN_PROGRAMS: Final = 64
_STRIDES, _OFFSET = attrgetter("strides"), attrgetter("offset")
RUNS_BEFORE_REPLAY: Final = 16
"""How often a size of a plan is run step by step: a player takes as long to make as it saves in so many."""


class DialectLowering:
    """The lowering of a device with a compiler for generated source.

    ``library`` names the ops that its eager kernels do better than what is generated; ``served`` those for
    which that holds in programs in which a kernel of the device serves every one. The compiler may have
    ``knobs(index)``, choices for core to measure: fields of the dialect's target by their names, and
    ``most``, the most work-items of a group in each launch; ``player(script)``, which says how a program
    is run as a whole, or None; and ``row_stride``, ``axis_orders``, ``side_output`` and
    ``prefers_generated``, those of ``Library``.
    """

    def __init__(
        self, compiler: Compiler, device_type: str, library: Collection[str] = (),
        served: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.compiler = compiler
        self.device_type = device_type
        self.library = frozenset(library)
        self.served = frozenset(served)
        self.modes: Mapping[str, str] = getattr(compiler, "modes", {})

    def knobs(self, order: CompileRequest) -> Sequence[Knob]:
        """Return what the device leaves to measuring."""
        declared = getattr(self.compiler, "knobs", None)
        every: Sequence[Knob] = declared(order.index) if declared is not None else ()
        ops = {node.op for node in order.graph} if any(knob.ops for knob in every) else frozenset()
        return [knob for knob in every if not knob.ops or knob.ops & ops]

    def compile(self, order: CompileRequest) -> Executable:
        """Return the executable of a program; where the language lacks a dtype, its ops are eager kernels."""
        graph, library = self._legal(order)
        return DialectExecutable(self, graph, order, library)

    def compile_symbolic(self, order: CompileRequest, env: PlanEnv) -> SymbolicDialectProgram:
        """Return a program for many sizes.

        Schedules of graphics processors write sizes of local memory and of workgroups into the code, so that
        there is one for each range of lengths that have these in common.
        """
        graph, library = self._legal(order)
        return SymbolicDialectProgram(self, graph, order, library, env)

    def _legal(self, order: CompileRequest) -> tuple[Graph, frozenset[str]]:
        """Return the graph in ops that are generated or calls, and the ops that are calls."""
        dialect = self.compiler.dialect(order.index)
        nodes = [node for node in order.graph if node.op in self.served]
        device = Device(self.device_type, order.index)
        left = {node.op for node in nodes if not has_kernel(node, device)}
        library = self.library | order.calls | ({node.op for node in nodes} - left)
        fuses = AFFINE in self.served
        library |= {AFFINE} if fuses else set()
        context = LegalizeContext(
            keeps=lambda op: op in library or is_generated(op, dialect), dtypes=dialect.types,
            serves=(lambda node: has_kernel(node, device)) if fuses else None,
            row_per_task=dialect.target.row_per_task,
        )  # fmt: skip
        return legalize(order.graph, context), library


class DialectExecutable:
    """A program, called with values of the device: ``StridedArray``, and Python numbers."""

    def __init__(
        self, lowering: DialectLowering, graph: Graph, order: CompileRequest, library: frozenset[str]
    ) -> None:
        self._lowering = lowering
        self._device = Device(lowering.device_type, order.index)
        self._library = library
        self._graph = graph
        self._order = order
        self._known: dict[Any, BoundProgram] = {}
        first = self._bound([
            None if "scalar" in node.attrs else packed(k, node.spec.shape)
            for k, node in enumerate(graph.inputs)
        ])  # fmt: skip
        self._known[first.key] = self._packed = first
        self._arrays = items_at([k for k, node in enumerate(graph.inputs) if "scalar" not in node.attrs])
        self._last: tuple[Any, BoundProgram] = (None, first)
        program = first.program
        self._stages = {
            "graph": str(graph), "schedules": program.schedules(), "loops": str(program), "code": first.source
        }  # fmt: skip

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Queue the program. A bad index is reported when somebody waits for it, as eagerly."""
        # Weights lie where they lay: the same tuples are equal at once, and a key of all takes long to make.
        arrays = self._arrays(values)
        layout = [*map(_STRIDES, arrays)], [*map(_OFFSET, arrays)]
        del arrays  # what the program may write over has no other holder
        known, bound = self._last
        if layout != known:
            bound = self._for_layouts(values)
        self._last = layout, bound  # whose tuples may be the same ones again
        return bound.queue(values)

    def _for_layouts(self, values: Sequence[Any]) -> BoundProgram:
        """Return the program for values that lie like these."""
        key = tuple([(v.strides, v.offset != 0) if type(v) is StridedArray else None for v in values])
        bound = self._known.get(key)
        if bound is None:
            if len(self._known) >= MAX_KNOWN_PROGRAMS:
                self._known.clear()
            bound = self._known[key] = self._bound([
                Layout(k, v.shape, v.strides, 0, k if v.offset else None) if type(v) is StridedArray else None
                for k, v in enumerate(values)
            ])  # fmt: skip
        return bound

    def stages(self) -> Mapping[str, str]:
        """Return the graph, the loops and the source of the program for packed values."""
        return self._stages

    def parts(self) -> Sequence[ProgramPart]:
        """Return the steps of the program for packed values."""
        return self._packed.parts()

    def times(self, values: Sequence[Any]) -> Mapping[str, float]:
        """Run the program for packed values; return the seconds of each step on the device."""
        compiler, index = self._lowering.compiler, self._order.index
        return self._packed.times(
            [pack(compiler, v, index) if type(v) is StridedArray else v for v in values]
        )

    def _bound(self, layouts: Sequence[Layout | None]) -> BoundProgram:
        code = lowered(self._lowering.compiler, self._graph, self._order, layouts, self._library)
        return BoundProgram(self._lowering.compiler, self._device, self._graph, self._order, layouts, code)


class SymbolicDialectProgram:
    """A program that was lowered once, on lengths that are symbols; its kernels take them as parameters.

    A compiler with ``template(source, launch, index) -> LaunchTemplate`` has the launches of all sizes in
    one; without it they are prepared for each. With a true ``replays_sizes`` what plays programs as a whole
    does so for sizes that come again.
    """

    def __init__(
        self, lowering: DialectLowering, graph: Graph, order: CompileRequest, library: frozenset[str],
        env: PlanEnv,
    ) -> None:  # fmt: skip
        self.lowering, self.order, self._graph = lowering, order, graph
        self._device = Device(lowering.device_type, order.index)
        compiler = lowering.compiler
        self._layouts = [
            None if "scalar" in node.attrs else packed(k, node.spec.shape)
            for k, node in enumerate(graph.inputs)
        ]
        self._lowered = lowered(compiler, graph, order, self._layouts, library)
        self._has_open = [x is not None and is_open((x.shape, x.strides)) for x in self._layouts]
        self._substitute = substitution(env.symbols, self._closed)
        self._holds = env.holds()
        self._replays_sizes = getattr(compiler, "replays_sizes", False)
        self._template: ProgramTemplate | None = None
        if hasattr(compiler, "template"):
            self._template = ProgramTemplate(
                compiler, self._device, graph, order, self._layouts, self._lowered, [*env.symbols]
            )

    def _closed(self, close: Callable[[Any], Any]) -> tuple[Program, Sequence[Layout | None]]:
        """Return the program and the layouts of its inputs with the lengths that ``close`` gives."""
        layouts = [
            Layout(x.slot, close(x.shape), close(x.strides)) if x is not None and has_open else x
            for x, has_open in zip(self._layouts, self._has_open, strict=True)
        ]
        return sized(self._lowered[0], close), layouts

    def at(self, sizes: Mapping[str, int]) -> Executable | None:
        """Return the executable for these sizes; None where the program does not hold for them."""
        if not self._holds(**sizes):
            return None
        if self._template is None:
            bound, strides = self._bound(sizes, first_play=2)
            return SizedDialectExecutable(self, sizes, bound.queue, strides) if bound.places_results else None
        size = self._template.at(sizes)
        if size is None:
            return None
        again = partial(self._replayed, dict(sizes)) if self._replays_sizes else None
        return SizedDialectExecutable(self, sizes, partial(self._template.run, size), size.strides, again)

    def _bound(
        self, sizes: Mapping[str, int], first_play: int
    ) -> tuple[BoundProgram, Sequence[Shape | None]]:  # fmt: skip
        """Return the program with launches prepared for these sizes, and the strides of its inputs."""
        program, layouts = self._closed(self._substitute(sizes))
        code = program, self._lowered[1]
        bound = BoundProgram(
            self.lowering.compiler, self._device, self._graph, self.order, layouts, code, first_play
        )  # fmt: skip
        return bound, [None if x is None else x.strides for x in layouts]

    def _replayed(self, sizes: Mapping[str, int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Return what runs the program for sizes that come again."""
        return self._bound(sizes, first_play=1)[0].queue


class SizedDialectExecutable(CompiledForInspection[DialectExecutable]):
    """A program for one set of sizes, called with values of the device: it packs those that are not.

    Behind ``RUNS_BEFORE_REPLAY`` runs it is run by what ``again`` returns, where there is such a thing.
    """

    def __init__(
        self, plan: SymbolicDialectProgram, sizes: Mapping[str, int],
        run: Callable[[Sequence[Any]], Sequence[Any]], strides: Sequence[Shape | None],
        again: Callable[[], Callable[[Sequence[Any]], Sequence[Any]]] | None = None,
    ) -> None:  # fmt: skip
        self._plan, self._sizes, self._run, self._again = plan, dict(sizes), run, again
        self._arrays = [k for k, x in enumerate(strides) if x is not None]
        self._strides = [x for x in strides if x is not None]
        self._remaining = RUNS_BEFORE_REPLAY

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Queue the program. A bad index is reported when somebody waits for it, as eagerly."""
        arrays = self._arrays
        if [values[k].strides for k in arrays] != self._strides or any(values[k].offset for k in arrays):
            compiler, index = self._plan.lowering.compiler, self._plan.order.index
            values = [pack(compiler, v, index) if type(v) is StridedArray else v for v in values]
        again = self._again  # another thread may have asked meanwhile
        if again is not None:
            if self._remaining <= 0:
                self._run, self._again = again(), None
            self._remaining -= 1
        return self._run(values)

    def compile_whole(self) -> DialectExecutable:
        """Return the program compiled for these sizes alone."""
        whole = self._plan.lowering.compile(at_sizes(self._plan.order, self._sizes))
        assert isinstance(whole, DialectExecutable)
        return whole
