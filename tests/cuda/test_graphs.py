"""What graphs are told before a launch, most without a GPU: the driver here writes down what it is told."""

from __future__ import annotations

import gc
import importlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.backend_api import StridedArray, items_at
from tensorbus.dtypes.definition import float32
from tensorbus.errors import DeviceError
from tensorbus_cuda import device as cuda

NUMBERS = SimpleNamespace(send=lambda values, stream: None)


class _Kernel:
    """A kernel of a graph: ``updates`` is what the driver knows of its buffers."""

    def __init__(self, *places: int) -> None:
        self.node = self.at = self
        self.places = self.moving = [*places]
        self.pointers = [0, 0]
        self.last: Any = []
        self.late: list[Any] = []
        self.numbers: list[Any] = []
        self.text = ""
        self.launcher = SimpleNamespace(fill=lambda pointers, numbers: None, lock=nullcontext())
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
        driver=_Driver(breaks, after), changing=kernels, late=[], where=None, whole=None, numbers=NUMBERS
    )  # fmt: skip
    player = object.__new__(graphs.GraphRunner)
    player._of_moving = items_at((0, 1))
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


def test_small_inputs_that_lie_elsewhere_each_time_are_copied(
    cupy_or_names: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs are for the places of what stays, of what is large, and of the copies."""
    steady: Any = importlib.import_module("tensorbus_cuda.graphs.steady_inputs")
    copies: list[tuple[int, int, int, int]] = []
    runtime = SimpleNamespace(
        memcpyAsync=lambda target, source, nbytes, kind, stream: copies.append(
            (target, source, nbytes, stream)
        ),
        memcpyDeviceToDevice=3,
    )
    monkeypatch.setattr(steady.cupy.cuda, "runtime", runtime)
    memory = SimpleNamespace(allocate=lambda nbytes: SimpleNamespace(ptr=7, nbytes=nbytes))
    unit = SimpleNamespace(pool=memory, current=nullcontext)
    inputs, stream = steady.SteadyInputs(unit, [0, 1, 2, 3]), SimpleNamespace(ptr=5)
    lengths = 8, 8, steady.COPIED_MAX_BYTES, 8

    def run(k: int) -> tuple[bool, list[int]]:
        """Run with a batch, weights, a large input and one within its block; return the places."""
        places = 100 + k, 200, 300 + k, 400 + k
        buffers = [SimpleNamespace(ptr=place) for place in places]
        values = [
            StridedArray(block, (n,), (1,), 4 * (slot == 3), float32)
            for slot, (block, n) in enumerate(zip(buffers, lengths, strict=True))
        ]
        more = inputs.note(values, buffers)
        placed = inputs.placed(values, buffers, stream)
        assert [block.ptr for block in buffers] == [*places]
        return more, [block.ptr for block in placed]

    for k in range(steady.OFTEN):
        assert run(k) == (False, [100 + k, 200, 300 + k, 400 + k])
    assert not copies
    for k in range(steady.OFTEN, steady.OFTEN + 2):
        assert run(k) == (k == steady.OFTEN, [7, 200, 300 + k, 400 + k])
        assert copies.pop() == (7, 100 + k, 32, 5)
        assert not copies


class _Block:
    """Memory whose end can be seen."""

    ptr, nbytes = 7, 32


@pytest.mark.parametrize("tries", ["too many", "one that fails"])
def test_a_program_that_is_no_graph_keeps_no_memory_for_graphs(
    cupy_or_names: None, monkeypatch: pytest.MonkeyPatch, tries: str
) -> None:
    graphs: Any = importlib.import_module("tensorbus_cuda.graphs.cuda_graph")
    steady: Any = importlib.import_module("tensorbus_cuda.graphs.steady_inputs")

    def record(values: Any, buffers: Any) -> Any:
        raise DeviceError("a library call cannot be recorded.")

    monkeypatch.setattr(graphs.cupy.cuda.driver, "CUDADriverError", OSError, raising=False)
    player = object.__new__(graphs.GraphRunner)
    player._able, player._tries, player._record = True, graphs.TRIES * (tries == "too many"), record
    player._steady = steady.SteadyInputs(None, [0])
    player._steady._blocks[0] = copied = _Block()
    player._results, player._temporaries = {1: [_Block()]}, {2: _Block()}
    player._memory, player._counts, player._graphs = _Block(), _Block(), OrderedDict(key=_Block())
    held = [copied, *player._results[1], player._temporaries[2], player._memory, player._counts]
    ends = [weakref.ref(block) for block in (*held, player._graphs["key"])]
    del held, copied
    assert player._recorded("other", (), []) is None
    assert not player._able
    gc.collect()
    assert [end() for end in ends] == [None] * len(ends)


class _Rival:
    """A lock, and another thread that starts ``work`` in the middle of what the first does.

    ``comes`` returns once that thread has to wait for the lock, or, where nobody made it wait, is done.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._lock, self._seen = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work,))

    def __enter__(self) -> None:
        if threading.current_thread() is self._thread:
            self._seen.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _run(self, work: Callable[[], object]) -> None:
        work()
        self._seen.set()

    def comes(self) -> None:
        if self._thread.ident is None:
            self._thread.start()
            assert self._seen.wait(60)

    def ends(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_threads_launch_a_graph_with_their_own_small_inputs(
    cupy_or_names: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies lie at one place for all of them: none is placed before another's has been launched."""
    steady: Any = importlib.import_module("tensorbus_cuda.graphs.steady_inputs")
    graphs: Any = importlib.import_module("tensorbus_cuda.graphs.cuda_graph")
    block, memory, launched = SimpleNamespace(ptr=7, nbytes=32), dict[int, int](), list[int]()

    def copy(target: int, source: int, *_: int) -> None:
        memory[target] = source
        rival.comes()

    def launch(whole: Any, stream: int) -> int:
        launched.append(memory[block.ptr])
        return 0

    runtime = SimpleNamespace(memcpyAsync=copy, memcpyDeviceToDevice=3)
    monkeypatch.setattr(steady.cupy.cuda, "runtime", runtime)
    stream = SimpleNamespace(ptr=5)
    unit = SimpleNamespace(
        current=nullcontext, stream=lambda: stream, failures=SimpleNamespace(note=lambda what: None)
    )
    inputs = steady.SteadyInputs(unit, [0])
    inputs._blocks[0] = block
    graph = SimpleNamespace(
        driver=SimpleNamespace(launch=launch), changing=[], late=[], where=None, whole=None, numbers=NUMBERS,
        capture=SimpleNamespace(around={}),
    )  # fmt: skip
    player = object.__new__(graphs.GraphRunner)
    player._unit, player._stream, player._steady, player._title = unit, stream, inputs, "a program"
    player._runs, player._able, player._reports = 1, True, False
    player._of_results = player._of_moving = items_at(())
    player._of_inputs = player._of_pinned = player._called_with = items_at((0,))
    player._graphs = {(graphs.get_matmul_precision(), (7,), (0,)): graph}

    def run(place: int) -> None:
        source = SimpleNamespace(ptr=place, stream=stream)
        assert player.play([StridedArray(source, (8,), (1,), 0, float32)], [source])

    rival = player._lock = _Rival(lambda: run(200))
    run(100)
    rival.ends()
    assert launched == [100, 200]


def test_graphs_of_several_threads_share_a_kernels_arguments(cupy_or_names: None) -> None:
    """The driver reads them where the kernel keeps them, for all graphs that have it."""
    graphs: Any = importlib.import_module("tensorbus_cuda.graphs.cuda_graph")
    words, changed = [0], dict[str, int]()

    def fill(pointers: list[int], numbers: list[Any]) -> None:
        words[:] = pointers
        rival.comes()

    def change(whole: str, node: Any, at: Any) -> int:
        changed[whole] = words[0]
        return 0

    def run(name: str, place: int) -> None:
        kernel = _Kernel(0)
        kernel.pointers = [0]
        kernel.launcher = SimpleNamespace(fill=fill, lock=rival)
        driver = SimpleNamespace(change=change, launch=lambda whole, stream: 0)
        graph = SimpleNamespace(
            driver=driver, changing=[kernel], late=[], where=None, whole=name, numbers=NUMBERS
        )
        player = object.__new__(graphs.GraphRunner)
        player._of_moving, player._title = items_at((0,)), "a program"
        player._unit = SimpleNamespace(failures=SimpleNamespace(note=lambda what: None))
        player._launch(graph, (), [SimpleNamespace(ptr=place)], SimpleNamespace(ptr=0))

    rival = _Rival(lambda: run("second", 200))
    run("first", 100)
    rival.ends()
    assert changed == {"first": 100, "second": 200}


NO_GPU = cuda.why_unavailable()


@pytest.mark.cuda
@pytest.mark.skipif(NO_GPU is not None, reason=f"cuda: {NO_GPU}")
def test_batches_that_are_all_held_need_few_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: Any = importlib.import_module("tensorbus_cuda.graphs.cuda_graph")
    recorded, asked = graphs.GraphRunner._recorded, list[Any]()

    def count(self: Any, key: Any, values: Any, buffers: Any) -> Any:
        asked.append(key)
        return recorded(self, key, values, buffers)

    monkeypatch.setattr(graphs.GraphRunner, "_recorded", count)
    w = tb.eye(64, device="cuda") * 2

    @tb.compile
    def step(x: tb.Tensor) -> tb.Tensor:
        return (tb.abs(x @ w) @ w).sum(axis=0)

    held = [tb.full((32, 64), float(k), device="cuda") for k in range(40)]
    for k, x in enumerate(held):
        assert step(x).tolist() == [4.0 * 32 * k] * 64
    assert 0 < len(asked) <= 6
