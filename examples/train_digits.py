"""Train a small convolutional network on handwritten digits: the same program on every device.

    python examples/train_digits.py                    # cpu, opencl and refdev in turn
    python examples/train_digits.py --device opencl    # one of them
    python examples/train_digits.py --compile          # each once more, with the step as one program

The digits are the 1,797 images of 8 x 8 pixels that scikit-learn brings along; 80 % of them are learned from.
One seed gives each device the same first weights, the same order of images and the same dropout. The exit
code is 1 where a device cannot be used, stays under 97 % of the test images, or ends over 0.5 % away from
another.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import tensorbus as tb
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tensorbus import nn, optim, plugins

mpl.use("Agg")  # draws without a screen; to be chosen before what comes next
from matplotlib import pyplot
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from tensorbus.backend_api import MemoryStats

SEED = 0
BATCH = 64
ENOUGH = 0.97
APART = 0.005
COLORS = ("#0072b2", "#d55e00", "#009e73", "#8a5fa8", "#b8860b")
GREY = "#555555"
WRONG = "#c62828"
CELLS = 10
"""How many test images are drawn."""


@dataclass(kw_only=True)
class Run:
    """The training on one device."""

    device: str
    compiled: bool = False
    state: str = ""
    reason: str = ""
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    predictions: list[int] = field(default_factory=list)
    memory: MemoryStats | None = None

    @property
    def name(self) -> str:
        """The device, and whether the step was compiled."""
        return f"{self.device}, compiled" if self.compiled else self.device

    @property
    def epoch(self) -> float | None:
        """Seconds of an epoch: the median, so that what happens once (compiling, for one) does not count."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def accuracy(self) -> float | None:
        """The share of test images told right in the end; None where training did not get there."""
        return self.accuracies[-1] if self.predictions else None


def network() -> nn.Sequential:
    """Return the network, with fresh weights on the current device."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 4 * 4, 10),
    )


def training_step(
    model: nn.Module, optimizer: optim.Optimizer
) -> Callable[[tb.Tensor, tb.Tensor], tb.Tensor]:
    """Return one whole step as a function of a batch: forward, backward, and the change of the weights."""
    criterion = nn.CrossEntropyLoss()

    def step(images: tb.Tensor, labels: tb.Tensor) -> tb.Tensor:
        optimizer.zero_grad()
        loss: tb.Tensor = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@tb.no_grad()
def predict(model: nn.Module, images: tb.Tensor) -> tb.Tensor:
    """Return the digit that the model sees in each image."""
    model.eval()
    digits: tb.Tensor = model(images).argmax(axis=1)
    model.train()
    return digits


def train(
    run: Run, data: tuple[Any, Any, Any, Any], epochs: int, tick: Callable[[float, float], None]
) -> None:
    """Train on the device of ``run`` and note how it went; ``tick(loss, accuracy)`` is called every epoch."""
    device = tb.device(run.device)
    run.state = "ready"
    with device:
        device.reset_peak_memory_stats()
        tb.manual_seed(SEED)
        shuffler = random.Random(SEED)
        images, test_images, labels, test_labels = (tb.asarray(part) for part in data)
        model = network()
        optimizer = optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
        schedule = optim.CosineAnnealingLR(optimizer, T_max=epochs)
        step = training_step(model, optimizer)
        if run.compiled:
            step = tb.compile(step)
        order = list(range(len(images)))
        for _ in range(epochs):
            started = time.perf_counter()
            shuffler.shuffle(order)
            places = tb.asarray(order)
            losses = []
            for first in range(0, len(order), BATCH):
                batch = places[first : first + BATCH]
                losses.append(step(images[batch], labels[batch]))
            schedule.step()
            device.synchronize()
            run.seconds.append(time.perf_counter() - started)
            run.losses += [loss.item() for loss in losses]  # type: ignore[misc]
            digits = predict(model, test_images)
            run.accuracies.append(float(tb.mean((digits == test_labels).to(tb.float32))))
            tick(statistics.mean(run.losses[-len(losses) :]), run.accuracies[-1])
        run.predictions = digits.tolist()
        memory = device.memory_stats()
        run.memory = memory


def attempt(run: Run, data: tuple[Any, Any, Any, Any], epochs: int, progress: Progress) -> Run:
    """Train on one device; where it cannot be used, say why instead."""
    task = progress.add_task(run.name, total=epochs, note="")

    def tick(loss: float, accuracy: float) -> None:
        progress.update(task, advance=1, note=f"loss {loss:.3f}  test {accuracy:.1%}")

    try:
        train(run, data, epochs, tick)
    except (tb.TensorbusError, NotImplementedError) as error:
        run.reason = str(error)
        run.state = "failed" if run.state else "unavailable"
        progress.update(task, note=f"[red]{run.state}")
    return run


def table(runs: list[Run]) -> Table:
    """Return what the runs came to."""
    known = {status.name: status for status in plugins.status() if status.kind == "device"}
    note = (
        "* of the whole process: the device shares the host's memory"
        if any(r.memory and r.memory.scope == "process" for r in runs)
        else ""
    )
    shown = Table(title="The same network on each device", caption=note, caption_justify="right")
    compiled = {run.device: run for run in runs if run.compiled}
    for name in ("device", *["package"] * (not compiled), "state"):  # the table is to fit into 80 columns
        shown.add_column(name, no_wrap=True)
    for name in ("s / epoch", *["compiled", "ratio"] * bool(compiled), "accuracy", "peak memory"):
        shown.add_column(name, justify="right", no_wrap=True)
    for run in (run for run in runs if not run.compiled):
        status = known.get(run.device.partition(":")[0])
        package = f"{status.dist} {status.version}" if status else "not installed"
        good = run.accuracy is not None and run.accuracy >= ENOUGH
        shown.add_row(
            run.device,
            *[package] * (not compiled),
            Text(run.state, style="green" if run.accuracy is not None else "red"),
            _seconds(run.epoch),
            *_compared(run.epoch, compiled[run.device].epoch if run.device in compiled else None, compiled),
            Text("" if run.accuracy is None else f"{run.accuracy:.2%}", style="green" if good else "red"),
            _peak(run.memory),
        )
    return shown


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _compared(eager: float | None, compiled: float | None, columns: Mapping[str, Run]) -> list[str | Text]:
    """Return the compiled run's time, and how many times as fast it is; nothing where no run was compiled."""
    if not columns:
        return []
    if eager is None or compiled is None:
        return ["", ""]
    ratio = eager / compiled
    return [_seconds(compiled), Text(f"{ratio:.2f} x", style="green" if ratio >= 1 else "red")]


def _peak(memory: MemoryStats | None) -> str:
    if memory is None:
        return ""
    return f"{memory.peak / 2**20:.1f} MiB" + (" *" if memory.scope == "process" else "")


def report(runs: list[Run]) -> str:
    """Return the table's figures as JSON, for other programs."""
    rows = [
        {
            "device": run.device,
            "compiled": run.compiled,
            "state": run.state,
            "reason": run.reason,
            "accuracy": run.accuracy,
            "seconds_per_epoch": run.epoch,
            "peak_bytes": run.memory.peak if run.memory else None,
            "memory_scope": run.memory.scope if run.memory else None,
        }
        for run in runs
    ]
    return json.dumps(rows, indent=2)


def draw(runs: list[Run], images: Any, labels: Any, path: Path) -> None:
    """Draw each device's loss beside its seconds for an epoch, and the digits that were read wrongly."""
    devices = list(dict.fromkeys(run.device for run in runs))
    digits_below, row = 1.6, 1.65  # heights in inches
    figure: Any = pyplot.figure(
        figsize=(10.4, 0.75 + row * len(devices) + digits_below), layout="constrained"
    )
    figure.get_layout_engine().set(h_pad=0.06, w_pad=0.08)
    upper, lower = figure.subfigures(2, 1, height_ratios=(0.75 + row * len(devices), digits_below))
    cells = upper.subplots(len(devices), 2, sharex="col", sharey="col", width_ratios=(2.1, 1), squeeze=False)
    longest = max(run.epoch or 0.0 for run in runs)
    for place, device in enumerate(devices):
        curve, bars = cells[place]
        ways = [run for run in runs if run.device == device]
        last = place == len(devices) - 1
        draw_losses(curve, ways, COLORS[place % len(COLORS)], last)
        draw_seconds(bars, ways, COLORS[place % len(COLORS)], longest)
        bars.tick_params(axis="x", length=0, labelbottom=False)
    cells[0][0].set_title(caption(runs), loc="left", fontsize=10, color=GREY, pad=10)
    cells[0][1].set_title("Seconds for an epoch", loc="left", fontsize=10, color=GREY, pad=10)
    draw_digits(lower, runs, images, labels)
    figure.savefig(path, dpi=125)
    pyplot.close(figure)


def caption(runs: list[Run]) -> str:
    """Return what the curves are, for the head of their column."""
    both = any(run.compiled for run in runs) and any(not run.compiled for run in runs)
    means = "mean of an epoch: line eager, dots compiled" if both else "mean of an epoch"
    return f"Training loss, each batch and {means}"


def draw_losses(axes: Any, runs: list[Run], color: str, last: bool) -> None:
    """Draw the losses of one device: batches faintly, means of epochs; the compiled ones are dots on them."""
    for run in runs:
        steps = len(run.losses) // len(run.accuracies)
        means = [statistics.mean(run.losses[k : k + steps]) for k in range(0, len(run.losses), steps)]
        middles = [k + 0.5 for k in range(len(means))]
        if run is runs[0]:
            batches = [(k + 1) / steps for k in range(len(run.losses))]
            axes.plot(batches, run.losses, color=color, linewidth=0.6, alpha=0.3)
            axes.plot(middles, means, color=color, linewidth=2)
        else:
            axes.plot(
                middles, means, "o", color=color, markersize=5.5, markerfacecolor="white", markeredgewidth=1.5
            )
    axes.text(
        0.985,
        0.93,
        runs[0].device,
        color=color,
        fontsize=13,
        fontweight="bold",
        ha="right",
        va="top",
        transform=axes.transAxes,
    )
    shares = " and ".join(dict.fromkeys(f"{run.accuracies[-1]:.2%}" for run in runs))
    axes.text(
        0.985,
        0.70,
        f"{shares} of the test images read right",
        color=GREY,
        fontsize=9,
        ha="right",
        va="top",
        transform=axes.transAxes,
    )
    axes.set(yscale="log", ylabel="cross entropy", xlabel="epoch" if last else None)
    axes.set_xlim(0, len(runs[0].accuracies))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    tidy(axes)


def draw_seconds(axes: Any, runs: list[Run], color: str, longest: float) -> None:
    """Draw a bar for each run of one device, eager above compiled, with its figure behind it."""
    for place, run in enumerate(runs):
        seconds = run.epoch or 0.0
        compiled = run.compiled
        axes.barh(place, seconds, height=0.62, color=color, alpha=1.0 if compiled or len(runs) == 1 else 0.4)
        text = f"{seconds:.2f}  {'compiled' if compiled else 'eager'}"
        axes.text(seconds + longest * 0.025, place, text, va="center", fontsize=9, color="#333333")
    axes.set_xlim(0, longest * 1.5)
    middle = (len(runs) - 1) / 2
    axes.set_ylim(middle + 1.25, middle - 1.25)
    axes.set_yticks([])
    tidy(axes)
    axes.spines["bottom"].set_visible(False)


def draw_digits(figure: Any, runs: list[Run], images: Any, labels: Any) -> None:
    """Draw the test images that a device read wrongly, and others beside them up to a row."""
    wrong = sorted({k for run in runs for k, seen in enumerate(run.predictions) if seen != labels[k]})
    shown = [*wrong, *(k for k in range(len(labels)) if k not in wrong)][:CELLS]
    count = (
        f"{len(wrong)} of {len(labels)} test images read wrongly"
        if wrong
        else f"All {len(labels)} test images read right"
    )
    more = ", and some read right" if 0 < len(wrong) < CELLS else ""
    figure.suptitle(count + more, x=0.012, ha="left", fontsize=10, color=GREY)
    for cell, k in zip(figure.subplots(1, CELLS), shown, strict=True):
        seen = " or ".join(map(str, sorted({run.predictions[k] for run in runs})))
        is_wrong = k in wrong
        cell.imshow(images[k, 0], cmap="gray_r", interpolation="nearest")
        cell.set(xticks=[], yticks=[])
        cell.set_xlabel(
            f"{seen} (is {labels[k]})" if is_wrong else seen, color=WRONG if is_wrong else GREY, fontsize=10
        )
        for spine in cell.spines.values():
            spine.set(color=WRONG if is_wrong else "#dddddd", linewidth=1.6 if is_wrong else 0.8)


def tidy(axes: Any) -> None:
    """Leave out the frame that encloses nothing."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#bbbbbb")
    axes.tick_params(colors="#666666", labelsize=8)
    axes.minorticks_off()
    axes.yaxis.label.set(color="#666666", fontsize=8)
    axes.xaxis.label.set(color="#666666", fontsize=8)


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument(
        "--device", action="append", metavar="NAME", help="repeatable; default: cpu opencl refdev"
    )
    parser.add_argument("--compile", action="store_true", help="train once more with the step compiled")
    parser.add_argument("--epochs", type=int, default=12, metavar="N", help="default: 12")
    parser.add_argument(
        "--output", type=Path, default=Path("demo.png"), metavar="FILE", help="default: demo.png"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write the figures, as JSON")
    chosen = parser.parse_args()
    if chosen.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {chosen.epochs}")
    digits = load_digits()
    images = (digits.images / 16).astype("float32")[:, None]
    data = train_test_split(images, digits.target, test_size=0.2, random_state=SEED, stratify=digits.target)
    console = Console()
    columns = (
        TextColumn("{task.description:16}" if chosen.compile else "{task.description:8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as progress:
        names = dict.fromkeys(chosen.device or ("cpu", "opencl", "refdev"))
        ways = (False, True) if chosen.compile else (False,)
        todo = [Run(device=name, compiled=way) for name in names for way in ways]
        runs = [attempt(run, data, chosen.epochs, progress) for run in todo]
    console.print(table(runs))
    if chosen.report:
        chosen.report.write_text(report(runs) + "\n")
    done = [run for run in runs if run.accuracy is not None]
    problems = [f"{run.name} is {run.state}: {run.reason}" for run in runs if run.accuracy is None]
    shares = {run.name: run.accuracies[-1] for run in done}
    problems += [
        f"{name} ends at {share:.2%}, under {ENOUGH:.0%}." for name, share in shares.items() if share < ENOUGH
    ]
    if shares and max(shares.values()) - min(shares.values()) > APART:
        problems.append(f"the devices end more than {APART:.1%} apart.")
    if done:
        draw(done, data[1], data[3], chosen.output)
        console.print(f"Loss curves and predictions are in {chosen.output}.", highlight=False)
    for problem in problems:
        console.print(Text(problem, style="red"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
