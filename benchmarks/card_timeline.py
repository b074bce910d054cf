"""A card's time in steps: what its kernels take, NCCL's among them, and how much runs side by side.

PyTorch's profiler hears of each kernel of the process from CUDA, whoever has launched it, those of a CUDA
graph as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

SHOWN: Final = 14
"""Names of kernels that are shown, those that take longest."""
LONG: Final = 10_000
"""Nanoseconds of a gap between kernels that is more than the start of one."""


class Span(NamedTuple):
    """One kernel or copy: nanoseconds, and its stream."""

    name: str
    start: int
    end: int
    stream: int


def spans(step: Callable[[], object], steps: int) -> list[Span]:
    """Return what the card did in so many steps, in order."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    events = profiler.profiler.kineto_results.events()
    device = [e for e in events if "CUDA" in str(e.device_type()) and e.duration_ns() > 0]
    return sorted(
        (Span(e.name(), e.start_ns(), e.end_ns(), e.device_resource_id()) for e in device),
        key=lambda span: span.start,
    )


def covered(intervals: Iterable[tuple[int, int]]) -> int:
    """Return how many nanoseconds lie in at least one of the intervals."""
    total, reached = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def summary(timeline: list[Span], steps: int) -> list[str]:
    """Return lines: milliseconds a step, of all kernels, of NCCL's, and of those alone on the card."""
    if not timeline:
        return ["the profiler was told of no kernel"]
    is_nccl = {span.name: "nccl" in span.name.lower() for span in timeline}
    every, theirs, rest = (
        covered((s.start, s.end) for s in timeline if chosen is None or is_nccl[s.name] is chosen)
        for chosen in (None, True, False)
    )
    gaps, reached = [], timeline[0].end
    for span in timeline:
        gaps.append(max(0, span.start - reached))
        reached = max(reached, span.end)
    gaps.sort(reverse=True)
    between, inside = sum(gaps[: steps - 1]), gaps[steps - 1 :]
    long = sum(gap for gap in inside if gap > LONG)
    whole = max(span.end for span in timeline) - timeline[0].start
    part = 1e6 * steps
    lines = [
        f"{whole / part:.2f} ms a step: busy {every / part:.2f}, NCCL {theirs / part:.2f}, of it with nothing"
        f" beside {(every - rest) / part:.2f}; the rest {rest / part:.2f}; {len(timeline) / steps:g} kernels,"
        f" {len({span.stream for span in timeline})} streams",
        f"idle between two steps {between / 1e6 / max(steps - 1, 1):.2f} ms, inside of one"
        f" {sum(inside) / part:.2f}, of it {long / part:.2f} in gaps above {LONG // 1000} us",
    ]
    times: dict[str, list[int]] = defaultdict(list)
    for span in timeline:
        times[span.name].append(span.end - span.start)
    for name, took in sorted(times.items(), key=lambda item: -sum(item[1]))[:SHOWN]:
        lines.append(
            f"  {sum(took) / part:7.3f} ms, {len(took) / steps:g} times, {min(took) / 1e3:.1f} us at least,"
            f" {max(took) / 1e3:.1f} at most: {name[:60]}"
        )
    return lines
