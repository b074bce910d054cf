"""Generated kernels on OpenCL's processor runtime, as shares of the copy bandwidth: 16 M float32, one run.

What counts as copy bandwidth is the better of a copy kernel written by hand and a copy by NumPy in as many
threads as there are cores. Times are the least of interleaved rounds: others who compute only add to them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import tensorbus as tb

SIDE = 4096
SIZE = SIDE * SIDE
TARGET = 70.0
ROUNDS = 15
Call = Callable[[], object]
_COPY = """__kernel void copy(__global const float *x, __global float *y) {
  const size_t k = get_global_id(0);
  y[k] = x[k];
}"""


def run() -> list[dict[str, Any]]:
    """Measure every case; return a row for each: milliseconds, GB/s, and the share of the copy bandwidth."""
    copies = {"copy, OpenCL": _opencl_copy(), "copy, NumPy in threads": _numpy_copy()}
    cases = {name: (call, size, target) for name, call, size, target in _cases()}
    times = least({**copies, **{name: call for name, (call, _, _) in cases.items()}})
    best = max(8 * SIZE / times[name] for name in copies)
    rows = [_row(name, times[name], 8 * SIZE, best, None) for name in copies]
    return rows + [_row(name, times[name], size, best, target) for name, (_, size, target) in cases.items()]


def _row(name: str, seconds: float, size: int, best: float, target: float | None) -> dict[str, Any]:
    share = 100 * size / seconds / best
    row: dict[str, Any] = {
        "op": name, "ms": round(seconds * 1e3, 2), "GB/s": round(size / seconds / 1e9, 1),
        "share of copy, %": round(share, 1),
    }  # fmt: skip
    return row if target is None else {**row, "at least": target, "met": share >= target}


def least(calls: dict[str, Call]) -> dict[str, float]:
    """Return the least seconds of each call, in turn, so that drift hits all alike."""
    times: dict[str, float] = {}
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name] = min(times.get(name, 1e9), time.perf_counter() - start)
    return times


def _opencl_copy() -> Call:
    tb.Device("opencl").synchronize()  # brings up the device, which points PyOpenCL at the drivers
    import pyopencl as cl

    devices = [d for p in cl.get_platforms() for d in p.get_devices() if d.type & cl.device_type.CPU]
    context = cl.Context(devices[:1])
    queue = cl.CommandQueue(context)
    x, y = (cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * SIZE) for _ in range(2))
    for buffer in (x, y):
        cl.enqueue_fill_buffer(queue, buffer, np.ones(1, np.float32), 0, 4 * SIZE)
    kernel = cl.Program(context, _COPY).build().copy

    def call() -> None:
        kernel(queue, (SIZE,), (1024,), x, y)
        queue.finish()

    return call


def _numpy_copy() -> Call:
    count = os.cpu_count() or 1
    x, y = np.ones(SIZE, np.float32), np.ones(SIZE, np.float32)
    parts = list(zip(np.array_split(x, count), np.array_split(y, count), strict=True))
    pool = ThreadPoolExecutor(count)

    def copy(part: tuple[Any, Any]) -> None:
        np.copyto(part[1], part[0])

    return lambda: list(pool.map(copy, parts))


def _cases() -> Iterator[tuple[str, Call, int, float | None]]:
    """Yield names, calls, the bytes that a call reads and writes at least, and the target."""
    device = tb.Device("opencl")
    rng = np.random.default_rng(0)
    x, y = (tb.asarray(rng.standard_normal((SIDE, SIDE), dtype=np.float32), device=device) for _ in range(2))
    flat = tb.reshape(x, (-1,))
    weight, bias = tb.ones((SIDE,), device=device), tb.zeros((SIDE,), device=device)
    places = tb.asarray(rng.integers(0, SIZE, SIZE), device=device)
    zeros = tb.zeros((SIZE,), device=device)

    def chain() -> Any:
        out = x
        for _ in range(5):
            out = out * 1.0001 + y
        return out

    def done(call: Callable[[], Any]) -> Call:
        def run() -> None:
            out = call()
            device.synchronize()
            del out

        return run

    retained, read = 4 * SIZE, 8 * SIZE
    yield "x + y", done(lambda: x + y), 3 * retained, TARGET
    yield "x * 2", done(lambda: x * 2.0), read, TARGET
    yield "exp", done(lambda: tb.exp(x)), read, TARGET
    yield "sigmoid", done(lambda: tb.sigmoid(x)), read, TARGET
    yield "chain of 10 ops", done(chain), 5 * (read + 3 * retained), TARGET
    for axis in (None, 1, 0):
        of = "all" if axis is None else f"axis {axis}"
        for reduce in (tb.sum, tb.max, tb.mean, tb.argmax):
            yield f"{reduce.__name__}, {of}", done(partial(reduce, x, axis=axis)), retained, TARGET
    yield "softmax, axis 1", done(lambda: tb.softmax(x, axis=1)), read, None
    yield "log_softmax, axis 1", done(lambda: tb.log_softmax(x, axis=1)), read, None
    yield "softmax, axis 0", done(lambda: tb.softmax(x, axis=0)), read, None
    yield "layer_norm", done(lambda: tb.nn.functional.layer_norm(x, (SIDE,), weight, bias)), read, None
    yield "x.T, packed", done(lambda: tb.reshape(tb.matrix_transpose(x), (-1,))), read, None
    yield "cumulative_sum, axis 1", done(lambda: tb.cumulative_sum(x, axis=1)), read, None
    yield "cumulative_sum, axis 0", done(lambda: tb.cumulative_sum(x, axis=0)), read, None
    yield "sort, 1-d", done(lambda: tb.sort(flat)), read, None
    yield "argsort, 1-d", done(lambda: tb.argsort(flat)), retained + 8 * SIZE, None
    yield "sort, rows", done(lambda: tb.sort(x, axis=1)), read, None
    yield "gather, 1-d", done(lambda: flat[places]), read + 8 * SIZE, None
    yield "scatter_add, 1-d", done(lambda: tb.scatter_add(zeros, 0, places, flat)), read + 8 * SIZE, None
