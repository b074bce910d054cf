"""The cuda device on a GPU: graphs, products, attention, sorts, exchange, and errors."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import nn, optim
from tensorbus_cuda import device as cuda

from error_bounds import assert_alike, assert_within, gamma, of_product, stored

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]


STEP_ROUNDINGS = 20 + 32 + 16
"""Of a step: products with both matrices and sums over the batch, and Adam's update."""


def trained(compiled: bool, steps: int = 6) -> tuple[list[float], Any]:
    """Return the losses of a small network that is trained on one batch, and the step."""
    tb.manual_seed(0)
    with tb.device("cuda"):
        net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
        optimizer = optim.Adam(net.parameters(), lr=0.01)
        x, y = tb.randn((16, 20)), tb.arange(16) % 5

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = tb.compile(step) if compiled else step
    return [run(x, y).item() for _ in range(steps)], run


def players(compiled: Any) -> list[Any]:
    """Return what plays the graphs of a compiled function."""
    return [
        bound._player
        for replay in compiled.replays
        for bound in replay.prepared.program.executable._known.values()
    ]


def test_a_train_step_is_one_graph_whose_numbers_change() -> None:
    plain, _ = trained(compiled=False)
    graph, step = trained(compiled=True)
    assert_alike(graph, plain, len(plain) * STEP_ROUNDINGS)
    assert plain[-1] < plain[0] / 1.5
    (player,) = players(step)
    assert player._able
    assert player._graphs


def test_results_of_a_graph_are_each_runs_own(rng: np.random.Generator) -> None:
    @tb.compile
    def chain(x: Any) -> Any:
        y = (x @ x).sum(axis=1)
        return tb.cumulative_sum(y, axis=0) @ x, y

    operands = [rng.standard_normal((64, 64)).astype("float32") for _ in range(5)]
    results = [chain(tb.asarray(x, device="cuda")) for x in operands for _ in range(2)]
    for k, (value, sums) in enumerate(results):
        x = operands[k // 2].astype("float64")
        size = (abs(x) @ abs(x)).sum(1)
        assert_within(sums.numpy(), (x @ x).sum(1), gamma(2 * 64, "float32") * size)
        size = np.cumsum(size) @ abs(x)
        assert_within(value.numpy(), np.cumsum((x @ x).sum(1)) @ x, gamma(4 * 64, "float32") * size)


def test_a_graph_runs_in_the_stream_it_was_made_for(rng: np.random.Generator) -> None:
    x = rng.standard_normal((64, 64)).astype("float32")
    step = tb.compile(lambda x: ((x @ x) @ x).sum(axis=0))
    there = tb.asarray(x, device="cuda")
    side = tb.Stream("cuda")
    wide = x.astype("float64")
    expected = (wide @ wide @ wide).sum(0)
    bound = gamma(3 * 64, "float32") * (abs(wide) @ abs(wide) @ abs(wide)).sum(0)
    for _ in range(3):
        assert_within(step(there).numpy(), expected, bound)
        side.wait_stream(tb.Stream("cuda"))
        with tb.stream(side):
            result = step(there)
        side.synchronize()
        assert_within(result.numpy(), expected, bound)


def test_bad_indices_in_a_graph_are_named(rng: np.random.Generator) -> None:
    pick = tb.compile(lambda x, i: (x @ x)[i] + x[i])
    x = tb.asarray(rng.standard_normal((8, 8)).astype("float32"), device="cuda")
    good, bad = (tb.asarray(i, device="cuda") for i in ([1, 2], [1, 9]))
    for _ in range(3):
        pick(x, good).tolist()
    with pytest.raises(IndexError, match="index 9 is out of range for an axis of length 8"):
        pick(x, bad).tolist()
    assert len(pick(x, good).tolist()) == 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_products_of_every_layout(dtype: str, rng: np.random.Generator) -> None:
    kind = getattr(tb, dtype)
    wide = np.complex128 if dtype.startswith("complex") else np.float64

    def check(x: Any, y: Any) -> None:
        a, b = (v.to(getattr(tb, np.dtype(wide).name)).numpy() for v in (x, y))
        actual = (x @ y).to(getattr(tb, np.dtype(wide).name)).numpy()
        sums = dtype if wide is np.complex128 or dtype == "float64" else "float32"
        assert_within(actual, a @ b, of_product(a, b, sums) + stored(a @ b, dtype))

    def value(*shape: int) -> Any:
        return tb.asarray(rng.standard_normal(shape).astype("float32"), device="cuda").to(kind)

    check(value(30, 40), value(40, 50))
    check(value(40, 30).T, value(50, 40).T)
    check(value(5, 30, 40), value(40, 50))
    check(value(2, 3, 8, 16), value(2, 3, 16, 24))
    check(value(2, 1, 8, 16), value(1, 3, 16, 24))
    check(value(30, 80)[:, ::2], value(80, 50)[10:50])
    check(value(1, 7), value(7, 1))
    check(tb.permute_dims(value(2, 3, 4, 5), (1, 0, 2, 3)), value(5, 6))


def test_products_with_odd_rows_are_padded_and_whole(rng: np.random.Generator) -> None:
    x = tb.asarray(rng.standard_normal((4200, 64)).astype("float32"), device="cuda").to(tb.bfloat16)
    words = tb.asarray(rng.standard_normal((1001, 64)).astype("float32"), device="cuda").to(tb.bfloat16)
    a, b = x.to(tb.float64).numpy(), words.to(tb.float64).numpy().T
    bound = of_product(a, b, "float32") + stored(a @ b, "bfloat16")
    compiled = tb.compile(lambda x, w: (x @ w.T, (x @ w.T).to(tb.float32).sum(axis=1)))
    for value in (x @ words.T, compiled(x, words)[0], compiled(x, words)[0]):
        actual = value.to(tb.float64).numpy()
        assert_within(actual, a @ b, bound)


def test_the_precision_of_products_is_what_was_asked_for(rng: np.random.Generator) -> None:
    a = rng.standard_normal((256, 256)).astype("float32")
    x, exact = tb.asarray(a, device="cuda"), a.astype("float64") @ a
    compiled = tb.compile(lambda x: ((x @ x) + 0) * 1 + 0)
    actual = {}
    try:
        for precision in ("highest", "high", "highest"):
            tb.set_matmul_precision(precision)
            for run in (lambda x: x @ x, compiled, compiled):
                error = np.linalg.norm(run(x).numpy() - exact) / np.linalg.norm(exact)
                actual.setdefault(precision, []).append(error)
    finally:
        tb.set_matmul_precision("highest")
    assert max(actual["highest"]) < 1e-5
    assert 1e-5 < min(actual["high"]) < 2e-3


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention_agrees_with_its_definition(dtype: str, causal: bool, rng: np.random.Generator) -> None:
    shape = (2, 3, 40, 64)
    q, k, v = (
        tb.asarray(rng.standard_normal(shape).astype("float32"), device="cuda").to(getattr(tb, dtype))
        for _ in range(3)
    )
    a, b, c = (x.to(tb.float64).numpy() for x in (q, k, v))
    scores = a @ b.swapaxes(-1, -2) / 8
    if causal:
        scores = np.where(np.tri(40, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    expected = shares / shares.sum(-1, keepdims=True) @ c
    attend = nn.functional.scaled_dot_product_attention
    compiled = tb.compile(lambda q, k, v: attend(q, k, v, is_causal=causal))
    for actual in (attend(q, k, v, is_causal=causal), compiled(q, k, v), compiled(q, k, v)):
        error = np.linalg.norm(actual.to(tb.float64).numpy() - expected) / np.linalg.norm(expected)
        assert error < (2e-2 if dtype == "bfloat16" else 3e-3)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("length", [49, 1000, 4096])
def test_rows_are_sorted_stably(dtype: str, length: int, rng: np.random.Generator) -> None:
    a = (rng.standard_normal((3, length, 2)) * 50).astype(dtype)
    if a.dtype.kind == "f":
        a.flat[::7], a.flat[3::11], a.flat[4::13] = np.nan, 0.0, -0.0
    x = tb.asarray(a, device="cuda")
    places = tb.argsort(x, axis=1).numpy()
    np.testing.assert_array_equal(places, np.argsort(a, axis=1, kind="stable"))
    for descending in (False, True):
        places = tb.argsort(x, axis=1, descending=descending).numpy()
        actual = tb.sort(x, axis=1, descending=descending).numpy()
        np.testing.assert_array_equal(np.take_along_axis(a, places, 1), actual)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(np.take_along_axis(a, places, 1)), np.signbit(actual))


@pytest.mark.parametrize("length", [64, 100, 1025, 4096, 300_001])
@pytest.mark.parametrize("rows", [1, 5, 700])
def test_rows_are_scanned(rows: int, length: int, rng: np.random.Generator) -> None:
    if rows * length > 3_000_000:
        length = 4097
    whole = rng.integers(-9, 9, (rows, length))
    actual = tb.cumulative_sum(tb.asarray(whole, device="cuda"), axis=1).numpy()
    np.testing.assert_array_equal(actual, np.cumsum(whole, axis=1))
    a = rng.standard_normal((rows, length)).astype("float32")
    most = tb.compile(lambda x: tb.cummax(x, 1)[0])(tb.asarray(a, device="cuda")).numpy()
    np.testing.assert_array_equal(most, np.maximum.accumulate(a, axis=1))


def test_memory_of_pytorch_and_jax_is_taken_and_given_as_it_is() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    p = torch.arange(6, dtype=torch.float32, device="cuda").reshape(2, 3)
    x = tb.from_dlpack(p)
    assert x._value.buffer.ptr == p.data_ptr()
    assert (x + 1).tolist() == (p + 1).tolist()
    y = tb.arange(6.0, device="cuda") * 2
    assert torch.from_dlpack(y).tolist() == y.tolist()
    assert torch.utils.dlpack.from_dlpack(y.__dlpack__(copy=False)).data_ptr() == y._value.buffer.ptr


def test_freed_memory_goes_to_the_next_value() -> None:
    pool = cuda.runtime().units[0].pool
    x = tb.ones((1000,), device="cuda") + 1
    place = x._value.buffer.ptr
    del x
    gc.collect()
    y = tb.ones((1000,), device="cuda")
    assert place in {y._value.buffer.ptr, (y + 1)._value.buffer.ptr}
    cuda.runtime().empty_cache(0)
    assert all(not value for value in pool._free_blocks.values())


def test_used_up_memory_says_so_and_leaves_graphs_usable(rng: np.random.Generator) -> None:
    step = tb.compile(lambda x: ((x @ x) @ x).sum(axis=0) + 1)
    x = tb.asarray(rng.standard_normal((64, 64)).astype("float32"), device="cuda")
    before = [step(x).tolist() for _ in range(3)][-1]
    with pytest.raises(tb.OutOfMemoryError, match=r"no room for .* are free. Free tensors"):
        tb.ones((1 << 22, 1 << 20), device="cuda")
    assert step(x).tolist() == before


def test_threads_that_never_used_the_gpu_may_queue() -> None:
    x = tb.ones((64,), device="cuda")
    results: list[Any] = []

    def work() -> None:
        results.append((x * 3 + 1).tolist())

    (x * 3 + 1).tolist()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[4.0] * 64] * 4


FORKED = """
import multiprocessing
import tensorbus as tb

def work(queue):
    try:
        tb.ones((2,), device="cuda").tolist()
        queue.put("it worked")
    except Exception as error:
        queue.put(str(error))

tb.ones((2,), device="cuda").tolist()
context = multiprocessing.get_context("fork")
queue = context.SimpleQueue()
child = context.Process(target=work, args=(queue,))
child.start()
print(queue.get())
child.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_is_told_to_be_spawned() -> None:
    """In a process of its own: other libraries of these tests have threads, which a fork loses."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=True)
    assert "fork" in done.stdout
    assert "spawn" in done.stdout
