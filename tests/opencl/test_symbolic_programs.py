"""Programs for many sizes on opencl: a new size fills the launches that there are, and prepares none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import plugins
from tensorbus.backend_api import INDEX, Launch, RuntimeArg
from tensorbus.backend_api import dtypes as dt
from tensorbus.executors import source_lowering
from tensorbus.lowering.ir.loop_ir import LoopKernel, Var
from tensorbus.tracing.plan_env import PlanEnv
from tensorbus_opencl.launch_template import LaunchTemplate

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "elementwise": (lambda x: x * 2 + 1, lambda x: x * 2 + 1),
    "sums": (lambda x: (x.sum(), x.sum(axis=0), tb.sum(x, axis=1)), lambda x: (x.sum(), x.sum(0), x.sum(1))),
    "sorted": (lambda x: tb.sort(x, axis=0), lambda x: np.sort(x, 0)),
    "scanned": (lambda x: tb.cumulative_sum(x, axis=0), lambda x: x.cumsum(0, dtype="f4")),
    "product": (lambda x: x @ x.T, lambda x: x @ x.T),
    "joined": (lambda x: tb.concat([x, x * 2, x], axis=0).T, lambda x: np.concatenate([x, x * 2, x]).T),
    "gathered": (
        lambda x: tb.take(x, tb.arange(x.shape[0] - 1, -1, -1, device=x.device), axis=0), lambda x: x[::-1]
    ),
    "views": (lambda x: (x, x[::2], x.reshape((-1,))), lambda x: (x, x[::2], x.reshape(-1))),
    "by its length": (lambda x: (x * x.shape[0], x + 1), lambda x: (x * x.shape[0], x + 1)),
}  # fmt: skip
"""Of small integers, whose sums are exact in any order."""


def _numbers(n: int, columns: int = 6) -> Any:
    return np.random.default_rng(n).integers(-9, 9, (n, columns)).astype("f4")


def test_results_outlive_later_runs_of_other_sizes() -> None:
    """Temporaries lie where those of the run before lay, in each thread's runs too; results never do."""

    def several(x: Any) -> Any:
        y = x @ x.T
        z = tb.softmax(y / 64, axis=-1) @ x
        w = tb.softmax((z @ z.T) / 64, axis=-1) @ z
        return y, z, w, (w * w).sum(axis=1)

    compiled = tb.compile(several, dynamic=True, compare_eager=False)
    lengths = (40, 41, 39, 64, 20, 41, 40, 90)
    operands = {n: tb.asarray(_numbers(n), device="opencl") for n in lengths}
    expected = {n: [out.numpy() for out in several(x)] for n, x in operands.items()}
    for n in lengths[:2]:
        compiled(operands[n])
    results: list[tuple[int, Any]] = []

    def run(part: Any) -> None:
        for n in part:
            results.append((n, compiled(operands[n])))

    threads = [threading.Thread(target=run, args=(part,)) for part in (lengths, lengths[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2 * len(lengths)
    for n, outs in results:
        for ours, right in zip(outs, expected[n], strict=True):
            np.testing.assert_allclose(ours.numpy(), right, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_length_is_exact_and_none_prepares_launches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, expected = FUNCTIONS[name]
    compiled = tb.compile(function, dynamic=True, compare_eager=False)

    def run(n: int) -> None:
        x = _numbers(n)
        results, wanted = compiled(tb.asarray(x, device="opencl")), expected(x)
        pairs = zip(results, wanted, strict=True) if isinstance(wanted, tuple) else [(results, wanted)]
        for ours, right in pairs:
            np.testing.assert_array_equal(ours.numpy(), right)

    for n in (5, 9, 40):
        run(n)
    prepared: list[Any] = []
    bound = source_lowering.BoundProgram
    monkeypatch.setattr(source_lowering, "BoundProgram", lambda *a, **k: prepared.append(a) or bound(*a, **k))
    for n in (10, 41, 2, 3, 6, 39, 10, 41):  # there are 6 columns
        run(n)
    assert not prepared
    for n in (0, 1, 0, 1, 1030, 4097):  # what was compiled for one length, or a plan of its own
        run(n)
    for n in range(11, 30):
        run(n)


def test_steps_of_batches_write_over_the_values_before() -> None:
    """Parameters are written over where nobody else holds them, at each size."""
    with tb.device("opencl"):
        w, held = tb.ones(6), []

        def step(x: Any) -> Any:
            nonlocal w
            w = w * 2 + x.sum(axis=0)
            return (x * w).sum()

        compiled = tb.compile(step, dynamic=True, compare_eager=False)
        mine = np.ones(6, "f4")
        for n in (5, 9, 12, 13, 14, 3):
            x = _numbers(n)
            mine = mine * 2 + x.sum(0)
            if n % 2:
                held.append((w, w.numpy().copy()))
            np.testing.assert_array_equal(compiled(tb.asarray(x)).numpy(), (x * mine).sum())
            np.testing.assert_array_equal(w.numpy(), mine)
        for value, before in held:
            np.testing.assert_array_equal(value.numpy(), before)


def test_a_bad_index_is_reported_at_a_new_size() -> None:
    with tb.device("opencl"):
        compiled = tb.compile(lambda x, i: tb.take(x, i, axis=0) * 2, dynamic=True, compare_eager=False)
        for n in (5, 9, 11, 12):
            x = tb.asarray(_numbers(n))
            np.testing.assert_array_equal(compiled(x, tb.asarray([n - 1])).numpy(), x.numpy()[-1:] * 2)
        with pytest.raises(tb.IndexingError, match="13"):
            compiled(tb.asarray(_numbers(13)), tb.asarray([13])).numpy()
        np.testing.assert_array_equal(compiled(x, tb.asarray([0])).numpy(), x.numpy()[:1] * 2)


def test_threads_fill_the_same_launches() -> None:
    compiled = tb.compile(lambda x: (x * 2 + 1).sum(axis=0), dynamic=True, compare_eager=False)
    for n in (5, 9):
        compiled(tb.asarray(_numbers(n), device="opencl"))
    wrong: list[Any] = []

    def run(first: int) -> None:
        for n in range(first, 60, 2):
            x = _numbers(n)
            y = compiled(tb.asarray(x, device="opencl")).numpy()
            if not np.array_equal(y, (x * 2 + 1).sum(0)):
                wrong.append((n, y))

    threads = [threading.Thread(target=run, args=(first,)) for first in (10, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_parameters_of_each_width_are_packed_and_floats_beyond_them_are_infinite() -> None:
    params = [(INDEX, 1 << 40), (dt.int8, -3), (dt.uint16, 65535), (dt.float32, 1e39), (dt.float64, 0.5)]
    names = tuple(Var(f"p{k}", dtype) for k, (dtype, _) in enumerate(params))
    kernel, n = LoopKernel(name="k", buffers=(), body=(), params=names), PlanEnv().symbol("s0", 5)
    handle: Any = SimpleNamespace(unit=SimpleNamespace(largest_group=256))

    def template(values: Any, grid: Any) -> LaunchTemplate:
        return LaunchTemplate(plugins, handle, Launch(kernel=kernel, values=values, grid=grid))

    values = tuple(value for _, value in params)
    closed = template(values, (7, 3)).at((), (7, 3))
    assert template((n,) * 5, (n, 3)).at(values, (7, 3)) == closed
    sizes = dict(zip(closed[0][::2], map(len, closed[0][1::2]), strict=True))
    assert sizes == {0: 8, 1: 1, 2: 2, 3: 4, 4: 8}
    assert np.frombuffer(closed[0][7], "f4")[0] == np.inf
    assert template((RuntimeArg("scalar", 0),) * 5, ()).at((), ()) == ((), (1,), (1,))
