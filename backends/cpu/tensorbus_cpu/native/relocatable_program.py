"""A program as numbers that outlive the process: what would be an address is a name.

Plain classes: making a dataclass, or a named tuple, takes about as long as loading a program.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from tensorbus.backend_api import DType, Graph, Node, Spec, SubGraph, dtypes, is_open

from ..memory import DTYPES
from .compile_queue import COMPILE_QUEUE, CompileTask
from .kernel_batch_compiler import KernelUnits
from .late_word import LateWord

if TYPE_CHECKING:
    from tensorbus.backend_api import PlanEnv

_BY_NAME: Final[dict[str, DType]] = {d.name: d for d in dtypes.ALL}


class Address(tuple[str, str, int]):
    """The target of a number of bytecode: its kind, name and number.

    Kinds are ``"fail"``, ``"dtype"`` or ``"kernel"``, by name, and ``"call"``, by its number.
    """

    __slots__ = ()

    def __new__(cls, kind: str, name: str = "", number: int = 0) -> Address:
        """Name something."""
        return super().__new__(cls, (kind, name, number))


Word = int | Address | LateWord


class PythonCall:
    """An eager kernel that a program calls; ``late`` are the operands that are Python numbers."""

    __slots__ = ("attrs", "late", "op", "outputs", "specs")

    def __init__(
        self, *, op: str, attrs: Mapping[str, Any], specs: tuple[Spec, ...], late: tuple[int, ...],
        outputs: tuple[Spec, ...],
    ) -> None:  # fmt: skip
        self.op, self.attrs, self.specs, self.late, self.outputs = op, attrs, specs, late, outputs

    def text(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {
            "op": self.op, "attrs": {k: _written(v) for k, v in self.attrs.items()}, "late": self.late,
            "specs": [[s.shape, s.dtype.name] for s in self.specs],
            "outputs": [[s.shape, s.dtype.name] for s in self.outputs],
        }  # fmt: skip

    def key(self) -> bytes | None:
        """Return what equal calls have in common; None for one that remembers its result, or has no text."""
        if self.op == "full" or self.is_open:
            return None
        try:
            return marshal.dumps(self.text())
        except ValueError:
            return None

    @property
    def is_open(self) -> bool:
        """Whether it has lengths of a plan, which a kernel does not take: see ``at``."""
        return is_open([*self.attrs.values(), *[x.shape for x in (*self.specs, *self.outputs)]])

    def at(self, close: Callable[[Any], Any]) -> PythonCall:
        """Return it with integers for its lengths: ``close`` gives what holds these."""
        return PythonCall(
            op=self.op, attrs=close(dict(self.attrs)), late=self.late,
            specs=tuple([Spec(close(x.shape), x.dtype) for x in self.specs]),
            outputs=tuple([Spec(close(x.shape), x.dtype) for x in self.outputs]),
        )  # fmt: skip

    @staticmethod
    def of(text: Mapping[str, Any]) -> PythonCall:
        """Return the call that ``text`` wrote."""
        return PythonCall(
            op=text["op"], attrs={k: _read(v) for k, v in text["attrs"].items()}, late=tuple(text["late"]),
            specs=tuple(map(_spec, text["specs"])), outputs=tuple(map(_spec, text["outputs"])),
        )  # fmt: skip

    def run(self) -> Callable[..., Any]:
        """Return what runs it. Where operands lie is of no account."""
        from tensorbus.backend_api import Device, Layout, LibraryCall, RuntimeArg, library_call

        inputs = [
            RuntimeArg("scalar", k) if k in self.late else Layout(k, spec.shape, ())
            for k, spec in enumerate(self.specs)
        ]
        call = LibraryCall(
            op=self.op, attrs=self.attrs, inputs=tuple(inputs), specs=self.specs,
            outputs=tuple(range(len(self.outputs))), out_specs=self.outputs,
        )  # fmt: skip
        return packed_results(library_call(call, Device("cpu", 0)))


class BoundProgram:
    """The numbers of bytecode in this process; ``references`` must outlive the reading of them."""

    __slots__ = ("products", "references", "words")

    def __init__(self, words: list[int], references: list[Any], products: bool) -> None:
        self.words, self.references, self.products = words, references, products


class RelocatableProgram:
    """The ``words`` of bytecode. ``names`` are the ops that may report errors, ``labels`` the steps.

    ``products``: some of these multiply matrices.
    """

    __slots__ = ("_jobs", "calls", "labels", "names", "products", "words")

    def __init__(
        self, *, words: Sequence[Word], calls: tuple[PythonCall, ...], names: tuple[str, ...],
        labels: tuple[str, ...], products: bool,
    ) -> None:  # fmt: skip
        self.words, self.calls, self.names, self.labels = words, calls, names, labels
        self.products = products
        self._jobs: list[CompileTask[Callable[..., Any] | None]] | None = None

    def begin(self) -> None:
        """Begin to prepare the calls, side by side: what they need may have to be compiled."""
        self._jobs = [COMPILE_QUEUE.submit(partial(_run_of, call)) for call in self.calls]

    def bound(self, units: KernelUnits, fail: Callable[..., None]) -> BoundProgram | None:
        """Return the numbers for this process, and what they refer to; None where a kernel is missing.

        Open calls are left out: whoever knows the sizes fills them in.
        """
        jobs, self._jobs = self._jobs, None
        runs = [job.result() for job in jobs] if jobs is not None else [*map(_run_of, self.calls)]
        known: dict[Any, int | None] = {}
        references: list[Any] = [fail, *runs]

        def resolve(address: Address) -> int | None:
            kind, name, number = address
            if kind == "kernel":
                return units.address(name)
            thing = (
                fail if kind == "fail"
                else runs[number] if kind == "call"
                else DTYPES[_BY_NAME[name]]
            )  # fmt: skip
            references.append(thing)
            return id(thing)

        words: list[Any] = [*self.words]
        for k in _addresses(words):
            word = words[k]
            if word not in known:
                known[word] = resolve(word)
            words[k] = known[word]
        return None if None in known.values() else BoundProgram(words, references, self.products)


def _run_of(call: PythonCall) -> Callable[..., Any] | None:
    return None if call.is_open else call.run()


def _addresses(words: Sequence[Any]) -> list[int]:
    """Return where words are addresses."""
    return [k for k, word in enumerate(words) if word.__class__ is Address]


def encoded(listing: RelocatableProgram) -> bytes | None:
    """Return a listing as bytes: the length of what tells the rest, that, then the numbers.

    None where a call has an attribute that is no plain value: a program of scores, say.
    """
    things: dict[Address, int] = {}
    places: list[list[int]] = []
    numbers: list[Any] = [*listing.words]
    for k in _addresses(numbers):
        places.append([k, things.setdefault(numbers[k], len(things))])
        numbers[k] = 0
    head = {
        "things": [tuple(x) for x in things], "places": places,
        "calls": [call.text() for call in listing.calls], "names": listing.names, "labels": listing.labels,
        "products": listing.products,
    }  # fmt: skip
    try:
        about = marshal.dumps(head)  # for this version of Python, whose own modules lie on disk like that
    except ValueError:
        return None
    return len(about).to_bytes(8, "little") + about + np.array(numbers, np.int64).tobytes()


def decoded(data: bytes) -> RelocatableProgram:
    """Return the listing that ``encoded`` wrote."""
    end = 8 + int.from_bytes(data[:8], "little")
    head = marshal.loads(data[8:end])
    words: list[Word] = np.frombuffer(data[end:], np.int64).tolist()
    things = [Address(*x) for x in head["things"]]
    for place, thing in head["places"]:
        words[place] = things[thing]
    calls = tuple(PythonCall.of(text) for text in head["calls"])
    return RelocatableProgram(
        words=words, calls=calls, names=tuple(head["names"]), labels=tuple(head["labels"]),
        products=head["products"],
    )  # fmt: skip


def _written(value: Any) -> Any:
    """Return an attribute in plain values."""
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, SubGraph):
        return {"graph": _graph_text(value.graph), "symbols": value.symbols}
    if is_open(value) and type(value) not in (list, tuple):
        return {"length": value.text}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    for kind in (int, float, str):
        if isinstance(value, kind) and type(value) is not bool:
            return kind(value)
    return list(map(_written, value)) if isinstance(value, (tuple, list)) else value


def _read(value: Any, env: PlanEnv | None = None) -> Any:
    """Return the attribute that ``_written`` wrote; ``env`` has the lengths of the graph that it is in."""
    if isinstance(value, list):
        return tuple([_read(x, env) for x in value])
    if not isinstance(value, dict):
        return value
    if "graph" in value:
        return _subgraph(value)
    if "length" in value:
        assert env is not None, "only graphs with symbols have open lengths"
        return env.of_text(value["length"])
    return _BY_NAME[value["dtype"]] if "dtype" in value else complex(*value["complex"])


def _graph_text(graph: Graph) -> Any:
    """Return a graph in plain values: its nodes in order, which the numbers of inputs and outputs name."""
    nodes = list(graph)
    numbers = {node: k for k, node in enumerate(nodes)}
    lines = [
        [node.op, [numbers[x] for x in node.inputs], {k: _written(v) for k, v in node.attrs.items()},
         _written(node.spec.shape), node.spec.dtype.name]
        for node in nodes
    ]  # fmt: skip
    return [lines, [numbers[x] for x in graph.inputs], [numbers[x] for x in graph.outputs]]


def _subgraph(text: Mapping[str, Any]) -> SubGraph:
    (lines, inputs, outputs), symbols = text["graph"], tuple([(*x,) for x in text["symbols"]])
    env = None
    if symbols:
        from tensorbus.backend_api import PlanEnv

        env = PlanEnv()
        for symbol in symbols:
            env.symbol(*symbol)
    nodes: list[Node] = []
    for op, operands, attrs, shape, dtype in lines:
        nodes.append(
            Node(
                op=op, inputs=tuple([nodes[k] for k in operands]), spec=_spec((shape, dtype), env),
                attrs={k: _read(v, env) for k, v in attrs.items()},
            )
        )  # fmt: skip
    graph = Graph(inputs=tuple([nodes[k] for k in inputs]), outputs=tuple([nodes[k] for k in outputs]))
    return SubGraph(graph, symbols)


def _spec(text: Any, env: PlanEnv | None = None) -> Spec:
    return Spec(tuple([_read(n, env) for n in text[0]]), _BY_NAME[text[1]])


def packed_results(kernel: Callable[[Sequence[Any]], Sequence[Any]]) -> Callable[..., Any]:
    """Return a kernel whose results are packed arrays with memory of their own."""

    def call(*values: Any) -> tuple[Any, ...]:
        return tuple([x if _is_own(x, values) else np.array(x, copy=True, order="C") for x in kernel(values)])

    return call


def _is_own(x: Any, values: Sequence[Any]) -> bool:
    plain = x.base is None and x.flags.owndata and x.flags.c_contiguous
    return plain and not any(x is v for v in values)
