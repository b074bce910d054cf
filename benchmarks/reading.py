"""Training loops that read numbers: a step with each kind of read beside the same step without.

Peers are PyTorch's eager mode and ``torch.compile``, where it is installed, in the same run, on one thread
like tensorbus. Milliseconds a call in steady state, in turns so that drift hits all alike. Further rows: a
function ``library -> {name: call}`` in ``ROWS``.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

Calls = dict[str, Callable[[], Any]]
TARGET = 1.3
"""How many times as long as the step without reads a step with reads may take."""
WARM_UP, ROUNDS = 8, 15


def reads(lib: Any) -> Calls:
    """Return steps of 6 x (Linear, GELU) with Adam on 32 x 64 numbers, by what they do with the loss."""
    layers: list[Any] = []
    for _ in range(6):
        layers += [lib.nn.Linear(64, 64), lib.nn.GELU()]
    model = lib.nn.Sequential(*layers)
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)
    x, y = lib.randn(32, 64), lib.randn(32, 64)
    losses: list[float] = []
    sink = open(os.devnull, "w")  # noqa: SIM115 - it lives as long as the steps do

    def loss_of() -> Any:
        optimizer.zero_grad()
        return ((model(x) - y) ** 2).mean()

    def nothing_read() -> Any:
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def item_returned() -> float:
        loss = loss_of()
        loss.backward()
        optimizer.step()
        value: float = loss.item()
        return value

    def loss_printed() -> None:
        loss = loss_of()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.3f}", file=sink)

    def loss_appended() -> None:
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))

    def read_before_backward() -> float:
        loss = loss_of()
        value: float = loss.item()
        loss.backward()
        optimizer.step()
        return value

    steps = (nothing_read, item_returned, loss_printed, loss_appended, read_before_backward)
    return {step.__name__.replace("_", " "): step for step in steps}


def generative_adversarial(lib: Any) -> Calls:
    """Return a step of a small DCGAN with the five reads of PyTorch's example, and one without."""
    nn = lib.nn
    generator = nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip
    critic = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2),
        nn.Conv2d(32, 1, 4, 1, 0, bias=False),
    )  # fmt: skip
    criterion = nn.BCEWithLogitsLoss()
    of_critic = lib.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_generator = lib.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    images, noise = lib.randn(16, 1, 16, 16), lib.randn(16, 16, 1, 1)
    real, fake = lib.ones(16), lib.zeros(16)

    def step(read: bool) -> tuple[Any, ...]:
        of_critic.zero_grad()
        output = critic(images).reshape(-1)
        loss_real = criterion(output, real)
        loss_real.backward()
        mean_real = output.mean().item() if read else output.mean()
        result = generator(noise)
        output = critic(result.detach()).reshape(-1)
        loss_fake = criterion(output, fake)
        loss_fake.backward()
        mean_fake = output.mean().item() if read else output.mean()
        loss_critic = loss_real + loss_fake
        of_critic.step()
        of_generator.zero_grad()
        output = critic(result).reshape(-1)
        loss_generator = criterion(output, real)
        loss_generator.backward()
        mean_made = output.mean().item() if read else output.mean()
        of_generator.step()
        if read:
            return loss_critic.item(), loss_generator.item(), mean_real, mean_fake, mean_made
        return loss_critic.detach(), loss_generator.detach(), mean_real.detach(), mean_fake.detach()

    def dcgan() -> Any:
        return step(False)

    def dcgan_five_reads() -> Any:
        return step(True)

    return {"dcgan": dcgan, "dcgan, five reads": dcgan_five_reads}


def graph_convolutions(lib: Any) -> Calls:
    """Return two graph convolutions whose edges are chosen by boolean masks, which give sizes by values."""
    nodes, width = 500, 32
    source, target = lib.randint(0, nodes, (4000,)), lib.randint(0, nodes, (4000,))
    features = lib.randn(nodes, width)
    first, second = lib.nn.Linear(width, width), lib.nn.Linear(width, 8)

    def convolve(layer: Any, x: Any, masked: bool) -> Any:
        start, end = source, target
        if masked:
            mask = source != target
            start, end = source[mask], target[mask]
        degree = lib.zeros(nodes).index_add(0, end, lib.ones(end.shape[0])) + 1
        scale = degree**-0.5
        messages = layer(x) * scale.reshape(-1, 1)
        return messages + lib.zeros_like(messages).index_add(0, end, messages[start]) * scale.reshape(-1, 1)

    def gcn() -> Any:
        return convolve(second, lib.relu(convolve(first, features, False)), False)

    def gcn_two_masks() -> Any:
        return convolve(second, lib.relu(convolve(first, features, True)), True)

    return {"gcn": gcn, "gcn, two masks": gcn_two_masks}


ROWS: tuple[Callable[[Any], Calls], ...] = (reads, generative_adversarial, graph_convolutions)


def rows() -> list[dict[str, Any]]:
    """Return a row for each step: milliseconds by peer, and the ratio to the step without reads."""
    libraries = {name: _library(name) for name in ("tensorbus", "torch")}
    table: list[dict[str, Any]] = []
    for make in ROWS:
        ways: dict[tuple[str, str], Callable[[], Any]] = {}
        for name, lib in libraries.items():
            if lib is None:
                continue
            lib.set_num_threads(1)
            for mode in ("eager", "compiled"):
                lib.manual_seed(0)
                for step, call in make(lib).items():
                    ways[step, f"{name} {mode}"] = lib.compile(call) if mode == "compiled" else call
        times = _milliseconds(ways)
        steps = list(dict.fromkeys(step for step, _ in ways))
        for step in steps:
            row: dict[str, Any] = {"step": step}
            row |= {peer: round(ms, 3) for (of, peer), ms in times.items() if of == step}
            without = times[steps[0], "tensorbus compiled"]
            row["beside no reads"] = round(times[step, "tensorbus compiled"] / without, 2)
            table.append({**row, "target": TARGET})
    return table


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _milliseconds(ways: dict[tuple[str, str], Callable[[], Any]]) -> dict[tuple[str, str], float]:
    counts = {}
    for key, call in ways.items():
        for _ in range(WARM_UP):
            call()
        began = time.perf_counter()
        call()
        counts[key] = max(int(0.02 / max(time.perf_counter() - began, 1e-7)), 1)
    results: dict[tuple[str, str], list[float]] = {key: [] for key in ways}
    for _ in range(ROUNDS):
        for key, call in ways.items():
            began = time.perf_counter()
            for _ in range(counts[key]):
                call()
            results[key].append((time.perf_counter() - began) / counts[key])
    return {key: median(times) * 1e3 for key, times in results.items()}
