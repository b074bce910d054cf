"""Launches of one eager program, queued by one call: each as it is queued by itself, on stand-ins of CUDA."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.backend_interface.strided_array import StridedArray
from tensorbus.decompose.tracer import PRIMS
from tensorbus.dtypes import definition as dt
from tensorbus.kernels import generated_program
from tensorbus.ops.definition import Spec
from tensorbus_cuda.dialect import dialect

pytestmark = pytest.mark.usefixtures("cupy_or_names")
LANGUAGE = dialect(132)
SHAPE = (64, 32, 16, 16)


class Cuda:
    """A GPU that notes what is launched: the function, its size, the pointers and numbers at that time."""

    def __init__(self, kernel_launch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream, self.other = SimpleNamespace(ptr=5), SimpleNamespace(ptr=6)
        self.alone, self.bare = True, nullcontext()
        self.notes: list[str] = []
        self.failures = SimpleNamespace(note=self.notes.append)
        self.blocks: list[Any] = []
        self.launched: list[tuple[Any, ...]] = []
        self.counts: dict[int, tuple[int, int]] = {}
        self.pool = SimpleNamespace(allocate=self.allocate)
        self.kernel_launch = kernel_launch
        monkeypatch.setattr(kernel_launch.driver, "launchKernel", self.launch, raising=False)
        monkeypatch.setattr(kernel_launch.driver, "funcSetAttribute", lambda *_: None, raising=False)
        monkeypatch.setattr(kernel_launch.driver, "CUDADriverError", RuntimeError, raising=False)

    def allocate(self, nbytes: int, index: int = 0) -> Any:
        at = 1 << 20 if not self.blocks else self.blocks[-1].ptr + self.blocks[-1].nbytes + 512
        users: list[Any] = []
        block = SimpleNamespace(ptr=at, nbytes=nbytes, stream=self.stream, users=users, used_by=users.append)
        self.blocks.append(block)
        return block

    def launch(self, function: int, *rest: Any) -> None:
        *size, stream, arguments, _ = rest
        buffers, params = self.counts[function]
        places = (ctypes.c_void_p * (buffers + params)).from_address(arguments)
        words = [ctypes.c_uint64.from_address(place or 0).value for place in places]
        self.launched.append((function, tuple(size), stream, words[:buffers], words[buffers:]))


class Compiler:
    """CUDA's compiler on that GPU: each kernel is a number. ``whole``: it queues programs by one call."""

    def __init__(self, gpu: Cuda, whole: bool) -> None:
        self.gpu, self.allocate = gpu, gpu.allocate
        self.functions: dict[str, Any] = {}
        if whole:
            self.sequence = self._sequence

    def dialect(self, index: int) -> Any:
        return LANGUAGE

    def prepare(self, source: str, launch: Any, index: int) -> Any:
        kernel = launch.kernel
        function = self.functions.setdefault(source, SimpleNamespace(ptr=len(self.functions) + 1))
        self.gpu.counts[function.ptr] = len(kernel.buffers), len(kernel.params)
        gpu = SimpleNamespace(**{**vars(self.gpu), "stream": lambda: self.gpu.stream})
        return self.gpu.kernel_launch.Launcher(gpu, function, launch).queue

    def _sequence(self, runs: Any, slots: Any, late: Any, arena: Any, index: int) -> Any:
        gpu = SimpleNamespace(**{**vars(self.gpu), "stream": lambda: self.gpu.stream})
        launchers = [run.__self__ for run in runs]
        return self.gpu.kernel_launch.LaunchSequence(gpu, launchers, slots, arena.offsets, late).queue


def _normalized(x: Any, weight: Any, scale: Any) -> tuple[Any, Any]:
    """Return what takes several reductions one after the other, and a number of its own."""
    mean = tb.mean(x, axis=(0, 2, 3), keepdims=True)
    centred = x - mean
    spread = tb.mean(centred * centred, axis=(0, 2, 3), keepdims=True)
    return centred * spread * tb.reshape(weight, (SHAPE[1], 1, 1)) * scale, tb.reshape(mean, (SHAPE[1],))


def _graph() -> Graph:
    specs = [Spec(SHAPE, dt.float32), Spec((SHAPE[1],), dt.float32), Spec((), dt.float32)]
    inputs = tuple([
        Node(op="input", attrs={"index": k, **({"scalar": True} if k == 2 else {})}, spec=spec)
        for k, spec in enumerate(specs)
    ])  # fmt: skip
    outs = _normalized(*map(PRIMS.wrap, inputs))
    return Graph(inputs=inputs, outputs=tuple([out._value for out in outs]))


def test_a_sequence_launches_what_its_launches_do_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorbus.decompose.decompose import decompose
    from tensorbus.graph.passes.simplify import simplify
    from tensorbus_cuda import kernel_launch

    graph = simplify(decompose(_graph(), lambda op: False))
    runs: list[tuple[Cuda, list[Any], list[Any]]] = []
    for whole in (False, True):
        gpu = Cuda(kernel_launch, monkeypatch)
        x, weight = (
            StridedArray.contiguous(gpu.allocate(1 << 21), s, dt.float32) for s in (SHAPE, SHAPE[1:2])
        )
        x = StridedArray(x.buffer, x.shape, x.strides, 4, x.dtype)  # an offset comes late
        weight.buffer.stream = gpu.other
        program = generated_program.GeneratedProgram(Compiler(gpu, whole), "norm", graph, [x, weight, 0.5], 0)
        assert len(program.steps) > 2
        before = len(gpu.blocks)
        outs = program.every([x, weight, 0.5])
        runs.append((gpu, outs, gpu.blocks[before:]))
        gpu.launched, first = [], gpu.launched
        program.every([x, weight, 0.25])
        assert len(first) == len(gpu.launched) == len(program.steps)
        numbers = [number for _, _, _, _, numbers in gpu.launched for number in numbers]
        assert 0x3E800000 in [n & 0xFFFFFFFF for n in numbers]  # 0.25 as float32
        gpu.launched = first
        assert gpu.stream in weight.buffer.users
        assert gpu.notes[: len(first)] == [step.launch.kernel.name for step in _steps(program)]
    (one, outs_one, _), (all_at_once, outs_all, own) = runs
    assert len(own) == len(outs_all) + 1  # the results, and one block for all else
    known = {b.ptr for out in outs_one for b in (out.buffer,)} | {b.ptr for b in one.blocks[:2]}
    place = {one.blocks[k].ptr: all_at_once.blocks[k].ptr for k in (0, 1)}
    place |= {a.buffer.ptr: b.buffer.ptr for a, b in zip(outs_one, outs_all, strict=True)}
    room = own[-1]
    for alone, together in zip(one.launched, all_at_once.launched, strict=True):
        assert (alone[0], alone[1], alone[2], alone[4]) == (
            together[0],
            together[1],
            together[2],
            together[4],
        )
        for pointer, other in zip(alone[3], together[3], strict=True):
            if pointer in known:
                assert other == place[pointer]
            else:
                assert room.ptr <= other < room.ptr + room.nbytes
    # What one launch writes and the next reads is the same place in the block.
    shared = [[p for p in launch[3] if p not in known] for launch in one.launched]
    for k, (a, b) in enumerate(pairwise(shared)):
        for pointer in {*a} & {*b}:
            at = all_at_once.launched[k][3][one.launched[k][3].index(pointer)]
            assert at == all_at_once.launched[k + 1][3][one.launched[k + 1][3].index(pointer)]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_launch_with_a_new_block_is_that_of_blocks_that_are_there(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block takes its place among the pointers, and other streams' blocks know of the launch."""
    from tensorbus_cuda import kernel_launch

    gpu = Cuda(kernel_launch, monkeypatch)
    kernel = SimpleNamespace(
        name="tb_mine", buffers=(0, 1, 2), params=(), group_bytes=0, body=(), ordered=False
    )  # fmt: skip
    launch = SimpleNamespace(
        kernel=kernel, grid=(7,), values=(), group=0, tiled=False, most=0, shares=False
    )  # fmt: skip
    unit = SimpleNamespace(**{**vars(gpu), "stream": lambda: gpu.stream})
    unit.pool = SimpleNamespace(allocate_in=lambda nbytes, stream: gpu.allocate(nbytes))
    launcher = kernel_launch.Launcher(unit, SimpleNamespace(ptr=1), launch)
    gpu.counts[1] = 3, 0
    blocks = [gpu.allocate(64), gpu.allocate(64)]
    blocks[0].stream = gpu.other
    new = launcher.queue_new(place, 256, [*blocks], ())
    assert (new.nbytes, gpu.notes) == (256, ["tb_mine"])
    launcher.queue([*blocks[:place], new, *blocks[place:]])
    assert gpu.launched[0] == gpu.launched[1]
    expected = [block.ptr for block in (*blocks[:place], new, *blocks[place:])]
    assert gpu.launched[0][3] == expected
    assert gpu.stream in blocks[0].users


def _steps(program: Any) -> list[Any]:
    return [step for item in program.program.steps for step in generated_program.steps_of(item)]
