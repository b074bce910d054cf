"""Numbers of a run that kernels of a graph read from memory: the kernels; what is copied there, and when."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused import program_of, record, spec
from tensorbus.backend_interface.graph import Graph
from tensorbus.dtypes import definition as dt
from tensorbus.executors.replay_interface import Queued
from tensorbus.lowering.codegen.numbers_in_memory import numbers_in_memory
from tensorbus.lowering.ir.builder import Launch, RuntimeArg
from tensorbus.lowering.ir.loop_ir import INDEX, LoopKernel, Var
from tensorbus.lowering.ir.verify import verify
from tensorbus.lowering.program.program import Program, steps_of
from tensorbus_cuda.dialect import dialect

from cuda_host import CANNOT, run

pytestmark = pytest.mark.usefixtures("cupy_or_names")
LANGUAGE = dialect(2)
RNG = np.random.default_rng(0)


def _of_numbers(function: Callable[..., Any], kinds: list[dt.DType], count: int) -> Program:
    """Return the program of a function of ``count`` arrays, and of numbers behind them."""
    graph = record(function, *(spec(*((9, 33) if k < count else ()), dtype=d) for k, d in enumerate(kinds)))
    for node in graph.inputs[count:]:
        node.attrs["scalar"] = True
    scalars = range(count, len(kinds))
    return program_of(Graph(inputs=graph.inputs, outputs=graph.outputs), LANGUAGE.target, scalars)[1]


def _step(p: Any, m: Any, rate: Any, decay: Any) -> Any:
    average = m * decay + p * (1 - decay)
    return p - average * rate, average, tb.sum(p * rate, axis=1)


CASES = {
    "float32": (_step, [dt.float32] * 4, (0.25, 0.5)),
    "float64": (_step, [dt.float64] * 4, (0.3, 0.7)),
    "complex64": (_step, [dt.complex64] * 4, (0.25 + 1j, 0.5)),
    "int64": (lambda x, y, n, m: (x * n + y, x // m), [dt.int64] * 4, (-(2**40), 3)),
    "uint8": (lambda x, y, n, m: (x * n + y, tb.minimum(x, m)), [dt.uint8] * 4, (3, 200)),
    "bool": (lambda x, y, n, m: (x & n, y | m), [dt.bool_] * 4, (True, False)),
}  # fmt: skip


@pytest.mark.skipif(CANNOT, reason="CUDA C++ runs on the host on Linux, by a C++ compiler")
@pytest.mark.parametrize("name", CASES)
def test_kernels_that_read_numbers_from_memory_compute_the_same(name: str) -> None:
    from tensorbus_cuda.kernel_launch import sizes

    function, kinds, numbers = CASES[name]
    program = _of_numbers(function, kinds, 2)
    kind = np.dtype(kinds[0].name.removesuffix("_"))
    arrays = [RNG.integers(0, 2 if name == "bool" else 100, (9, 33)).astype(kind) for _ in range(2)]
    cells = [np.asarray([number], kind) for number in numbers]
    steps, moved = [], 0
    for step in chain.from_iterable(map(steps_of, program.steps)):
        changed = numbers_in_memory(step.launch, LANGUAGE)
        if changed is not None:
            launch, _, sent = changed
            verify(launch.kernel)
            assert not any(isinstance(value, RuntimeArg) for value in launch.values)
            moved += len(sent)
            step = replace(step, launch=launch, slots=(*step.slots, *(value.operand for value, _ in sent)))
        steps.append(step)
    assert moved >= 2
    results = run(replace(program, steps=tuple(steps)), LANGUAGE, [*arrays, *cells], sizes)
    expected = function(*(tb.asarray(x, device="cpu") for x in (*arrays, *(c[0] for c in cells))))
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, right.numpy(), rtol=1e-6)


class _Gpu:
    """A GPU, and its compiler, that note what is copied to it and which kernels are built."""

    def __init__(self) -> None:
        self.copies: list[bytes] = []
        self.built: list[str] = []
        self.breaks = False
        self.dialect = LANGUAGE
        self.pool = SimpleNamespace(allocate=lambda nbytes: SimpleNamespace(ptr=4096, memory=self))

    def copy_from_host_async(self, at: int, nbytes: int, stream: Any) -> None:
        if self.breaks:
            raise KeyboardInterrupt
        assert stream == "stream"
        self.copies.append(ctypes.string_at(at, nbytes))

    def build(self, sources: list[str], index: int) -> None:
        self.built += sources

    def template(self, source: str, launch: Launch, index: int) -> Any:
        assert source in self.built
        return launch


def _steps(count: int) -> list[Queued]:
    """Return so many kernels with a number that all have, one of their own, and an offset."""
    params = Var("rate", dt.float32), Var("own", dt.int64), Var("at", INDEX)
    kernel, steps = LoopKernel("k", (), params, ()), []
    for k in range(count):
        offset = RuntimeArg("offset", 1)
        what = Launch(
            kernel=kernel, values=(RuntimeArg("scalar", 0), RuntimeArg("scalar", 2 + k), offset), grid=(1,)
        )
        readers = [lambda values: values[0], lambda values, k=k: values[2 + k], lambda values: values[1]]
        steps.append(Queued(slots=(), written=frozenset(), late=tuple(readers), what=what))
    return steps


def test_numbers_are_copied_at_once_where_they_are_others() -> None:
    numbers: Any = importlib.import_module("tensorbus_cuda.graphs.run_numbers")
    count = numbers.MIN_STEPS
    few = numbers.RunNumbers(_Gpu(), None, SimpleNamespace(steps=_steps(count - 1), index=0))
    assert not few.launchers
    assert len(few.late(0, "abc")) == 3
    few.send((), "stream")
    gpu: Any = _Gpu()
    own = numbers.RunNumbers(gpu, gpu, SimpleNamespace(steps=_steps(count), index=0))
    places = [places for _, places in own.launchers.values()]
    assert [first for first, _ in places] == [4096] * count
    assert len({at for _, at in places}) == count
    for k, (launch, _) in own.launchers.items():
        assert [b.name for b in launch.kernel.buffers] == ["n0", "n1"]
        assert [param.name for param in launch.kernel.params] == ["at"]
        (left,) = own.late(k, ())
        assert left((0, 5)) == 5

    def sent(rate: float, plus: int) -> None:
        own.send((rate, 5, *(k + plus for k in range(count))), "stream")

    sent(0.5, 7)
    sent(0.5, 7)
    (copy,) = gpu.copies
    for k, (rate, at) in enumerate(places):
        assert np.frombuffer(copy, np.float32, 1, rate - 4096) == 0.5
        assert np.frombuffer(copy, np.int64, 1, at - 4096) == k + 7
    gpu.breaks = True
    with pytest.raises(KeyboardInterrupt):
        sent(0.25, 7)
    gpu.breaks = False
    sent(0.5, 7)  # those of the interrupted run may have been copied
    for number in (float("nan"), float("nan"), 0.0, 0.0, -0.0):
        sent(number, 7)
    assert len(gpu.copies) == 5
    assert np.signbit(np.frombuffer(gpu.copies[-1], np.float32, 1, places[0][0] - 4096)).all()
