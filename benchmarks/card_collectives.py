"""Times of collectives of ranks with a card each, beside PyTorch's of the same bytes in the same run.

``tensorbus run -n 2 benchmarks/card_collectives.py [--peer] [--sizes 8192,1048576]`` prints a table in
Markdown on rank 0: milliseconds a call of many that are queued one behind the other, of the slowest rank;
``host`` is what the host is at until it has queued one. ``--device cpu`` tries it out without cards.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import tensorbus as tb
from tensorbus import distributed as dist

from benchmarks.card_distributed import join_torch_ranks, parser_of_ranks

SIZES: Final = (8 << 10, 1 << 20, 12 << 20, 64 << 20, 1 << 30)
"""Bytes of an operand: of what all ranks have together, in all_gather and reduce_scatter."""
COUNT: Final = 20
"""Calls that are queued one behind the other."""
ROUNDS: Final = 5
Call = Callable[[], object]


def ours(chosen: argparse.Namespace, size: int) -> Iterator[tuple[str, Call, Call]]:
    """Yield names, calls and what waits for their end."""
    ranks, dtype = dist.get_world_size(), getattr(tb, chosen.dtype)
    device = tb.device(chosen.device.format(rank=dist.get_local_rank()))
    count = size // tb.zeros((1,), dtype=dtype).nbytes // ranks * ranks
    whole, part = (tb.zeros((n,), dtype=dtype, device=device) for n in (count, count // ranks))

    def wait() -> None:
        part[:1].tolist()

    yield "all_reduce", lambda: dist.all_reduce(whole), wait
    yield "all_reduce, functional", lambda: dist.functional.all_reduce(whole), wait
    yield "all_gather", lambda: dist.all_gather_into_tensor(whole, part), wait
    yield "reduce_scatter", lambda: dist.reduce_scatter_tensor(part, whole), wait


def theirs(chosen: argparse.Namespace, size: int) -> Iterator[tuple[str, Call, Call]]:
    """Yield the same of PyTorch."""
    import torch

    api: Any = torch.distributed
    ranks, dtype = api.get_world_size(), getattr(torch, chosen.dtype)
    device = torch.device(chosen.device.format(rank=dist.get_local_rank()))
    count = size // dtype.itemsize // ranks * ranks
    whole, part = (torch.zeros(n, dtype=dtype, device=device) for n in (count, count // ranks))

    def wait() -> None:
        part[:1].tolist()

    yield "PyTorch, all_reduce", lambda: api.all_reduce(whole), wait
    yield "PyTorch, all_gather", lambda: api.all_gather_into_tensor(whole, part), wait
    yield "PyTorch, reduce_scatter", lambda: api.reduce_scatter_tensor(part, whole), wait


def timed(call: Call, wait: Call) -> tuple[float, float]:
    """Return the least milliseconds a call, and those of the host, of the slowest rank."""
    best = [float("inf")] * 2
    for _ in range(ROUNDS):
        wait()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(COUNT):
            call()
        queued = time.perf_counter()
        wait()
        took = time.perf_counter() - start, queued - start
        best = [min(pair) for pair in zip(best, took, strict=True)]
    each: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(each, best)
    whole, host = (max(numbers) / COUNT * 1e3 for numbers in zip(*each, strict=True))
    return whole, host


def main() -> None:
    parser = parser_of_ranks(__doc__)
    parser.add_argument("--dtype", default="float32", metavar="NAME")
    parser.add_argument("--sizes", default="", metavar="BYTES", help="by commas")
    chosen = parser.parse_args()
    sizes = [int(size) for size in chosen.sizes.split(",") if size] or [*SIZES]
    dist.init(timeout=120)
    if chosen.peer:
        join_torch_ranks(chosen)
    speaks = dist.get_rank() == 0
    if speaks:
        print("| bytes | collective | ms | host |", "|---|---|---:|---:|", sep="\n", flush=True)
    for size in sizes:
        for calls in (ours, theirs) if chosen.peer else (ours,):
            for name, call, wait in calls(chosen, size):
                whole, host = timed(call, wait)
                if speaks:
                    print(f"| {size} | {name} | {whole:.4f} | {host:.4f} |", flush=True)
    dist.shutdown()


if __name__ == "__main__":
    main()
