"""Encoders and attention in inference, half of their batch padding: ``python -m benchmarks padding``.

PyTorch runs its fast path (nested tensors) in the same process and the same number of threads, with the same
weights and data, in turn with tensorbus, each of four masks in turn. Times are the processor's, of all
threads; ratios are medians of those of each turn. Without PyTorch there are none.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorbus as tb

from benchmarks.measure import peer_torch

BATCH, LENGTH, WIDTH, HEADS, HIDDEN, LAYERS = 8, 128, 512, 8, 2048, 6
CALLS, WARM, MASKS = 24, 8, 4


def run() -> list[dict[str, Any]]:
    """Measure an encoder, and attention of a batch to itself, with half of the batch padding and none."""
    threads = int(os.environ.setdefault("TENSORBUS_NUM_THREADS", str(len(os.sched_getaffinity(0)))))
    torch = peer_torch(threads)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, LENGTH, WIDTH), dtype=np.float32)
    lengths = np.linspace(LENGTH // 16, LENGTH - LENGTH // 16, BATCH).astype(int)
    masks = [np.arange(LENGTH) >= rng.permutation(lengths + k % 2)[:, None] for k in range(MASKS)]
    rows: list[dict[str, Any]] = []
    for layers, build in (("encoder", _encoder), ("attention", _attention)):
        rows += _rows(layers, build, torch, x, masks)
    return rows


def _rows(
    layers: str, build: Callable[[Any], Any], torch: Any, x: Any, masks: list[Any]
) -> list[dict[str, Any]]:  # fmt: skip
    rng, rows = np.random.default_rng(1), []
    with tb.device("cpu"):
        ours = build(tb)
        values = {name: rng.uniform(-0.05, 0.05, p.shape).astype("f4") for name, p in ours.named_parameters()}
        ours.load_state_dict({name: tb.asarray(value) for name, value in values.items()})
        compiled = tb.compile(ours, compare_eager=False)
        peer = None if torch is None else build(torch)
        if peer is not None:
            peer.load_state_dict({name: torch.from_numpy(value) for name, value in values.items()})
        for share, padding in ((float(np.mean(masks)), masks), (0.0, [None])):
            calls = {
                "tensorbus": _call(ours, tb.asarray, tb.no_grad, x, padding),
                "compiled": _call(compiled, tb.asarray, tb.no_grad, x, padding),
            }
            if peer is not None:
                calls["torch"] = _call(peer, torch.from_numpy, torch.no_grad, x, padding)
            times = _times(calls)
            row: dict[str, Any] = {
                "layers": layers,
                "input": f"{BATCH}x{LENGTH}x{WIDTH}",
                "padding": f"{share:.0%}",
            }
            row |= {f"{name} ms": round(statistics.median(each), 1) for name, each in times.items()}
            if "torch" in times:
                row["ratio"] = _ratio(times["tensorbus"], times["torch"])
                row["compiled ratio"] = _ratio(times["compiled"], times["torch"])
            rows.append(row)
    return rows


def _ratio(ours: list[float], peer: list[float]) -> float:
    return round(statistics.median([a / b for a, b in zip(ours, peer, strict=True)]), 2)


def _encoder(t: Any) -> Any:
    layer = t.nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, batch_first=True)
    return t.nn.TransformerEncoder(layer, LAYERS).eval()


def _attention(t: Any) -> Any:
    return t.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()


def _call(model: Any, as_tensor: Any, no_grad: Any, x: Any, paddings: list[Any]) -> Callable[[], Any]:
    values = as_tensor(x)
    turns = itertools.cycle([None if padding is None else as_tensor(padding) for padding in paddings])

    def call() -> Any:
        mask = next(turns)
        with no_grad():
            if hasattr(model, "out_proj"):
                return model(values, values, values, mask, need_weights=False)
            return model(values, src_key_padding_mask=mask)

    return call


def _times(calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Return the milliseconds of calls that are made in turn, without the first ones."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(WARM + CALLS):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            if number >= WARM:
                times[name].append(1e3 * (time.process_time() - begin))
    return times
