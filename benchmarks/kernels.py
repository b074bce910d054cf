"""Large arrays on cpu beside NumPy and PyTorch: 16 M float32, all peers in one run, on the same threads.

The environment variable ``ROWS`` picks rows by parts of their names, as in ``ROWS='sum, a|max, a'``.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorbus as tb
from tensorbus_cpu.gemm.mkl_gemm import instructions

from benchmarks.measure import peer_torch

ROWS, COLUMNS = 8192, 2048
SPIN = 0.05
"""Seconds for which threads of a peer may look for work before they sleep; OpenBLAS's do for 2**26 cycles."""
Case = tuple[str, float, dict[str, Callable[[], Any]]]
"""A name, the most that our time may be of the best peer's, and the calls: ``ours``, ``numpy``, ``torch``."""


def run() -> list[dict[str, Any]]:
    """Measure every case that is asked for; return a row for each, in milliseconds (medians)."""
    torch, wanted = peer_torch(tb.get_num_threads()), os.environ.get("ROWS", "").split("|")
    return [
        _row(*case)
        for cases in (_elementwise, _rows, _indexed, _products, _convolutions)
        for case in cases(torch)
        if any(part in case[0] for part in wanted)
    ]


def _row(name: str, limit: float, calls: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    times = milliseconds(calls)
    best = min(value for key, value in times.items() if key != "ours")
    ratio = times["ours"] / best
    row: dict[str, Any] = {
        "op": name,
        "tensorbus": times["ours"],
        "NumPy": times.get("numpy"),
        "PyTorch": times.get("torch"),
    }
    row |= {"of the best peer": ratio, "at most": limit, "met": ratio <= limit}
    return {key: round(v, 2) if isinstance(v, float) else v for key, v in row.items()}


def milliseconds(calls: dict[str, Callable[[], Any]], seconds: float = 0.5) -> dict[str, float]:
    """Return the median time of each call, in turns of several, so that drift hits all alike.

    A turn begins with calls that do not count: the threads of the peer before spin for some milliseconds when
    their work is done, and would be measured with whoever comes next. The orders go round: nobody always
    follows the same peer.
    """
    orders = itertools.cycle(itertools.permutations(calls))
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    while min(map(len, times.values())) < 6 or time.perf_counter() < end:
        for name in next(orders):
            alone = time.perf_counter() + SPIN
            calls[name]()
            while time.perf_counter() < alone:
                calls[name]()
            for _ in range(3):
                start = time.perf_counter()
                calls[name]()
                times[name].append((time.perf_counter() - start) * 1e3)
        if min(map(len, times.values())) >= 60:
            break
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _calls(
    ours: Callable[[], Any], numpy: Callable[[], Any] | None, torch: Callable[[], Any] | None, actual: Any
) -> dict[str, Any]:
    """Return the peers that there are; ``torch`` counts only where it is ``found``."""
    calls = {"ours": ours, "numpy": numpy, "torch": torch if actual is not None else None}
    return {key: value for key, value in calls.items() if value is not None}


def _peers(torch: Any, *arrays: Any) -> Any:
    """Return PyTorch's tensors over the arrays; None for each without it."""
    return tuple(torch.from_numpy(a) if torch else None for a in arrays)


def _data() -> Any:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal((ROWS, COLUMNS), dtype=np.float32) for _ in range(2))


def _elementwise(torch: Any) -> Iterator[Case]:
    a, b = _data()
    x, y = tb.asarray(a, device="cpu"), tb.asarray(b, device="cpu")
    p, q = _peers(torch, a, b)
    yield "x + y", 1.0, _calls(lambda: x + y, lambda: a + b, lambda: p + q, torch)
    yield "exp", 1.0, _calls(lambda: tb.exp(x), lambda: np.exp(a), lambda: torch.exp(p), torch)
    yield (
        "tanh(x * 2 + y) * y",
        1.0,
        _calls(
            lambda: tb.tanh(x * 2 + y) * y,
            lambda: np.tanh(a * 2 + b) * b,
            lambda: torch.tanh(p * 2 + q) * q,
            torch,
        ),
    )
    yield "x.T, packed", 1.0, _calls(
        lambda: tb.reshape(tb.permute_dims(x, (1, 0)), (-1,)), lambda: np.ascontiguousarray(a.T),
        lambda: p.T.contiguous(), torch,
    )  # fmt: skip


def _rows(torch: Any) -> Iterator[Case]:
    a, _ = _data()
    x, flat_a = tb.asarray(a, device="cpu"), a.reshape(-1)
    flat, (p, flat_p) = tb.reshape(x, (-1,)), _peers(torch, a, flat_a)

    def numpy_log_softmax() -> Any:
        centred = a - a.max(1, keepdims=True)
        return centred - np.log(np.exp(centred).sum(1, keepdims=True))

    def numpy_norm() -> Any:
        centred = a - a.mean(1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + 1e-5)

    for axis in (1, 0):
        yield from _softmax(torch, a, x, p, axis)
    yield (
        "log_softmax, axis 1",
        1.0,
        _calls(lambda: tb.log_softmax(x, 1), numpy_log_softmax, lambda: torch.log_softmax(p, 1), torch),
    )
    weight, bias = tb.ones((COLUMNS,), device="cpu"), tb.zeros((COLUMNS,), device="cpu")
    t_weight, t_bias = (torch.ones(COLUMNS), torch.zeros(COLUMNS)) if torch else (None, None)
    yield "layer_norm", 1.0, _calls(
        lambda: tb.nn.functional.layer_norm(x, (COLUMNS,), weight, bias), numpy_norm,
        lambda: torch.nn.functional.layer_norm(p, (COLUMNS,), t_weight, t_bias), torch,
    )  # fmt: skip
    for over in (1, 0, None):
        yield from _reductions(torch, a, x, p, over)
    for axis in (1, 0):
        yield from _scans(torch, a, x, p, axis)
    yield (
        "cumulative_sum, 1-d",
        1.0,
        _calls(
            lambda: tb.cumulative_sum(flat), lambda: flat_a.cumsum(), lambda: torch.cumsum(flat_p, 0), torch
        ),
    )
    yield (
        "sort, rows",
        1.0,
        _calls(lambda: tb.sort(x, axis=1), lambda: np.sort(a, 1), lambda: torch.sort(p, 1), torch),
    )
    yield (
        "sort, 1-d",
        1.0,
        _calls(lambda: tb.sort(flat), lambda: np.sort(flat_a), lambda: torch.sort(flat_p), torch),
    )


def _softmax(torch: Any, a: Any, x: Any, p: Any, axis: int) -> Iterator[Case]:
    def numpy() -> Any:
        powers = np.exp(a - a.max(axis, keepdims=True))
        return powers / powers.sum(axis, keepdims=True)

    calls = _calls(lambda: tb.softmax(x, axis), numpy, lambda: torch.softmax(p, axis), torch)
    yield f"softmax, axis {axis}", 1.0, calls


def _reductions(torch: Any, a: Any, x: Any, p: Any, axis: int | None) -> Iterator[Case]:
    of = "all" if axis is None else f"axis {axis}"
    operand = () if axis is None else (axis,)
    yield f"sum, {of}", 1.0, _calls(
        lambda: tb.sum(x, axis=axis), lambda: a.sum(axis), lambda: torch.sum(p, *operand), torch
    )  # fmt: skip
    yield f"max, {of}", 1.0, _calls(
        lambda: tb.max(x, axis=axis), lambda: a.max(axis), lambda: torch.amax(p, *operand), torch
    )  # fmt: skip
    yield f"argmax, {of}", 1.0, _calls(
        lambda: tb.argmax(x, axis=axis), lambda: a.argmax(axis), lambda: torch.argmax(p, *operand), torch
    )  # fmt: skip


def _scans(torch: Any, a: Any, x: Any, p: Any, axis: int) -> Iterator[Case]:
    yield f"cumulative_sum, axis {axis}", 1.0, _calls(
        lambda: tb.cumulative_sum(x, axis=axis), lambda: a.cumsum(axis), lambda: torch.cumsum(p, axis), torch
    )  # fmt: skip


def _indexed(torch: Any) -> Iterator[Case]:
    a, _ = _data()
    rng = np.random.default_rng(1)
    x, flat_a = tb.asarray(a, device="cpu"), a.reshape(-1)
    flat, (p, flat_p) = tb.reshape(x, (-1,)), _peers(torch, a, flat_a)
    places = {
        "rows": rng.integers(0, ROWS, ROWS), "1-d": rng.integers(0, a.size, a.size),
        "along": rng.integers(0, COLUMNS, a.shape),
    }  # fmt: skip
    i = {key: tb.asarray(v, device="cpu") for key, v in places.items()}
    j = dict(zip(places, _peers(torch, *places.values()), strict=True))
    yield (
        "gather, rows",
        1.0,
        _calls(lambda: x[i["rows"]], lambda: a[places["rows"]], lambda: p[j["rows"]], torch),
    )
    yield (
        "gather, 1-d",
        1.0,
        _calls(lambda: flat[i["1-d"]], lambda: flat_a[places["1-d"]], lambda: flat_p[j["1-d"]], torch),
    )
    yield "take_along_axis", 1.0, _calls(
        lambda: tb.take_along_axis(x, i["along"], axis=1), lambda: np.take_along_axis(a, places["along"], 1),
        lambda: torch.gather(p, 1, j["along"]), torch,
    )  # fmt: skip
    zeros, flat_zeros = np.zeros_like(a), np.zeros_like(flat_a)
    z, flat_z = tb.asarray(zeros, device="cpu"), tb.asarray(flat_zeros, device="cpu")
    t, flat_t = _peers(torch, zeros, flat_zeros)

    def numpy_add(target: Any, where: Any, values: Any) -> Any:
        out = target.copy()
        np.add.at(out, where, values)
        return out

    yield "scatter_add, along axis 1", 1.0, _calls(
        lambda: tb.scatter_add(z, 1, i["along"], x),
        lambda: numpy_add(zeros, (np.arange(ROWS)[:, None], places["along"]), a),
        lambda: t.scatter_add(1, j["along"], p), torch,
    )  # fmt: skip
    yield "scatter_add, 1-d", 1.0, _calls(
        lambda: tb.scatter_add(flat_z, 0, i["1-d"], flat),
        lambda: numpy_add(flat_zeros, places["1-d"], flat_a),
        lambda: flat_t.scatter_add(0, j["1-d"], flat_p), torch,
    )  # fmt: skip
    yield "index_add, rows", 1.0, _calls(
        lambda: tb.index_add(z, 0, i["rows"], x), lambda: numpy_add(zeros, places["rows"], a),
        lambda: t.index_add(0, j["rows"], p), torch,
    )  # fmt: skip


def _products(torch: Any) -> Iterator[Case]:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((2048, 2048), dtype=np.float32) for _ in range(2))
    x, y = tb.asarray(a, device="cpu"), tb.asarray(b, device="cpu")
    p, q = _peers(torch, a, b)
    yield "matmul, float32, beside NumPy", 1.05, _calls(lambda: x @ y, lambda: a @ b, None, torch)
    yield "matmul, float32", 1.05, _calls(lambda: x @ y, lambda: a @ b, lambda: p @ q, torch)
    u, v = x.to(tb.bfloat16), y.to(tb.bfloat16)
    has = instructions()
    halves = 0.25 if "amx_bf16" in has else 0.6 if "avx512_bf16" in has else 1.25
    bytes_ = 0.25 if "amx_int8" in has else 0.35 if "avx512_vnni" in has else 1.5
    yield "matmul, bfloat16, beside float32", halves, _calls(lambda: u @ v, lambda: a @ b, None, torch)
    c, d = (rng.integers(-128, 128, (2048, 2048), np.int8) for _ in range(2))
    m, n = tb.asarray(c, device="cpu"), tb.asarray(d, device="cpu")
    yield "matmul, int8, beside float32", bytes_, _calls(lambda: m @ n, lambda: a @ b, None, torch)


def _convolutions(torch: Any) -> Iterator[Case]:
    if torch is None:
        return
    rng = np.random.default_rng(3)
    shapes = {
        "8x64x56x56, 3x3": ((8, 64, 56, 56), (64, 64, 3, 3), 1, 1),
        "8x64x56x56, 3x3, stride 2": ((8, 64, 56, 56), (128, 64, 3, 3), 2, 1),
        "8x256x14x14, 1x1": ((8, 256, 14, 14), (256, 256, 1, 1), 1, 0),
        "64x1x8x8, 3x3": ((64, 1, 8, 8), (16, 1, 3, 3), 1, 1),
        "64x16x8x8, 3x3": ((64, 16, 8, 8), (32, 16, 3, 3), 1, 1),
        "8x64x56x56, 3x3, by channels": ((8, 64, 56, 56), (64, 1, 3, 3), 1, 1),
        "8x64x56x56, 3x3, by channels, stride 2": ((8, 64, 56, 56), (64, 1, 3, 3), 2, 1),
    }
    for name, (shape, kernel, stride, padding) in shapes.items():
        a, w = (rng.standard_normal(size, dtype=np.float32) for size in (shape, kernel))
        options = {"stride": stride, "padding": padding, "groups": shape[1] // kernel[1]}
        yield from _convolution(torch, name, a, w, options)


def _convolution(torch: Any, name: str, a: Any, w: Any, options: dict[str, Any]) -> Iterator[Case]:
    x, f = (tb.asarray(v, device="cpu") for v in (a, w))
    p, q = _peers(torch, a, w)
    conv = torch.nn.functional.conv2d
    yield f"conv2d {name}", 1.5, _calls(
        lambda: tb.conv2d(x, f, **options), None, lambda: conv(p, q, **options), torch
    )  # fmt: skip
    x, f = (tb.asarray(v, device="cpu").requires_grad_() for v in (a, w))
    p, q = (v.clone().requires_grad_() for v in (p, q))

    def ours() -> None:
        x.grad = f.grad = None
        out = tb.conv2d(x, f, **options)
        out.backward(tb.ones(out.shape, device="cpu"))

    def theirs() -> None:
        p.grad = q.grad = None
        out = conv(p, q, **options)
        out.backward(torch.ones(out.shape))

    yield f"conv2d {name}, with gradients", 1.5, _calls(ours, None, theirs, torch)
