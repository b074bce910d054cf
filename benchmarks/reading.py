"""Training loops that read numbers: a step with each kind of read beside the same step without.

Peers are PyTorch's eager mode and ``torch.compile``, where it is installed, in the same process, on one
thread like tensorbus. Milliseconds of the processor for a call in steady state, medians of calls in turns, so
that drift and what else the machine does hit all alike. Further rows: a function ``library -> {name: call}``
in ``ROWS``, whose first call reads nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from statistics import median
from time import process_time
from typing import Any, Final

from benchmarks import isolated

Calls = dict[str, Callable[[], Any]]
TARGET = 1.3
"""How many times as long as the step without reads a step with reads may take."""
WARM_UP, LONGEST_WARM_UP = 64, 2.0
"""Calls before those that are measured (``tb.compile`` compares some with Python), or seconds of them."""
ROUNDS, LIMIT = 15, 150.0
OURS: Final = "tensorbus compiled"
WITHOUT: Final = "no reads"


class _Run:
    """The counters that a training script keeps beside the model."""

    step, every, verbose = 0, 10, False


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

    behind = (nothing_read, item_returned, loss_printed, loss_appended)
    steps = (*behind, *_reads_before_backward(loss_of, optimizer, losses, sink))
    return {step.__name__.replace("_", " "): step for step in steps}


def _reads_before_backward(
    loss_of: Callable[[], Any], optimizer: Any, losses: list[float], sink: Any
) -> tuple[Callable[[], Any], ...]:
    """Return the steps that do so before the optimizer's."""
    run = _Run()

    def read_before_backward() -> float:
        loss = loss_of()
        value: float = loss.item()
        loss.backward()
        optimizer.step()
        return value

    def printed_before_backward() -> None:
        loss = loss_of()
        print(f"loss {loss.item():.3f}", file=sink)
        loss.backward()
        optimizer.step()

    def appended_before_backward() -> None:
        loss = loss_of()
        losses.append(loss.item())
        loss.backward()
        optimizer.step()

    def numbers_bound_before_backward() -> tuple[float, str]:
        loss = loss_of()
        value, total = float(loss), 0.0
        total += loss.item()
        text = f"loss {value:.3f}"
        losses.append(value)
        loss.backward()
        optimizer.step()
        return total, text

    def printed_now_and_then() -> None:
        run.step += 1
        loss = loss_of()
        if run.step % run.every == 0 and run.step > 0:
            print(f"{run.step}: loss {loss.item():.3f}", file=sink)
        loss.backward()
        optimizer.step()

    def never_printed() -> None:
        loss = loss_of()
        if run.verbose:
            print(f"loss {loss.item():.3f}", file=sink)
        loss.backward()
        optimizer.step()

    return (
        read_before_backward, printed_before_backward, appended_before_backward,
        numbers_bound_before_backward, printed_now_and_then, never_printed,
    )  # fmt: skip


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

    def judged(pictures: Any, labels: Any) -> tuple[Any, Any]:
        output = critic(pictures).reshape(-1)
        return criterion(output, labels), output

    def dcgan() -> Any:
        of_critic.zero_grad()
        loss_real, output = judged(images, real)
        loss_real.backward()
        mean_real = output.mean()
        pictures = generator(noise)
        loss_fake, output = judged(pictures.detach(), fake)
        loss_fake.backward()
        mean_fake = output.mean()
        loss_critic = loss_real + loss_fake
        of_critic.step()
        of_generator.zero_grad()
        loss_generator, output = judged(pictures, real)
        loss_generator.backward()
        mean_generated = output.mean()
        of_generator.step()
        results = (loss_critic, loss_generator, mean_real, mean_fake, mean_generated)
        return tuple(result.detach() for result in results)

    def dcgan_five_reads() -> Any:
        of_critic.zero_grad()
        loss_real, output = judged(images, real)
        loss_real.backward()
        mean_real = output.mean().item()
        pictures = generator(noise)
        loss_fake, output = judged(pictures.detach(), fake)
        loss_fake.backward()
        mean_fake = output.mean().item()
        loss_critic = loss_real + loss_fake
        of_critic.step()
        of_generator.zero_grad()
        loss_generator, output = judged(pictures, real)
        loss_generator.backward()
        mean_generated = output.mean().item()
        of_generator.step()
        return loss_critic.item(), loss_generator.item(), mean_real, mean_fake, mean_generated

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


def rows() -> Iterator[dict[str, Any]]:
    """Yield a row for each step: milliseconds by peer, and the ratio to the step without reads."""
    with tempfile.TemporaryDirectory() as folder:
        for make in ROWS:
            for step in make(importlib.import_module("tensorbus")):
                figures = isolated.measured(
                    "benchmarks.reading", make.__name__, step, limit=LIMIT,
                    environment={**isolated.ONE_THREAD, "TORCHINDUCTOR_CACHE_DIR": folder},
                )  # fmt: skip
                yield {"step": step, **figures}


def measure(group: str, step: str) -> None:
    """Report the figures of a step: those of tensorbus, then once more in turns with those of PyTorch."""
    make = next(make for make in ROWS if make.__name__ == group)
    ours, peer = importlib.import_module("tensorbus"), None
    if importlib.util.find_spec("torch") is not None:
        peer = importlib.import_module("torch")
    ways = {WITHOUT: ours.compile(_step(make, ours, None)), OURS: ours.compile(_step(make, ours, step))}
    ways["tensorbus eager"] = _step(make, ours, step)
    _report(ways)
    if peer is not None:
        ways["torch eager"] = _step(make, peer, step)
        _report(ways)
        ways["torch compiled"] = peer.compile(_step(make, peer, step))
        _report(ways)


def _report(ways: Calls) -> None:
    times = _milliseconds(ways)
    ratio = times[OURS] / times[WITHOUT]
    figures = {way: round(ms, 3) for way, ms in times.items()}
    isolated.report({**figures, "beside no reads": round(ratio, 2), "asked": TARGET, "met": ratio <= TARGET})


def _step(make: Callable[[Any], Calls], of: Any, step: str | None) -> Callable[[], Any]:
    of.set_num_threads(1)
    of.manual_seed(0)
    calls = make(of)
    return calls[step] if step is not None else next(iter(calls.values()))


def _milliseconds(ways: Calls) -> dict[str, float]:
    counts = {}
    for way, call in ways.items():
        end = process_time() + LONGEST_WARM_UP
        for k in range(WARM_UP):
            call()
            if k >= 8 and process_time() > end:
                break
        counts[way] = max(int(0.02 / max(_seconds(call, 1), 1e-7)), 1)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, call in ways.items():
            times[way].append(_seconds(call, counts[way]))
    return {way: median(spent) * 1e3 for way, spent in times.items()}


def _seconds(call: Callable[[], Any], count: int) -> float:
    start = process_time()
    for _ in range(count):
        call()
    return (process_time() - start) / count


if __name__ == "__main__":
    measure(*sys.argv[1:])
