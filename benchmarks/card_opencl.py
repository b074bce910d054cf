"""opencl on an NVIDIA card, doing what memory bounds: ``python -m benchmarks.card_opencl``.

Beside cuda: milliseconds each of fifty calls that are queued one behind the other, medians of 30, by turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorbus as tb

ROWS, LENGTH, LONG = 8192, 4096, 64 << 20
REPEATS, TOGETHER = 30, 50
TARGET = 0.85
functional = tb.nn.functional
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "gelu(x*a+b)*tanh(c)-x, 64 M": (
        lambda x, a, b, c: functional.gelu(x * a + b) * tb.tanh(c) - x, ((LONG,),) * 4,
    ),
    "add, 64 M": (lambda x, y: x + y, ((LONG,),) * 2),
    "softmax": (lambda x: tb.softmax(x, axis=1), ((ROWS, LENGTH),)),
    "layer norm": (lambda x: functional.layer_norm(x, (LENGTH,)), ((ROWS, LENGTH),)),
    "sum along rows": (lambda x: tb.sum(x, axis=1), ((ROWS, LENGTH),)),
    "sum down columns": (lambda x: tb.sum(x, axis=0), ((ROWS, LENGTH),)),
    "cumulative sum along rows": (lambda x: tb.cumulative_sum(x, axis=1), ((ROWS, LENGTH),)),
}  # fmt: skip


def milliseconds(run: Callable[..., Any], x: dict[str, list[Any]]) -> dict[str, float]:
    """Return the median milliseconds of a call on each device, by turns."""
    times: dict[str, list[float]] = {device: [] for device in x}
    for turn in range(REPEATS + 2):
        for device, values in x.items():
            begin = time.perf_counter()
            for _ in range(TOGETHER):
                run(*values)
            tb.Device(device).synchronize()
            if turn > 1:
                times[device].append(1e3 * (time.perf_counter() - begin) / TOGETHER)
    return {device: statistics.median(seconds) for device, seconds in times.items()}


def main() -> None:
    """Measure, and print the table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.card_opencl", description=__doc__)
    parser.add_argument("--output", type=Path, help="a file for the table")
    options = parser.parse_args()
    lines = ["| what, float32 | cuda, ms each | opencl, ms each | speed of cuda's |", "|---|---|---|---|"]
    for name, (function, shapes) in CASES.items():
        named = {d: [tb.randn(*shape, device=d) for shape in shapes] for d in ("cuda", "opencl")}
        times = milliseconds(tb.compile(function), named)
        share = times["cuda"] / times["opencl"]
        met = "" if share >= TARGET else f", short of {TARGET:.0%}"
        lines.append(f"| {name} | {times['cuda']:.3f} | {times['opencl']:.3f} | {share:.0%}{met} |")
        print(lines[-1], flush=True)
    text = f"{tb.Device('opencl').properties.name}, {tb.Device('opencl').properties.driver}\n\n" + "\n".join(
        lines
    )
    if options.output is not None:
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
