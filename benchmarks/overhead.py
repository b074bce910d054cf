"""The cost of an eager call above the raw kernel, for 8-element tensors, beside NumPy and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorbus as tb

from benchmarks.measure import microseconds, peer_torch

LIMITS = {"plain": 0.6, "gradient": 2.5}
"""Microseconds above the raw kernel that are allowed."""
CUSTOM_OP_LIMIT = 2.0
"""The same for a custom op above the function that is its kernel."""


def cases() -> dict[str, dict[str, Callable[[], Any]]]:
    """Return, for each op, the calls to compare: ``raw`` is the NumPy call that does the work."""
    a, b = np.full(8, 1.5, np.float32), np.full(8, 2.5, np.float32)
    x, y = tb.asarray(a, device="cpu"), tb.asarray(b, device="cpu")
    g = tb.asarray(a, device="cpu").requires_grad_()
    results: dict[str, dict[str, Callable[[], Any]]] = {
        "add": {"raw": lambda: np.add(a, b), "plain": lambda: tb.add(x, y), "gradient": lambda: tb.add(g, y)},
        "x + y": {"raw": lambda: a + b, "plain": lambda: x + y, "gradient": lambda: g + y},
        "multiply": {
            "raw": lambda: np.multiply(a, b),
            "plain": lambda: tb.multiply(x, y),
            "gradient": lambda: tb.multiply(g, y),
        },
        "x * 2.0": {"raw": lambda: a * 2.0, "plain": lambda: x * 2.0, "gradient": lambda: g * 2.0},
        "exp": {"raw": lambda: np.exp(a), "plain": lambda: tb.exp(x), "gradient": lambda: tb.exp(g)},
        "sum": {"raw": lambda: np.sum(a), "plain": lambda: tb.sum(x), "gradient": lambda: tb.sum(g)},
    }
    torch = peer_torch(1)
    if torch is not None:
        p, q = torch.from_numpy(a.copy()), torch.from_numpy(b.copy())
        r = torch.from_numpy(a.copy()).requires_grad_()
        peers: dict[str, tuple[Callable[..., Any], ...]] = {
            "add": (lambda: torch.add(p, q), lambda: torch.add(r, q)),
            "x + y": (lambda: p + q, lambda: r + q),
            "multiply": (lambda: torch.multiply(p, q), lambda: torch.multiply(r, q)),
            "x * 2.0": (lambda: p * 2.0, lambda: r * 2.0),
            "exp": (lambda: torch.exp(p), lambda: torch.exp(r)),
            "sum": (lambda: torch.sum(p), lambda: torch.sum(r)),
        }
        for name, (plain, gradient) in peers.items():
            results[name] |= {"torch": plain, "torch gradient": gradient}
    return results


def custom_op_row() -> dict[str, Any]:
    """Measure a custom op that doubles 8 numbers above its function, beside PyTorch's; in microseconds."""

    def double(x: tb.Tensor) -> tb.Tensor:
        return x * 2.0

    op = tb.library.custom_op("benchmarks::double", double)
    x = tb.asarray(np.full(8, 1.5, np.float32), device="cpu")
    functions: dict[str, Callable[[], Any]] = {"kernel": lambda: double(x), "op": lambda: op(x)}
    torch = peer_torch(1)
    if torch is not None:

        def double_torch(x: Any) -> Any:
            return x * 2.0

        double_torch.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
        peer = torch.library.custom_op("benchmarks::double", double_torch, mutates_args=())
        p = torch.full((8,), 1.5)
        functions |= {"torch kernel": lambda: double_torch(p), "torch op": lambda: peer(p)}
    times = microseconds(functions)
    tb.library.unregister("benchmarks::double")
    row: dict[str, Any] = {"op": "custom op", "raw": times["kernel"], "tensorbus": times["op"]}
    row["above raw"] = times["op"] - times["kernel"]
    row["under 2.0"] = row["above raw"] < CUSTOM_OP_LIMIT
    if torch is not None:
        row["torch"] = times["torch op"]
        row["torch, above raw"] = times["torch op"] - times["torch kernel"]
    return {key: round(v, 2) if isinstance(v, float) else v for key, v in row.items()}


def run() -> list[dict[str, Any]]:
    """Measure every case, in microseconds; return a row for each."""
    rows = []
    for name, functions in cases().items():
        times = microseconds(functions)
        row: dict[str, Any] = {"op": name, "raw": times["raw"], "tensorbus": times["plain"]}
        row["above raw"] = times["plain"] - times["raw"]
        row["under 0.6"] = row["above raw"] < LIMITS["plain"]
        row["with gradient"] = times["gradient"]
        row["under +2.5"] = times["gradient"] - times["raw"] < LIMITS["gradient"]
        if "torch" in times:
            row |= {"torch": times["torch"], "torch, gradient": times["torch gradient"]}
            row["torch / tensorbus"] = times["torch"] / times["plain"]
        rows.append({key: round(v, 2) if isinstance(v, float) else v for key, v in row.items()})
    return [*rows, custom_op_row()]
