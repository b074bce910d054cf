"""Compiled programs: a graph as steps of C code, that ``csource/driver.c`` runs in one call from Python.

A program is made for the layouts that its inputs have; other layouts get another one. What is generated, BLAS
and the eager kernels of everything else are steps of one table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from math import prod
from typing import Any, Final

from tensorbus.backend_api import (
    Dialect,
    Executable,
    Graph,
    IndexingError,
    Interpreting,
    Layout,
    Order,
    OutOfMemoryError,
    is_generated,
    lower,
    prepared,
)

from .compiler import NATIVE, CCompiler
from .driver import Driver
from .memory import run
from .tape import Tape
from .units import Units

LIBRARY: Final = frozenset(
    """matmul conv conv_transpose conv_weight fold max_pool sort argsort searchsorted scatter
    scatter_along_axis cumulative_prod cumulative_max cumulative_min logcumsumexp
    inv eigvalsh eigvals svdvals""".split()
)
"""The ops whose eager kernels, or BLAS, are better than what is generated."""
_MANY: Final = 8
"""Programs for that many patterns of layouts are kept; others get copies of their values."""


class CpuLowering:
    """Compiles programs to C; without a compiler, or for dtypes that C lacks, to calls of kernels."""

    def compile(self, order: Order) -> Executable:
        """Return the executable of a program."""
        compiler = NATIVE.compiler()
        if compiler is None:
            return Interpreting("cpu").compile(order)
        driver, units = _tools(compiler)
        graph = prepared(order.graph, lambda op: op in LIBRARY or is_generated(op))
        known = compiler.dialect(0).types
        if any(node.spec.dtype not in known for node in graph):
            return Interpreting("cpu").compile(order)
        programs = _Programs(graph, order, compiler.dialect(0), units)
        tape = programs.tape(programs.packed())
        made = driver.result()
        if made is None:
            return Interpreting("cpu").compile(order)
        programs.driver = made
        return CpuExecutable(programs, made.executable(made.program(tape), programs.other, len(graph.inputs)))


@cache
def _tools(compiler: CCompiler) -> tuple[Future[Driver | None], Units]:
    """Return what runs programs, which is compiled meanwhile, and what compiles their kernels."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(Driver.start, compiler), Units(compiler)
    finally:
        pool.shutdown(wait=False)


if hasattr(os, "register_at_fork"):  # in a child nobody finishes what a thread of the parent had begun
    os.register_at_fork(after_in_child=_tools.cache_clear)


class CpuExecutable:
    """A program, called with its inputs. ``run`` is the same function, with one call less."""

    def __init__(self, programs: _Programs, run: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._programs = programs
        self.run = run

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run the program. Raises what it finds wrong with the values: an index out of range, no memory."""
        return self.run(values)

    def stages(self) -> Mapping[str, str]:
        """Return the graph, the loops and the C code of the program for packed values."""
        return self._programs.stages


class _Programs:
    """The programs of one graph, by the layouts of its inputs."""

    driver: Driver

    def __init__(self, graph: Graph, order: Order, dialect: Dialect, units: Units) -> None:
        self._graph = graph
        self._order = order
        self._dialect = dialect
        self._units = units
        self._known: dict[Any, Any] = {}
        self.stages: dict[str, str] = {}

    def packed(self) -> list[Layout | None]:
        """Return the layouts of inputs that lie in C order."""
        found: list[Layout | None] = []
        for k, node in enumerate(self._graph.inputs):
            plain = Layout(k, node.spec.shape, _row_major(node.spec.shape))
            found.append(None if "scalar" in node.attrs else plain)
        return found

    def other(self, values: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Return the program for the layouts of these values, and the values, copied where need be."""
        values = list(values)
        layouts = self.packed()
        for k, layout in enumerate(layouts):
            x = values[k]
            if layout is None or (x.flags.c_contiguous and x.flags.aligned):
                continue
            size = x.itemsize
            if not x.flags.aligned or any(s % size for s in x.strides) or len(self._known) >= _MANY:
                values[k] = run(x.copy, "C")
            else:
                layouts[k] = Layout(k, x.shape, tuple(s // size for s in x.strides))
        key = tuple(None if x is None else x.strides for x in layouts)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.driver.program(self.tape(layouts))
        return found, values

    def tape(self, layouts: Sequence[Layout | None]) -> Tape:
        """Return the program for these layouts, its kernels compiled."""
        graph = self._graph
        program = lower(graph, layouts, self._dialect.target, library=LIBRARY, replaces=self._order.replaces)
        names: list[str] = []
        made = Tape(graph, program, layouts, self._units, _failing(names))
        names += made.names
        if not self.stages:
            self.stages = {"graph": str(graph), "loops": str(program), "code": made.source}
        return made


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[k + 1 :]) for k in range(len(shape)))


def _failing(names: Sequence[str]) -> Callable[[int, int, int, int], None]:
    """Return what raises the error of a program: of memory, or that a kernel reported an index."""

    def fail(what: int, code: int, value: int, limit: int) -> None:
        if not what:
            raise OutOfMemoryError("a compiled program on cpu:0: no memory left for its results.")
        name = names[code - 1] if 0 < code <= len(names) else "an op"
        raise IndexingError(f"{name}: index {value} is out of range for an axis of length {limit}.")

    return fail
