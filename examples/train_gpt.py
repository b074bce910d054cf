"""Train a small GPT on the standard library's sources, character by character, on one rank or several.

    python examples/train_gpt.py                                          # one rank
    python examples/train_gpt.py --threads 4 --mesh dp=2,tp=2             # ranks are threads of this process
    tensorbus run -n 4 examples/train_gpt.py --mesh dp=2,tp=2             # ranks are processes
    mpiexec -n 4 python examples/train_gpt.py --mesh dp=4 --fully-shard

Along ``dp`` each rank has a part of every batch, along ``tp`` a part of every layer. The batch as a whole is
the same for any mesh, so that the losses are, too. The step is compiled, its collectives included, unless
``--eager``. In the end the model writes text of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import tensorbus as tb
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tensorbus import distributed as dist
from tensorbus import nn, optim
from tensorbus.errors import DeviceError

SEED = 0
PLAN = {
    "blocks.*.attention.[qkv]*": dist.ColwiseParallel(),
    "blocks.*.attention.out": dist.RowwiseParallel(),
    "blocks.*.up": dist.ColwiseParallel(),
    "blocks.*.down": dist.RowwiseParallel(),
}
"""How layers are split along ``tp``: pairs that take one collective forward and one backward."""


class Attention(nn.Module):
    """Causal attention; a rank may have some of the heads, so that it counts them by their width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head = width // heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Return what each place takes from those before it: ``(batch, length, width)`` as ``x``."""
        batch, length, _ = x.shape
        query, key, value = (
            layer(x).reshape((batch, length, -1, self.head)).permute(0, 2, 1, 3)
            for layer in (self.query, self.key, self.value)
        )
        y = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True).permute(0, 2, 1, 3)
        return self.out(y.reshape((batch, length, -1)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and two layers, each added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.before_up, self.up, self.down = (
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width),
        )  # fmt: skip

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Return ``(batch, length, width)`` as ``x``."""
        x = x + self.attention(self.before_attention(x))
        return x + self.down(nn.functional.gelu(self.up(self.before_up(x))))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """Logits of the next character at each place of ``(batch, length)`` characters."""

    def __init__(self, vocabulary: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, characters: tb.Tensor) -> tb.Tensor:
        """Return ``(batch, length, vocabulary)``."""
        places = tb.arange(characters.shape[1], device=characters.device)
        x = self.characters(characters) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def sources(characters: int) -> str:
    """Return the beginning of the standard library's sources, in ASCII."""
    folder, texts, size = Path(sysconfig.get_path("stdlib")), [], 0
    for path in sorted(folder.glob("*.py")):
        if size >= characters:
            break
        texts.append(path.read_text(encoding="utf-8").encode("ascii", "replace").decode())
        size += len(texts[-1])
    return "".join(texts)[:characters]


def mesh_shape(text: str) -> dict[str, int]:
    """Return the lengths of ``dp`` and ``tp`` from such as ``dp=2,tp=2``; what is not named is 1."""
    shape = {"dp": 1, "tp": 1}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if name not in shape or not size.isdecimal() or int(size) < 1:
            raise argparse.ArgumentTypeError(
                f"a mesh is written as dp=2,tp=2, with numbers of ranks >= 1, got {text!r}"
            )
        shape[name] = int(size)
    return shape


def problem(chosen: argparse.Namespace, shape: dict[str, int], ranks: int) -> str:
    """Return what does not fit together in the options, or nothing."""
    dp, tp = shape["dp"], shape["tp"]
    if dp * tp != ranks:
        return (
            f"--mesh dp={dp},tp={tp} needs dp * tp = {dp * tp} ranks, and there are {ranks}; start the"
            f" program by tensorbus run -n {dp * tp} or mpiexec -n {dp * tp}, or pass --threads {dp * tp}"
        )
    if chosen.batch % dp:
        return f"--batch must be a multiple of dp, got {chosen.batch} for dp={dp}"
    if chosen.width % chosen.heads:
        return f"--width must be a multiple of --heads, got {chosen.width} for {chosen.heads}"
    if chosen.heads % tp:
        return f"--heads must be a multiple of tp, got {chosen.heads} for tp={tp}"
    return ""


def parallel(model: GPT, mesh: dist.DeviceMesh, shard: bool) -> None:
    """Spread a model over a mesh: its layers along ``tp``, its data along ``dp``."""
    if mesh.size("tp") > 1:
        dist.parallelize_module(model, mesh["tp"], PLAN)
    if shard:
        for block in model.blocks:
            dist.fully_shard(block, mesh["dp"])
        dist.fully_shard(model, mesh["dp"])
    elif mesh.size("dp") > 1:
        dist.replicate(model, mesh["dp"])


def training_step(model: GPT, optimizer: optim.Optimizer) -> Callable[[tb.Tensor, tb.Tensor], tb.Tensor]:
    """Return a whole step as a function of a batch: forward, backward, and the change of the weights."""

    def step(characters: tb.Tensor, following: tb.Tensor) -> tb.Tensor:
        logits = model(characters)
        loss = nn.functional.cross_entropy(logits.reshape((-1, logits.shape[-1])), following.reshape((-1,)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@tb.no_grad()
def written(model: GPT, start: list[int], count: int, length: int, device: tb.Device) -> list[int]:
    """Return ``start`` and ``count`` characters after it, drawn by the model; all ranks draw the same."""
    draw, characters = random.Random(SEED), list(start)
    for _ in range(count):
        window = tb.asarray([characters[-length:]], device=device)
        weights = nn.functional.softmax(model(window)[0, -1] / 0.8, -1).tolist()
        characters.append(draw.choices(range(len(weights)), weights)[0])
    return characters


def train(chosen: argparse.Namespace) -> list[float]:
    """Train on this rank; return the losses that were shown."""
    ranks = dist.get_world_size()
    shape = chosen.mesh or {"dp": ranks, "tp": 1}
    if wrong := problem(chosen, shape, ranks):
        raise SystemExit(f"train_gpt.py: {wrong}." if dist.get_rank() == 0 else 1)
    names = chosen.device.split(",")
    device = tb.device(names[dist.get_rank() % len(names)].format(rank=dist.get_local_rank()))
    mesh = dist.init_device_mesh(None, tuple(shape.values()), mesh_dim_names=tuple(shape))
    text = sources(chosen.characters)
    alphabet = sorted(set(text))
    numbers = {character: number for number, character in enumerate(alphabet)}
    tb.manual_seed(SEED)
    with device:
        model = GPT(len(alphabet), chosen.length, chosen.width, chosen.heads, chosen.layers)
    parallel(model, mesh, chosen.fully_shard)
    optimizer = optim.AdamW(model.parameters(), lr=chosen.lr)
    step = training_step(model, optimizer)
    if not chosen.eager:
        step = tb.compile(step)
    data = tb.asarray([numbers[character] for character in text], device=device)
    rows = chosen.batch // shape["dp"]
    first = mesh.get_local_rank("dp") * rows
    window = tb.arange(chosen.length + 1, device=device)
    draw, losses, show = random.Random(SEED), [], Show(chosen.steps, "" if chosen.eager else "compiling")
    with show:
        for number in range(1, chosen.steps + 1):
            starts = [draw.randrange(len(text) - chosen.length) for _ in range(chosen.batch)]
            mine = tb.asarray(starts[first : first + rows], device=device)
            batch = data[mine[:, None] + window]
            loss = step(batch[:, :-1], batch[:, 1:])
            if number % chosen.every == 0 or number == chosen.steps:
                mean = dist.functional.all_reduce(loss, "average", mesh.get_group("dp"))
                losses.append(float(mean))
                show.at(number, losses[-1], chosen.batch * chosen.length)
            else:
                show.advance(number)
    if dist.get_rank() == 0 and chosen.sample:
        print(f"writing {chosen.sample} characters ...", flush=True)
    start = [numbers[character] for character in text[: min(16, chosen.length)]]
    characters = written(model, start, chosen.sample, chosen.length, device)
    if dist.get_rank() == 0 and chosen.report:
        chosen.report.write_text(json.dumps({"losses": losses}, indent=2) + "\n")
    if dist.get_rank() == 0 and chosen.sample:
        Console().print("".join(alphabet[k] for k in characters), markup=False, highlight=False)
    return losses


class Show:
    """The progress that rank 0 shows: a bar where there is a terminal, otherwise lines.

    ``first`` says what goes on before the first loss is there.
    """

    def __init__(self, steps: int, first: str) -> None:
        self.steps, self.first, self.console = steps, first, Console()
        self.last, self.since = 0, 0.0
        columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.speaks = dist.get_rank() == 0
        self.bar = None
        if self.speaks and self.console.is_terminal:
            self.bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=self.console)

    def __enter__(self) -> Show:
        self.since = time.perf_counter()
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("", total=self.steps, note=self.first)
        elif self.speaks and self.first:
            print(f"{self.first} ...", flush=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, step: int) -> None:
        """Show that a step is done."""
        if self.bar is not None:
            self.bar.update(self.task, completed=step)

    def at(self, step: int, loss: float, tokens: int) -> None:
        """Show the loss after a step, and how many of a step's ``tokens`` all ranks took a second."""
        now = time.perf_counter()
        note = f"loss {loss:.4f}  {(step - self.last) * tokens / (now - self.since):,.0f} tokens/s"
        self.last, self.since = step, now
        if self.bar is not None:
            self.bar.update(self.task, completed=step, note=note)
        elif self.speaks:
            print(f"step {step}/{self.steps}  {note}", flush=True)


def options() -> argparse.ArgumentParser:
    """Return the parser of what the program is started with."""
    parser = argparse.ArgumentParser(description="Train a small GPT on the standard library's sources.")
    parser.add_argument(
        "--mesh", type=mesh_shape, metavar="dp=N,tp=N", help="default: all ranks along dp, the data"
    )
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="N ranks in this process")
    parser.add_argument("--fully-shard", action="store_true", help="divide parameters along dp too")
    parser.add_argument("--eager", action="store_true", help="run the step op by op")
    parser.add_argument(
        "--device",
        default="cpu",
        metavar="NAME",
        help="default: cpu; cuda:{rank} is the rank's own; cpu,opencl takes turns",
    )
    for name, default, text in (
        ("steps", 200, "steps of training"), ("batch", 32, "rows of a step, on all ranks together"),
        ("length", 64, "characters of a row"), ("width", 64, "width of the model"),
        ("heads", 4, "heads of attention"), ("layers", 2, "blocks of the model"),
        ("characters", 500_000, "characters of the sources"),
        ("sample", 300, "characters that the model writes in the end"),
        ("every", 10, "steps between two losses that are shown"),
    ):  # fmt: skip
        parser.add_argument(
            f"--{name}", type=int, default=default, metavar="N", help=f"{text}; default: {default}"
        )
    parser.add_argument("--lr", type=float, default=3e-3, metavar="X", help="learning rate; default: 0.003")
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write the losses, as JSON")
    return parser


def main() -> None:
    parser = options()
    chosen = parser.parse_args()
    for name in ("steps", "batch", "length", "width", "heads", "layers", "every"):
        if getattr(chosen, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(chosen, name)}")
    if chosen.threads < 0:
        parser.error(f"--threads must be at least 0, got {chosen.threads}")
    if not 0 <= chosen.lr < math.inf:
        parser.error(f"--lr must be a number >= 0, got {chosen.lr}")
    if chosen.report and not chosen.report.parent.is_dir():
        parser.error(f"--report: there is no folder {chosen.report.parent}")
    if chosen.characters <= chosen.length:
        parser.error(f"--characters must be more than --length, {chosen.length}, got {chosen.characters}")
    try:
        if chosen.threads:
            dist.run_ranks(train, chosen.threads, chosen)
            return
        dist.init()
        train(chosen)
        dist.shutdown()
    except DeviceError as error:
        raise SystemExit(f"train_gpt.py: --device {chosen.device}: {error}") from None


if __name__ == "__main__":
    main()
