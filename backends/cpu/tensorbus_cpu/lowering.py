"""Compiled programs: a graph as steps of C code, that ``csource/driver.c`` runs in one call from Python.

A program is made for the layouts that its inputs have; other layouts get another one. What is generated, BLAS
and the eager kernels of everything else are steps of one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import (
    CompiledForInspection,
    CompileRequest,
    Dialect,
    Executable,
    Graph,
    Interpreting,
    Knob,
    Layout,
    Library,
    LibraryCall,
    PlanEnv,
    Program,
    ProgramPart,
    SymbolicProgram,
    at,
    at_sizes,
    cached_property,
    is_generated,
    kernel_parts,
    lower,
    parts_of,
    prepared,
)

from .compiler import NATIVE, CCompiler
from .eager.cost_model import PART
from .eager.scatter_add_rows import adds_rows
from .memory import run
from .native.bytecode import BytecodeProgram
from .native.cpu_features import NoCompilerError
from .native.driver import Driver, driver_of, error_raiser, start_compiling, start_compiling_products
from .native.kernel_batch_compiler import KernelUnit, KernelUnits, units_of
from .native.plan_words import PlanWords
from .native.relocatable_program import RelocatableProgram

LIBRARY: Final = frozenset(
    """matmul conv conv_transpose conv_weight fold max_pool max_pool_gradient sort argsort
    argsort_part searchsorted scatter scatter_along_axis cumulative_prod cumulative_max cumulative_min
    logcumsumexp inv eigvalsh eigvals svdvals""".split()
)
"""The ops whose eager kernels, or BLAS, are better than what is generated."""
_AMPLE_BYTES: Final = 1 << 26
"""From that many bytes of temporaries on a plan has no room but what it needs."""
_MAX_LAYOUTS: Final = 8
"""Programs for that many patterns of layouts are kept; others get copies of their values."""


class CpuLowering:
    """Compiles programs to C; without a compiler to calls of kernels."""

    def knobs(self, order: CompileRequest) -> Sequence[Knob]:
        """Return what is measured for ``mode="max-autotune"``."""
        compiler = NATIVE.compiler()
        if compiler is None:
            return ()
        own = compiler.dialect(0).target
        return (
            Knob(name="tiles", usual=1, values=(0, 1), what="what follows a product runs on its tiles"),
            Knob(name="lanes", usual=own.lanes, values=(16, 32, 64, 128), what="sums side by side"),
            Knob(name="tasks_to_fill", usual=own.tasks_to_fill, values=(16, 64), what="parts of long work"),
            Knob(
                name="part", usual=PART, values=(PART >> 2, PART, PART << 2, PART << 4, 1 << 50),
                what="simple operations that a thread takes at a time, at least", each=True,
            ),
        )  # fmt: skip

    def compile(self, order: CompileRequest) -> Executable:
        """Return the executable of a program."""
        tools = NATIVE.tools()
        if tools is None or not NATIVE.answers(tools):
            return Interpreting("cpu").compile(order)
        start_compiling(tools)
        return CpuExecutable(_programs(order, tools), order)

    def compile_symbolic(self, order: CompileRequest, env: PlanEnv) -> SymbolicProgram | None:
        """Return a program for many sizes; None without a compiler."""
        tools = NATIVE.tools()
        if tools is None or not NATIVE.answers(tools):
            return None
        start_compiling(tools)
        programs = _programs(order, tools)
        return CpuSymbolicProgram(programs, order, env) if programs.driver is not None else None


def _programs(order: CompileRequest, tools: CCompiler) -> _Programs:
    dialect, library = tools.dialect(0), LIBRARY | order.calls
    graph = prepared(order.graph, lambda op: op in library or is_generated(op, dialect), dialect.types)
    return _Programs(graph, order, dialect, units_of(tools))


class CpuSymbolicProgram:
    """A program that was lowered once, for sizes that are symbols: the numbers of its bytecode hold them.

    Temporaries lie where they lie for the largest sizes so far, and some room more.
    """

    def __init__(self, programs: _Programs, order: CompileRequest, env: PlanEnv) -> None:
        self._programs, self._order, self._env = programs, order, env
        self._layouts = programs.packed()
        self._program, self._begun = programs.lowered(self._layouts)
        self._template: PlanWords | None = None
        self._set_room(dict(env.hints))
        self._holds = env.holds()

    def at(self, sizes: Mapping[str, int]) -> Executable | None:
        """Return the executable for these sizes; None where the plan does not hold for them."""
        if not self._holds(**sizes):
            return None
        words = self._template.at(sizes) if self._template is not None else None
        if words is None:
            self._set_room(sizes)
            assert self._template is not None
            words = self._template.at(sizes)
            assert words is not None
        driver = self._programs.driver
        assert driver is not None
        return SizedExecutable(self._order, driver, driver.program(words), dict(sizes))

    def _set_room(self, sizes: Mapping[str, int]) -> None:
        """Place the temporaries for these sizes and somewhat larger ones."""
        slots = {slot: size for slot, (size, _) in self._program.sizes.items()}
        total = sum(
            size * dtype.itemsize
            for size, (_, dtype) in zip(at(slots, sizes).values(), self._program.sizes.values(), strict=True)
        )
        room = {name: n if total > _AMPLE_BYTES else 2 * n for name, n in sizes.items()}
        capacity: dict[int, int] = at(slots, room)
        listing = self._programs.listing(self._program, self._begun, self._layouts, capacity)
        limits = {slots[slot]: capacity[slot] for slot in listing.arena_slots}
        self._template = PlanWords(listing, self._env, limits)


class SizedExecutable(CompiledForInspection["CpuExecutable"]):
    """The program of a plan for one set of sizes."""

    waits: Final = True

    def __init__(self, order: CompileRequest, driver: Driver, program: Any, sizes: dict[str, int]) -> None:
        self._order, self._program, self._sizes = order, program, sizes
        self.direct_call = driver.executable(program, self._packed, len(order.graph.inputs))

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run the program. Raises what it finds wrong with the values: an index out of range, no memory."""
        results: Sequence[Any] = self.direct_call(values)
        return results

    def _packed(self, values: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Return the program, and the values packed."""
        packed = [run(x.copy, "C") if isinstance(x, np.ndarray) else x for x in values]
        return self._program, packed

    def compile_whole(self) -> CpuExecutable:
        """Return the program compiled for these sizes alone."""
        whole = CpuLowering().compile(at_sizes(self._order, self._sizes))
        assert isinstance(whole, CpuExecutable)
        return whole


class CpuExecutable:
    """A program, called with its inputs. Its kernels are being compiled until it is first called.

    ``listing`` is what to store of it; None once it runs.
    """

    waits: Final = True

    def __init__(self, programs: _Programs, order: CompileRequest) -> None:
        self._programs, self._order = programs, order
        self._bytecode: BytecodeProgram | None = programs.bytecode(programs.packed())
        self.listing: RelocatableProgram | None = self._bytecode.listing
        self._labels = self._bytecode.labels
        self.other = programs.other

    @cached_property
    def direct_call(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """The program's function, with one call less. ``DeviceError`` shows code that does not compile."""
        driver = self._programs.driver
        if driver is None:
            return Interpreting("cpu").compile(self._order)
        try:
            program = self._program
        except NoCompilerError:
            return Interpreting("cpu").compile(self._order)
        run: Callable[[Sequence[Any]], Sequence[Any]] = driver.executable(
            program, self.other, len(self._order.graph.inputs)
        )
        return run

    @cached_property
    def _program(self) -> Any:
        driver = self._programs.driver
        assert driver is not None
        bytecode = self._bytecode or self._programs.bytecode(self._programs.packed())
        self._bytecode = self.listing = None  # after a failure the kernels are compiled anew
        return driver.program(bytecode)

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run the program. Raises what it finds wrong with the values: an index out of range, no memory."""
        return self.direct_call(values)

    def stages(self) -> Mapping[str, str]:
        """Return the graph, the loops and the C code of the program for packed values."""
        return self._programs.stages

    def parts(self) -> Sequence[ProgramPart]:
        """Return the steps of the program for packed values."""
        return self._programs.parts()

    def times(self, values: Sequence[Any]) -> Mapping[str, float]:
        """Return the seconds of each step of a run with packed values, which stay as they are.

        A step that runs on the tiles of the product before it has its time there.
        """
        held = [x.copy() if isinstance(x, np.ndarray) and not x.flags.c_contiguous else x for x in values]
        held += held  # nothing is free to be written over
        driver = self._programs.driver
        if driver is None:
            return {}
        each = driver.times(self._program, len(self._labels))
        self.direct_call(held[: len(values)])
        names = [part.name for part in self.parts()]
        return {name: seconds / 1e9 for name, seconds in zip(names, each.tolist(), strict=True) if seconds}


class _Programs:
    """The programs of one graph, by the layouts of its inputs."""

    def __init__(self, graph: Graph, order: CompileRequest, dialect: Dialect, units: KernelUnits) -> None:
        self._graph = graph
        self._order = order
        self._dialect = dialect
        self._units = units
        self._known: dict[Any, Any] = {}
        self._shown: tuple[Program, str] | None = None

    @cached_property
    def driver(self) -> Driver | None:
        """The driver that runs programs; None where no compiler works after all."""
        compiler = self._units.compiler
        return driver_of(compiler) if NATIVE.compiler() is compiler else None

    @property
    def stages(self) -> dict[str, str]:
        """The graph, the loops and the C code of the first program, for people to look at."""
        assert self._shown is not None
        program, source = self._shown
        return {
            "graph": str(self._graph), "schedules": program.schedules(), "loops": str(program), "code": source
        }  # fmt: skip

    def parts(self) -> Sequence[ProgramPart]:
        """Return the steps of the first program, for people to look at."""
        assert self._shown is not None
        program, _ = self._shown
        return parts_of(program, {id(k): kernel_parts(k, self._dialect)[1] for k in program.kernels()})

    def packed(self) -> list[Layout | None]:
        """Return the layouts of inputs that lie in C order."""
        layouts: list[Layout | None] = []
        for k, node in enumerate(self._graph.inputs):
            plain = Layout(k, node.spec.shape, _row_major(node.spec.shape))
            layouts.append(None if "scalar" in node.attrs else plain)
        return layouts

    def other(self, values: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Return the program for the layouts of these values, and the values, copied where need be."""
        values = list(values)
        layouts = self.packed()
        for k, layout in enumerate(layouts):
            x = values[k]
            if layout is None or (x.flags.c_contiguous and x.flags.aligned):
                continue
            size = x.itemsize
            if not x.flags.aligned or any(s % size for s in x.strides) or len(self._known) >= _MAX_LAYOUTS:
                values[k] = run(x.copy, "C")
            else:
                layouts[k] = Layout(k, x.shape, tuple(s // size for s in x.strides))
        key = tuple(None if x is None else x.strides for x in layouts)
        program = self._known.get(key)
        if program is None:
            assert self.driver is not None
            program = self._known[key] = self.driver.program(self.bytecode(layouts))
        return program, values

    def lowered(self, layouts: Sequence[Layout | None]) -> tuple[Program, dict[int, KernelUnit]]:
        """Return the program for these layouts, and its kernels, which are being compiled."""
        target = self._dialect.target.tuned(self._order.chosen)
        in_place = partial(adds_rows, layouts)
        library = Library(LIBRARY | self._order.calls, self._dialect.types, in_place=in_place)
        begun: dict[int, KernelUnit] = {}
        program = lower(
            self._graph, layouts, target, sized=True, library=library, replaces=self._order.replaces,
            begin=lambda launches: self._units.symbols(launches, begun),
        )  # fmt: skip
        if any(isinstance(step, LibraryCall) and step.op == "matmul" for step in program.steps):
            start_compiling_products(self._units.compiler)
        return program, begun

    def bytecode(self, layouts: Sequence[Layout | None]) -> BytecodeProgram:
        """Return the program for these layouts, its kernels compiled."""
        return self.listing(*self.lowered(layouts), layouts)

    def listing(
        self, program: Program, begun: dict[int, KernelUnit], layouts: Sequence[Layout | None],
        capacity: Mapping[int, int] | None = None,
    ) -> BytecodeProgram:  # fmt: skip
        """Return the bytecode of a program; of a plan for so many elements of each slot at most."""
        names: list[str] = []
        listing = BytecodeProgram(
            self._graph, program, layouts, self._units, begun, error_raiser(names), self._order.chosen,
            capacity,
        )  # fmt: skip
        names += listing.names
        listing.listing.begin()
        if self._shown is None:
            self._shown = program, listing.source
        return listing


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[k + 1 :]) for k in range(len(shape)))
