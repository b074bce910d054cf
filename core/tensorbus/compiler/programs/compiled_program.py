"""A program: a graph and its executable; what a plugin hands over is checked here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ... import plugins
from ...backend_interface.compilation import CompileRequest, Executable, Lowering, at_sizes
from ...backend_interface.graph import Graph
from ...devices.device import Device
from ...dispatch.foreign_kernels import is_foreign
from ...dispatch.result_check import mismatch
from ...errors import PluginError, TensorbusError
from ...system import fork_safe_locks

EXPECTED_ERRORS: Final = (TensorbusError, MemoryError)
"""What an executable may raise; anything else is a fault of its package, which the error then names."""


@dataclass(slots=True, eq=False)
class CompiledProgram:
    """A graph and its executable. ``lock`` is held while it runs: an executable serves one run at a time.

    ``notes`` tell what the mode of ``compile`` led to. The results of the first run are checked, and those of
    each where nobody examined the device's package (``dispatch.foreign_kernels``).
    """

    graph: Graph
    executable: Executable
    device: Device
    notes: tuple[str, ...] = ()
    lock: Any = field(default_factory=fork_safe_locks.simple)
    _examined: bool = False

    @property
    def shown_graph(self) -> Graph:
        """The graph for people to read."""
        return self.graph

    @property
    def waits(self) -> bool:
        """Whether the executable itself serializes runs by several threads."""
        return getattr(self.executable, "waits", False)

    @property
    def run(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """The executable's direct call, where it has one; for runs after the first."""
        call: Callable[[Sequence[Any]], Sequence[Any]]
        call = getattr(self.executable, "direct_call", self.executable)
        if not self._is_foreign:
            return call

        def checked(values: Sequence[Any]) -> Sequence[Any]:
            results = call(values)
            self._verify(results)
            return results

        return checked

    @property
    def checked_run(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """The entry for a run that may be the first: ``run``, or a run whose results are checked."""
        return self.run if self._examined else self._run_checked

    def for_sizes(self, sizes: Mapping[str, int]) -> CompiledProgram:
        """Return the program itself: it has no symbolic sizes."""
        return self

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run it."""
        with self.lock:
            if not self._examined:
                return self._run_checked(values)
            results = self._run(values)
            if self._is_foreign:
                self._verify(results)
            return results

    def failed(self, error: Exception) -> Exception:
        """Return the error for one of the executable's own, which says whose it is."""
        return plugins.backend(self.device.type).failed("executable", error)

    @property
    def _is_foreign(self) -> bool:
        return is_foreign(plugins.backend(self.device.type).extension.owner)

    def _verify(self, results: Sequence[Any]) -> None:
        """Raise ``PluginError`` for results that are not those of the graph."""
        text = mismatch(results, [node.spec for node in self.shown_graph.outputs], self.device, several=True)
        if text is not None:
            owner = plugins.backend(self.device.type).extension.owner
            raise PluginError(f"device type {self.device.type!r} of {owner}: its executable {text}.")

    def _run(self, values: Sequence[Any]) -> Sequence[Any]:
        try:
            return self.executable(values)
        except EXPECTED_ERRORS:
            raise
        except Exception as error:
            raise self.failed(error) from error

    def _run_checked(self, values: Sequence[Any]) -> Sequence[Any]:
        results = self._run(values)
        self._verify(results)
        self._examined = True
        return results


@dataclass(slots=True, eq=False)
class SpecializedProgram(CompiledProgram):
    """A program of a plan for one set of ``sizes``; ``graph`` has symbols until its results are checked."""

    order: CompileRequest | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def shown_graph(self) -> Graph:
        """The graph for people to read, with its sizes."""
        if self.order is not None and self.graph is self.order.graph:
            self.graph = at_sizes(self.order, self.sizes).graph
        return self.graph


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A program, its shape specializations, or one of several devices; with the places of its outputs.

    ``old_inputs`` maps the place of a tensor's new value to the number of the input with its old value;
    ``in_place``: outputs may overwrite inputs; ``leaves`` have gradients among the outputs.
    """

    program: Any
    outputs: tuple[Any, ...]
    old_inputs: Mapping[int, int] = field(default_factory=dict)
    in_place: bool = False
    leaves: tuple[Any, ...] = ()


def lower_checked(device: Device, lowering: Lowering, request: CompileRequest) -> Executable:
    """Return the executable of a request; an error, or a result of another type, names the plugin."""
    backend = plugins.backend(device.type)
    try:
        executable: Executable = lowering.compile(request)
    except (TensorbusError, MemoryError):
        raise
    except Exception as error:
        raise backend.failed("lowering.compile(...)", error) from error
    if not callable(executable):
        raise PluginError(
            f"device type {device.type!r} of {backend.extension.owner}: its lowering.compile(...) returned"
            f" {executable!r}; it must return an executable, which is called with values."
        )
    return executable
