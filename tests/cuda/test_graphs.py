"""What graphs are told before a launch, without a GPU: the driver here writes down what it is told."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest


class _Kernel:
    """A kernel of a graph: ``updates`` is what the driver knows of its buffers."""

    def __init__(self, *places: int) -> None:
        self.node = self.at = self
        self.places = self.moving = [*places]
        self.pointers = [0, 0]
        self.last: Any = []
        self.late: list[Any] = []
        self.numbers: list[Any] = []
        self.launcher = SimpleNamespace(fill=lambda pointers, numbers: None)
        self.updates: list[int] = []


class _Driver:
    """Changes kernels; the call with the number ``breaks`` is interrupted, before or ``after`` its work."""

    def __init__(self, breaks: int, after: bool) -> None:
        self.calls, self.breaks, self.after = 0, breaks, after

    def change(self, whole: Any, node: _Kernel, at: Any) -> int:
        self.calls += 1
        now = self.calls == self.breaks
        if not now or self.after:
            node.updates = [node.pointers[place] for place in node.places]
        if now:
            raise KeyboardInterrupt
        return 0

    def launch(self, whole: Any, stream: int) -> int:
        return 0


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("breaks", [3, 4])
@pytest.mark.parametrize("following", [1, 2])
def test_an_interrupt_leaves_no_kernel_with_other_buffers(
    cupy_or_names: None, breaks: int, after: bool, following: int
) -> None:
    """The next run is at the places of the one that was interrupted, or at those before it."""
    graphs: Any = importlib.import_module("tensorbus_cuda.graphs.cuda_graph")
    kernels = [_Kernel(0), _Kernel(0, 1)]
    graph = SimpleNamespace(
        driver=_Driver(breaks, after), changing=kernels, late=[], where=None, whole=None
    )  # fmt: skip
    player = object.__new__(graphs.GraphRunner)
    player._moving = {0: 0, 1: 1}
    player._unit = SimpleNamespace(failures=SimpleNamespace(note=lambda what: None))
    player._title = "a program"
    stream = SimpleNamespace(ptr=0)

    def run(k: int) -> None:
        buffers = [SimpleNamespace(ptr=100 * k), SimpleNamespace(ptr=100 * k + 1)]
        player._launch(graph, (), buffers, stream)

    run(1)
    with pytest.raises(KeyboardInterrupt):
        run(2)
    run(following)
    assert [kernel.updates for kernel in kernels] == [
        [100 * following],
        [100 * following, 100 * following + 1],
    ]
