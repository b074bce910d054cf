"""Eager training steps beside PyTorch's eager steps: the same models, one thread, steps in turn.

PyTorch and tensorbus run in one process for each model, so that what else the machine does hits both: the
ratio is that of medians of milliseconds of the processor. Without PyTorch there is no ratio.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
import tensorbus as tb

from benchmarks import eager_models, isolated
from benchmarks.measure import peer_torch

TARGET = 1.2
"""How many times as long as PyTorch's a step may take."""
STEPS, SECONDS = 30, 15.0
"""At most so many steps, and seconds, of each model."""
LIMIT = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, its data and its optimizer."""

    model: Callable[[Any], Any]
    data: Callable[[np.random.Generator], tuple[Any, Any]]
    optimizer: Callable[[Any, Any], Any]
    loss: str = "cross_entropy"


def images(batch: int) -> Callable[[np.random.Generator], tuple[Any, Any]]:
    """Return what makes 32 x 32 images and their classes."""
    return lambda g: (
        g.standard_normal((batch, 3, 32, 32), dtype=np.float32), g.integers(0, 10, batch)
    )  # fmt: skip


def _tokens(g: np.random.Generator) -> tuple[Any, Any]:
    shape = 12, eager_models.NANO["length"]
    vocabulary = eager_models.NANO["vocabulary"]
    return g.integers(0, vocabulary, shape), g.integers(0, vocabulary, shape).reshape(-1)


def sgd(t: Any, parameters: Any) -> Any:
    """Return SGD as convolutional networks are trained with."""
    return t.optim.SGD(parameters, lr=1e-3, momentum=0.9, weight_decay=5e-4)


CASES = {
    "6 x (Linear, GELU), Adam": Case(
        model=eager_models.perceptron, optimizer=lambda t, p: t.optim.Adam(p, lr=1e-4), loss="mse_loss",
        data=lambda g: (
            g.standard_normal((64, 256), dtype=np.float32), g.standard_normal((64, 256), dtype=np.float32)
        ),
    ),
    "nanoGPT small, AdamW": Case(
        model=eager_models.nano_gpt, data=_tokens, optimizer=lambda t, p: t.optim.AdamW(p, lr=1e-4)
    ),
    "ViT small, AdamW": Case(
        model=eager_models.vision_transformer, data=images(8),
        optimizer=lambda t, p: t.optim.AdamW(p, lr=1e-4),
    ),
    "ResNet-18, SGD": Case(model=eager_models.residual_net, data=images(8), optimizer=sgd),
    "mobilenetv2, SGD": Case(model=eager_models.mobile_net, data=images(8), optimizer=sgd),
    "shufflenetv2, SGD": Case(model=eager_models.shuffle_net, data=images(8), optimizer=sgd),
    "googlenet, SGD": Case(model=eager_models.google_net, data=images(2), optimizer=sgd),
}  # fmt: skip


def step_of(t: Any, case: Case, as_tensor: Callable[[Any], Any]) -> Callable[[], Any]:
    """Return what trains a new model for a step and returns its loss."""
    x, y = map(as_tensor, case.data(np.random.default_rng(0)))
    model = case.model(t)
    optimizer = case.optimizer(t, model.parameters())
    loss_of = getattr(t.nn.functional, case.loss)

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def measure(steps: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Return the milliseconds of each step, taken in turn."""
    for step in steps.values():
        for _ in range(3):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    end = process_time() + SECONDS
    for _ in range(STEPS):
        for name, step in steps.items():
            start = process_time()
            step()
            times[name].append((process_time() - start) * 1e3)
        if process_time() > end:
            break
    return times


def run() -> list[dict[str, Any]]:
    """Measure every model."""
    return [*rows()]


def rows() -> Iterator[dict[str, Any]]:
    """Yield a row for each model."""
    for name in CASES:
        figures = isolated.measured("benchmarks.eager_steps", name, limit=LIMIT)
        yield {"model": name, **figures}


def measure_case(name: str) -> None:
    """Report the figures of a model."""
    tb.set_num_threads(1)
    torch, case = peer_torch(1), CASES[name]
    with tb.device("cpu"):
        steps = {"tensorbus": step_of(tb, case, tb.asarray)}
        if torch is not None:
            steps["torch"] = step_of(torch, case, torch.from_numpy)
        times = measure(steps)
    row: dict[str, Any] = {}
    for peer, value in times.items():
        low, mid, high = np.percentile(value, (10, 50, 90))
        row[f"{peer} ms"] = round(float(mid), 2)
        row[f"{peer} 10 to 90 %"] = f"{low:.2f} to {high:.2f}"
    if torch is not None:
        ratio = statistics.median(times["tensorbus"]) / statistics.median(times["torch"])
        row["ratio"] = round(ratio, 2)
        row[f"at most {TARGET}"] = ratio <= TARGET
    isolated.report(row)


if __name__ == "__main__":
    measure_case(*sys.argv[1:])
