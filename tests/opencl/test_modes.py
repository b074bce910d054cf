"""Compiled programs on opencl: state in its place, what a run queues, and the modes of ``compile``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.compiler.programs import program_cache as executables

from error_bounds import assert_alike, assert_within, gamma, stored

OPENCL = "opencl"
F = tb.nn.functional


@pytest.fixture(autouse=True)
def fresh(bench: Any) -> Iterator[None]:
    executables.clear()
    yield
    executables.clear()


def memory(x: Any) -> int:
    return int(x._value.buffer.memory.int_ptr)


def decaying(w: Any, mode: str = "default") -> Any:
    @tb.compile(mode=mode)
    def step(g: Any) -> Any:
        w[...] = w * 0.5 + g
        return w.sum()

    return step


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_state_is_updated_in_its_place(mode: str) -> None:
    w, g = tb.zeros((300, 100), device=OPENCL), tb.ones((300, 100), device=OPENCL)
    step = decaying(w, mode)
    right = np.zeros((300, 100), "f4")
    places = set()
    for k in range(5):
        step(g)
        if k:  # the first run is captured
            places.add(memory(w))
        right = right * 0.5 + 1
        np.testing.assert_array_equal(w.numpy(), right)
    assert len(places) == 1


def test_what_somebody_else_holds_is_not_written_over() -> None:
    w, g = tb.zeros((30, 10), device=OPENCL), tb.ones((30, 10), device=OPENCL)
    step = decaying(w)
    for _ in range(3):
        step(g)
    copies, seen = (w.clone(), w[3:, :] * 1), w.numpy().copy()
    views = w.detach(), w[3:, :]
    for _ in range(2):
        step(g)
    for whole, part, shown in ((*copies, seen), (*views, w.numpy())):
        np.testing.assert_array_equal(whole.numpy(), shown)
        np.testing.assert_array_equal(part.numpy(), shown[3:])


def test_what_another_queue_may_still_read_is_not_written_over() -> None:
    w, g = tb.zeros((30, 10), device=OPENCL), tb.ones((30, 10), device=OPENCL)
    step = decaying(w)
    for _ in range(3):
        step(g)
    side, behind = tb.Stream(OPENCL), tb.Event(OPENCL)
    behind.record()
    side.wait_event(behind)
    with tb.stream(side):
        other = w * 2
    place = memory(w)
    step(g)
    assert memory(w) != place
    side.synchronize()
    assert other.numpy()[0, 0] == 2 * (w.numpy()[0, 0] - 1) / 0.5


def test_the_peak_of_an_update_is_one_copy() -> None:
    device = tb.device(OPENCL)
    w, g = tb.zeros((1000, 1000), device=OPENCL), tb.ones((1000, 1000), device=OPENCL)
    step = decaying(w)
    for _ in range(3):
        step(g)
    device.synchronize()
    device.reset_peak_memory_stats()
    before = device.memory_stats().allocated
    step(g)
    assert device.memory_stats().peak - before < 1 << 20


WAITS = ("enqueue_copy", "enqueue_marker", "wait_for_events")


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_run_queues_its_kernels_and_waits_for_nothing(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launches, waits = [], []
    enqueue = cl.enqueue_nd_range_kernel

    def queued(*args: Any, **named: Any) -> Any:
        launches.append(args)
        return enqueue(*args, **named)

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", queued)
    model = tb.nn.Sequential(tb.nn.Linear(16, 32), tb.nn.GELU(), tb.nn.Linear(32, 4)).to(OPENCL)
    optimizer = tb.optim.AdamW(model.parameters(), lr=1e-3)

    @tb.compile(mode=mode)
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    x, y = tb.randn(8, 16, device=OPENCL), tb.randn(8, 4, device=OPENCL)
    for _ in range(4):
        step(x, y)
    (program,) = executables._programs.values()
    for name in WAITS:
        monkeypatch.setattr(cl, name, lambda *args, name=name, **named: waits.append(name))
    for name in ("finish", "flush"):
        result = type(plugins.backend(OPENCL).runtime.units[0].queue())
        monkeypatch.setattr(result, name, lambda self, name=name: waits.append(name))
    launches.clear()
    step(x, y)
    monkeypatch.undo()
    assert len(launches) == len(program.executable.parts())
    assert waits == []


def test_each_step_has_a_time_and_a_text() -> None:
    x = tb.rand(60, 50, device=OPENCL)
    compiled = tb.compile(lambda x: tb.cumulative_sum(tb.softmax(x, axis=-1), axis=0))
    compiled(x)
    (program,) = executables._programs.values()
    executable: Any = program.executable
    times = executable.times([x._value])
    assert list(times) == [part.name for part in executable.parts()]
    assert all(seconds > 0 for seconds in times.values())
    assert all(part.loops and "__kernel" in part.code and part.ops for part in executable.parts())
    turned = tb.permute_dims(tb.rand(50, 60, device=OPENCL), (1, 0))
    assert list(executable.times([turned._value])) == list(times)


def scaled(x: Any, factor: Any, rows: Any) -> Any:
    y = tb.cumulative_sum(tb.flip(x, axis=0), axis=1) * factor
    return y[rows], tb.softmax(y, axis=-1)


def test_a_replay_takes_new_values_numbers_and_queues() -> None:
    replayed = tb.compile(scaled, mode="reduce-overhead", dynamic=None)
    rows = tb.asarray([0, 3, 5], device=OPENCL)
    for k in range(6):
        x = tb.rand(6, 40, device=OPENCL)
        stream = tb.Stream(OPENCL) if k % 2 else None
        if stream is not None:
            tb.device(OPENCL).synchronize()
            with tb.stream(stream):
                result = replayed(x, 2.0, rows)
            stream.synchronize()
        else:
            result = replayed(x, 2.0, rows)
        assert_alike(result, scaled(x, 2.0, rows), 40 + 8)


def test_results_of_a_replay_stay_what_they_are() -> None:
    doubled = tb.compile(lambda x: tb.flip(tb.cumulative_sum(x * 2)), mode="reduce-overhead")
    values = [tb.rand(100, device=OPENCL) for _ in range(4)]
    retained = [doubled(x) for x in values]
    for x, out in zip(values, retained, strict=True):
        wanted = np.cumsum(x.numpy() * 2, dtype="f8")[::-1]
        assert_within(out.numpy(), wanted, gamma(100, "float32") * wanted)


def test_choices_change_no_result_and_are_said(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))

    def f(x: Any, w: Any) -> Any:
        return tb.softmax(x @ w, axis=-1), (x * x).sum(axis=0)

    x, w = tb.rand(70, 30, device=OPENCL), tb.rand(30, 90, device=OPENCL)
    tuned = tb.compile(f, mode="max-autotune")
    report = tb.compile.explain(tuned)(x, w)
    assert [note.split()[1].rstrip(",") for note in report.notes][:4] == [
        "lanes",
        "tile_rows",
        "tasks_to_fill",
        "most",
    ]
    assert_alike(tuned(x, w), f(x, w), 30 + 90 + 8)  # sums of a product and of a row
    assert list((tmp_path / "opencl" / "choices").iterdir())


@pytest.mark.full
@pytest.mark.parametrize("dtype", [tb.float32, tb.bfloat16, tb.float16])
def test_rows_are_tried_in_every_vector(dtype: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBUS_CACHE_DIR", str(tmp_path))
    labels = tb.randint(0, 40, (64,), device=OPENCL)

    def slopes(x: Any, b: Any) -> Any:
        loss = F.cross_entropy(x @ tb.eye(40, dtype=dtype, device=OPENCL) + b, labels)
        return F.softmax(x, dim=-1), loss, *tb.grad(loss, (x, b))

    x = tb.randn(64, 40, device=OPENCL).to(dtype).requires_grad_()
    b = tb.zeros(40, device=OPENCL, dtype=dtype).requires_grad_()
    for fn in (slopes, lambda x, b: (F.softmax(x, dim=-1),)):
        tuned = tb.compile(fn, mode="max-autotune")
        assert tb.compile.explain(tuned)(x, b).notes
        for ours, right in zip(tuned(x, b), fn(x, b), strict=True):
            actual, wanted = (v.detach().to(tb.float32).numpy() for v in (ours, right))
            size = abs(wanted).max()
            narrow = 0 if dtype is tb.float32 else 4 * stored(size, dtype)
            assert_within(actual, wanted, 2 * gamma(64 + 40, "float32") * size + narrow)
