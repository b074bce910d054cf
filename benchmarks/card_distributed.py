"""Training a GPT-2-small on several cards, as a multiple of our own step on one, beside PyTorch.

``tensorbus run -n 2 benchmarks/card_distributed.py [--peer] [--timeline] [--output FILE]`` prints a table
in Markdown on rank 0. A step is forward, cross entropy, backward and AdamW, all in bfloat16, of 8x1024
tokens a card; under tensor parallel it is 8x1024 tokens on all cards together. Ours is compiled as a whole.
Each figure is the median over steps that are waited for, of the slowest rank. ``--device cpu --layers 2
--width 32 --heads 4 --length 16 --batch 2 --words 211 --dtype float32 --steps 3`` tries it out without
cards.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import tensorbus as tb
from tensorbus import distributed as dist

from benchmarks.card_timeline import SHOWN, spans, summary
from benchmarks.compiled.models import Library

Step = Callable[[], object]
TARGETS: Final = {
    "replicate": 1.15, "fully_shard": 1.15, "tensor parallel": 0.75, "tensor and sequence parallel": 0.75
}  # fmt: skip
"""Multiples of the time of one card that are aimed at."""
WARM: Final = 5
"""Steps of a round before what counts, as many rounds as it takes until two take about as long."""
ROUNDS: Final = 8
ALIKE: Final = 1.05
TRACED: Final = 3
"""Steps of a timeline."""


class Way(NamedTuple):
    """A way to train: its name, and what makes a step."""

    name: str
    step: Callable[[argparse.Namespace], Step]


def model_of(of: Library, chosen: argparse.Namespace) -> Any:
    """Return the language model; layers have one linear each for query, key and value, so that they split."""
    nn, functional, width = of.nn, of.functional, chosen.width
    head = width // chosen.heads

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            y = self.first(x)
            query, key, value = (
                of.permute(layer(y).reshape((batch, length, -1, head)), (0, 2, 1, 3))
                for layer in (self.query, self.key, self.value)
            )
            y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.out(of.permute(y, (0, 2, 1, 3)).reshape((batch, length, -1)))
            return x + self.down(functional.gelu(self.up(self.second(x))))

    class GPT(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(chosen.words, width), nn.Embedding(chosen.length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(chosen.layers)])
            self.last, self.head = nn.LayerNorm(width), nn.Linear(width, chosen.words, bias=False)
            self.head.weight = self.words.weight

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens) + self.places.weight
            for block in self.blocks:
                x = block(x)
            return self.head(self.last(x))

    return GPT()


def plan_of(parallel: Any, replicated: Any) -> dict[str, Any]:
    """Return how layers are split, by the styles of one library."""
    columns, rows = parallel.ColwiseParallel, parallel.RowwiseParallel
    plan = {f"blocks.*.{name}": columns() for name in ("query", "key", "value", "up")}
    plan |= {f"blocks.*.{name}": rows() for name in ("out", "down")}
    # What several layers read stays distributed, so that its gradients are added up before they are reduced.
    whole = parallel.PrepareModuleOutput(
        output_layouts=replicated, desired_output_layouts=replicated, use_local_output=False
    )
    plan |= {f"blocks.*.{name}": whole for name in ("first", "second")}
    return plan | {
        "words": rows(input_layouts=replicated), "head": columns(use_local_output=False),
    }  # fmt: skip


def split_in_parts(model: Any, mesh: Any) -> None:
    """Split our layers as ``plan_of`` says, and norms and residuals by the batch.

    Each token is treated by itself there, and a part of the batch lies packed in memory.
    """
    columns, rows, part = dist.ColwiseParallel, dist.RowwiseParallel, dist.Shard(0)
    norms = ("blocks.*.first", "blocks.*.second")
    summed = partial(rows, output_layouts=part, use_local_output=False)
    plan: dict[str, Any] = {name: dist.SequenceParallel(sequence_dim=0) for name in (*norms, "last")}
    plan |= {f"blocks.*.{name}": columns() for name in ("query", "key", "value", "up")}
    plan |= {f"blocks.*.{name}": summed() for name in ("out", "down")}
    plan |= {"words": summed(input_layouts=dist.Replicate()), "head": columns(use_local_output=False)}
    dist.parallelize_module(model, mesh, plan)
    whole = dist.PrepareModuleOutput(  # what several layers read is gathered once
        output_layouts=part, desired_output_layouts=dist.Replicate(), use_local_output=False
    )
    dist.parallelize_module(model, mesh, dict.fromkeys(norms, whole))
    dist.distribute_module(model.places, mesh)


def ours(chosen: argparse.Namespace, spread: Callable[[Any], object], split: bool = False) -> Step:
    """Return our step of a model that ``spread`` lays out on the ranks; ``split``: its classes are."""
    device = tb.device(chosen.device.format(rank=dist.get_local_rank()))
    tb.manual_seed(0)
    with device:
        library = Library(
            nn=tb.nn, functional=tb.nn.functional, arrays=tb, permute=tb.permute_dims, unbind=tb.unstack
        )
        model = model_of(library, chosen).to(getattr(tb, chosen.dtype))
        tokens = tb.randint(0, chosen.words, (chosen.batch, chosen.length))
        following = tb.randint(0, chosen.words, (chosen.batch * chosen.length,))
    if split:  # the same batch on all ranks
        tokens, following = (dist.functional.broadcast(x, 0) for x in (tokens, following))
    spread(model)
    optimizer = tb.optim.AdamW(model.parameters(), lr=1e-4)

    @tb.compile
    def step(tokens: Any, following: Any) -> Any:
        with dist.loss_parallel() if split else contextlib.nullcontext():
            logits = model(tokens)
            loss = tb.nn.functional.cross_entropy(logits.reshape((-1, chosen.words)), following)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    def run() -> None:
        loss = step(tokens, following)
        (loss.to_local() if isinstance(loss, dist.DTensor) else loss).tolist()

    return run


def our_ways() -> Iterator[Way]:
    """Yield our ways to train; the first is on one card, by each rank alone."""

    def sharded(model: Any) -> None:
        for block in (*model.blocks, model):
            dist.fully_shard(block)

    def split(model: Any) -> None:
        mesh = dist.init_device_mesh(None, (dist.get_world_size(),))
        dist.parallelize_module(model, mesh, plan_of(dist, dist.Replicate()))

    def parts(model: Any) -> None:
        mesh = dist.init_device_mesh(None, (dist.get_world_size(),))
        split_in_parts(model, mesh)

    yield Way("one card", lambda chosen: ours(chosen, lambda model: None))
    yield Way("replicate", lambda chosen: ours(chosen, dist.replicate))
    yield Way("fully_shard", lambda chosen: ours(chosen, sharded))
    yield Way("tensor parallel", lambda chosen: ours(chosen, split, split=True))
    yield Way("tensor and sequence parallel", lambda chosen: ours(chosen, parts, split=True))


def theirs(
    chosen: argparse.Namespace, spread: Callable[[Any], Any], split: bool = False, compiled: bool = False
) -> Step:
    """Return PyTorch's step of a model that ``spread`` lays out on the ranks."""
    import torch
    from torch.distributed.tensor import parallel

    device = torch.device(chosen.device.format(rank=dist.get_local_rank()))
    functional = torch.nn.functional
    library = Library(
        nn=torch.nn, functional=functional, arrays=torch, permute=torch.permute, unbind=torch.unbind
    )
    torch.manual_seed(0)
    model = model_of(library, chosen).to(device, getattr(torch, chosen.dtype))
    tokens = torch.randint(0, chosen.words, (chosen.batch, chosen.length), device=device)
    following = torch.randint(0, chosen.words, (chosen.batch * chosen.length,), device=device)
    net = spread(model) or model
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=device.type == "cuda" and not split)
    called: Any = torch.compile(net) if compiled else net

    def run() -> None:
        with parallel.loss_parallel() if split else contextlib.nullcontext():
            logits = called(tokens)
            loss = functional.cross_entropy(logits.reshape(-1, chosen.words), following)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach()
        (loss.full_tensor() if hasattr(loss, "full_tensor") else loss).item()

    return run


def their_ways() -> Iterator[Way]:
    """Yield PyTorch's ways to train."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, parallel
    from torch.nn.parallel import DistributedDataParallel

    def sharded(model: Any) -> None:
        for block in (*model.blocks, model):
            fully_shard(block)

    def split(model: Any) -> None:
        kind = next(model.parameters()).device.type
        mesh = init_device_mesh(kind, (torch.distributed.get_world_size(),))
        plan = plan_of(parallel, Replicate())
        parallel.parallelize_module(model, mesh, plan)
        model.head.weight = model.words.weight

    def data(model: Any) -> Any:
        return DistributedDataParallel(model)

    for word, compiled in (("", False), (", compiled", True)):
        for name, spread in (("one card", lambda model: model), ("DDP", data), ("FSDP2", sharded)):
            yield Way(f"PyTorch, {name}{word}", partial(theirs, spread=spread, compiled=compiled))
    yield Way("PyTorch, tensor parallel", partial(theirs, spread=split, split=True))


def parser_of_ranks(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with what each benchmark of ranks takes."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else "")
    parser.add_argument("--device", default="cuda:{rank}", metavar="NAME", help="{rank}: that of the machine")
    parser.add_argument("--peer", action="store_true", help="PyTorch, too")
    return parser


def join_torch_ranks(chosen: argparse.Namespace) -> None:
    """Make the ranks those of PyTorch, too."""
    import torch

    names = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(names)
    cuda = chosen.device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(dist.get_local_rank())
    torch.distributed.init_process_group(
        "nccl" if cuda else "gloo", init_method=f"file://{names[0]}/meeting", rank=dist.get_rank(),
        world_size=dist.get_world_size(),
    )  # fmt: skip


def median(step: Step, count: int) -> float:
    """Return the median milliseconds of a step, of the slowest rank, once they are steady."""
    before = 0.0
    for _ in range(ROUNDS):
        now = timed(step, WARM)
        if now <= before * ALIKE and before <= now * ALIKE:
            break
        before = now
    return timed(step, count)


def timed(step: Step, count: int) -> float:
    """Return the median milliseconds of so many steps, of the slowest rank: the same number on each."""
    dist.barrier()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    medians = [None] * dist.get_world_size()
    dist.all_gather_object(medians, statistics.median(times))
    return max(medians)  # type: ignore[type-var, return-value]


def measured(ways: Iterator[Way], chosen: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table, as they come."""
    one = 0.0
    for way in ways:
        failure, lines = "", []
        took = 0.0
        try:
            step = way.step(chosen)
            took = median(step, chosen.steps)
            lines = timeline(step) if chosen.timeline else []
            del step
        except Exception as error:  # a way that fails on all ranks is a line of the table
            failure = f"{type(error).__name__}: {error}".splitlines()[0][:90]
        gc.collect()
        one = one or took
        if failure:
            yield f"| {way.name} | {failure} | | |"
            continue
        target = TARGETS.get(way.name)
        aim = "" if target is None else f"{'' if took <= target * one else 'not '}within {target}"
        yield f"| {way.name} | {took:.2f} | {took / one:.2f} | {aim} |"
        yield from lines


def timeline(step: Step) -> list[str]:
    """Return what each rank's card did in some steps."""
    each: list[Any] = [None] * dist.get_world_size()
    dist.barrier()
    dist.all_gather_object(each, summary(spans(step, TRACED), TRACED))
    return [
        f"rank {rank}: {line}" for rank, lines in enumerate(each) for line in lines[: SHOWN + 1 - rank * 8]
    ]


def main() -> None:
    parser = parser_of_ranks(__doc__)
    parser.add_argument("--timeline", action="store_true", help="what the cards did, by PyTorch's profiler")
    parser.add_argument("--only", default="", metavar="WAYS", help="names of ways to train, by semicolons")
    parser.add_argument("--dtype", default="bfloat16", metavar="NAME")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the table goes as well")
    sizes = {"layers": 12, "width": 768, "heads": 12, "length": 1024, "batch": 8, "words": 50257, "steps": 20}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size, metavar="N", help=f"default: {size}")
    chosen = parser.parse_args()
    dist.init(timeout=120)
    speaks = dist.get_rank() == 0
    lines = ["| step | ms | of our step on one | |", "| --- | ---: | ---: | --- |"]
    if speaks:
        print(*lines, sep="\n", flush=True)

    only = {name for name in chosen.only.split(";") if name}

    def ways() -> Iterator[Way]:
        yield from our_ways()
        if chosen.peer:
            join_torch_ranks(chosen)
            yield from their_ways()

    listed = (way for way in ways() if not only or way.name in only)
    for line in measured(listed, chosen):
        lines.append(line)
        if speaks:
            print(line, flush=True)
            if chosen.output is not None:
                chosen.output.write_text("\n".join(lines) + "\n")
    dist.shutdown()
    if chosen.timeline:
        sys.stdout.flush()
        os._exit(0)  # the profiler's part of the driver may free what is not its own while a process ends


if __name__ == "__main__":
    main()
