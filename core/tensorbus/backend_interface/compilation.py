"""The compilation of a graph by a device: ``CompileRequest``, ``Lowering``, ``Executable``.

Apart from ``protocols``, because programs that compile nothing do not load it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from ..system.fork_safe_locks import cached_property
from ..tracing.sym_int import substitute
from .graph import Graph, Node
from .spec import Spec


class FusedKernels(Protocol):
    """A maker of kernels of a few ops at once: a derivative, or a function such as a loss."""

    @property
    def least(self) -> int:
        """The size of the largest operand from which a program is worth making; 0: any."""
        ...

    def keeps(self, op: str, index: int) -> bool:
        """Return whether ``op`` may be part of a program; else one with a decomposition is taken apart."""
        ...

    def prepare(
        self, name: str, graph: Graph, index: int, replaces: Mapping[int, int]
    ) -> Callable[[Sequence[Any]], Sequence[Any]] | None:
        """Return what takes values to results; None where the graph has a dtype that the language lacks.

        ``name`` is that of the function, for messages. ``replaces`` says which output takes the place of
        which input: it may be written over one that a single tensor and the list of values hold.
        """
        ...


class OpenFusedKernels(FusedKernels, Protocol):
    """Such a maker whose programs may have open lengths."""

    def prepare_open(
        self, name: str, key: Any, trace: Callable[[Sequence[Spec]], Graph | None], graph: Graph, index: int
    ) -> OpenRun | None:
        """Return what ``prepare`` does, for values of any shapes.

        ``graph`` is that for values of some shapes, and ``trace`` returns it for others, whose lengths may be
        symbols; None where that is no program. ``key`` tells the function from all others.
        """
        ...


class OpenRun(Protocol):
    """A function of a few ops as programs, for values of shapes that change."""

    def serves(self, values: Sequence[Any]) -> bool:
        """Return whether there is a program for these values without tracing the function for them."""
        ...

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the results for values, of shapes that it serves or that the function was traced for."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """A captured program, as a device is asked to compile it.

    ``graph`` has inputs of two kinds: the device's own values, and Python numbers (attribute ``scalar``) that
    come anew with each run. Its ops are any of the table's; ``tensorbus.backend_api.decompose`` breaks those
    up that a lowering does not want. ``index`` is the unit. ``replaces`` says which output takes the place
    of which input: where nobody else holds that input's memory, the output may be written over it. ``mode``
    is that of ``tensorbus.compile``. ``chosen`` has values of the lowering's knobs by name, or by
    ``knob@step`` for one step alone; what is not named is as the device would have it. ``calls`` are the ops
    that are left to kernels: another package's, which is preferred to the device's own, or one that the user
    prefers.
    """

    graph: Graph
    index: int
    replaces: Mapping[int, int] = field(default_factory=dict)
    mode: str = "default"
    chosen: Mapping[str, int] = field(default_factory=dict)
    calls: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A choice left to autotuning, which hands the lowering one of ``values`` in ``CompileRequest.chosen``.

    ``usual`` is what is taken unmeasured. ``each``: the value may differ from step to step, and changes
    neither which steps there are nor their names in ``times``. ``what`` says to people what it chooses.
    ``ops`` are those that it is for, where it is not for every program.
    """

    name: str
    usual: int
    values: tuple[int, ...]
    what: str
    each: bool = False
    ops: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPart:
    """A step of a program, for people to look at: what it makes of what, its loops, its code.

    ``name`` is that of the step in ``times``. ``ops`` are those that became one in it.
    """

    name: str
    text: str
    ops: tuple[str, ...] = ()
    loops: str = ""
    code: str = ""


class Executable(Protocol):
    """A program that a lowering compiled: called with the inputs in order, it returns the outputs in order.

    An instance serves inputs of the shapes and dtypes of its graph, in any layout that the device's values
    have, from one thread at a time. Nobody else sees what it keeps between runs. It may also have ``parts()
    -> Sequence[ProgramPart]``, its steps in order, and ``times(values) -> Mapping[str, float]``, which runs
    the program and returns the seconds of each step; a true ``waits``, where runs by several threads wait for
    each other by themselves; and ``direct_call``, which does what ``__call__`` does with one call less. No
    other attribute is looked at.
    """

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run the program."""
        ...

    def stages(self) -> Mapping[str, str]:
        """Return the texts that the program went through, by name, for people to read; the last is code."""
        ...


class InspectableExecutable(Executable, Protocol):
    """An executable that also has its steps, and times them."""

    def parts(self) -> Sequence[ProgramPart]:
        """Return its steps in order."""
        ...

    def times(self, values: Sequence[Any]) -> Mapping[str, float]:
        """Run the program; return the seconds of each step."""
        ...


WholeT = TypeVar("WholeT", bound=InspectableExecutable)


class CompiledForInspection(ABC, Generic[WholeT]):
    """The stages, steps and times of an executable that runs without a listing of its own.

    A stored program, or one for a set of sizes, is compiled by itself when somebody first looks inside.
    """

    @abstractmethod
    def compile_whole(self) -> WholeT:
        """Return the program compiled by itself, for packed values."""

    @cached_property
    def whole(self) -> WholeT:
        """The program compiled by itself, for packed values."""
        return self.compile_whole()

    def stages(self) -> Mapping[str, str]:
        """Return the graph, the loops and the source of the program for packed values."""
        return self.whole.stages()

    def parts(self) -> Sequence[ProgramPart]:
        """Return the steps of the program for packed values."""
        return self.whole.parts()

    def times(self, values: Sequence[Any]) -> Mapping[str, float]:
        """Run the program for packed values; return the seconds of each step."""
        return self.whole.times(values)


def at_sizes(order: CompileRequest, sizes: Mapping[str, int]) -> CompileRequest:
    """Return the request for these sizes of its symbols."""
    close = substitute(sizes)
    concrete: dict[Node, Node] = {}
    for node in order.graph:
        concrete[node] = Node(
            op=node.op, inputs=tuple([concrete[x] for x in node.inputs]), attrs=close(dict(node.attrs)),
            spec=Spec(close(node.spec.shape), node.spec.dtype), recompute_tag=node.recompute_tag,
        )  # fmt: skip
    ends = [tuple(concrete[x] for x in nodes) for nodes in (order.graph.inputs, order.graph.outputs)]
    return replace(order, graph=Graph(inputs=ends[0], outputs=ends[1]))


class SymbolicProgram(Protocol):
    """A program for many sizes: what a lowering makes of a graph whose lengths are symbolic."""

    def at(self, sizes: Mapping[str, int]) -> Executable | None:
        """Return the executable for these sizes of the symbols; None where it does not hold for them."""
        ...


class Lowering(Protocol):
    """A device's compiler of programs. A device without one runs them kernel by kernel.

    It may have ``knobs(order) -> Sequence[Knob]``: what core chooses by measuring for ``"max-autotune"``;
    ``compile_symbolic(order, env) -> SymbolicProgram | None``, for graphs whose lengths are those of ``env``,
    a ``PlanEnv``; and ``modes``, a mapping that says for people what it does about other modes of
    ``tensorbus.compile``.
    """

    def compile(self, order: CompileRequest) -> Executable:
        """Return the executable of a program. Raises what the device cannot do, naming the op."""
        ...
