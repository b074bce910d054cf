"""``SizedRuns``: the executables of a graph whose lengths are open, each made when its sizes are met.

A device that lowers programs on symbols has one plan for many sizes, whose executables take microseconds to
make; elsewhere each set of sizes has a program of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from .. import plugins
from ..backend_interface.compilation import CompileRequest, Executable, SymbolicProgram, at_sizes
from ..backend_interface.graph import Symbol
from ..devices.device import Device
from ..errors import ArgumentError
from ..executors.kernel_interpreter import Interpreting
from ..tracing.plan_env import PlanEnv

MIN_SIZE: Final = 2
"""The least that a size may be: of 0 and 1 other things hold, as that elements are broadcast."""
MAX_RUNS: Final = 256
"""The number of sets of sizes whose executables are kept."""
MAX_PLANS: Final = 32
"""The number of plans: for sizes below and above what decides how something is computed."""
MAX_SPECIAL_PLANS: Final = 4
"""The number of plans that needed a length as an integer, and serve that one."""


def check_size(size: int, most: int) -> int:
    """Return a size within its limits. Raises ``ArgumentError`` for others."""
    if not MIN_SIZE <= size <= most:
        raise ArgumentError(f"with_size: the size must lie between {MIN_SIZE} and {most}, got {size}.")
    return size


class SizedRuns:
    """Runs a request with the values of its symbols, a tuple in order, as the last value."""

    def __init__(self, symbols: Sequence[Symbol], request: CompileRequest, device: Device) -> None:
        self._symbols, self._request = symbols, request
        self._lowering: Any = plugins.backend(device.type).lowering() or Interpreting(device.type)
        self._plans: list[SymbolicProgram] = []
        self._special = 0
        self._runs: OrderedDict[tuple[int, ...], Executable] = OrderedDict()

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run the program of these sizes."""
        sizes = values[-1]
        known = self._runs.get(sizes)
        if known is None:
            known = self._runs[sizes] = self._executable_for(sizes)
            while len(self._runs) > MAX_RUNS:
                self._runs.popitem(last=False)
        return known(values[:-1])

    def _executable_for(self, sizes: tuple[int, ...]) -> Executable:
        by_name = {name: n for (name, *_), n in zip(self._symbols, sizes, strict=True)}
        for plan in self._plans:
            executable = plan.at(by_name)
            if executable is not None:
                return executable
        executable = self._of_new_plan(sizes, by_name)
        return self._lowering.compile(at_sizes(self._request, by_name)) if executable is None else executable

    def _of_new_plan(self, sizes: tuple[int, ...], by_name: dict[str, int]) -> Executable | None:
        """Return the executable of a plan for sizes like these; None where none is to be made."""
        make = getattr(self._lowering, "compile_symbolic", None)
        if make is None or len(self._plans) >= MAX_PLANS or self._special >= MAX_SPECIAL_PLANS:
            return None
        env = PlanEnv()
        opened: Any = {
            name: env.symbol(name, n, min(least, n), most)
            for (name, _, least, most), n in zip(self._symbols, sizes, strict=True)
        }
        plan: SymbolicProgram | None = make(at_sizes(self._request, opened), env)
        if plan is None:
            return None
        self._special += env.serves_one_size()
        self._plans.insert(0, plan)
        return plan.at(by_name)
