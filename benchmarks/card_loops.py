"""Loops as people run them on a card: a step that reads its loss, text that grows, a convolutional network.

``python -m benchmarks.card_loops`` measures on the card; with ``--device cpu --small`` it runs small ones of
the same kinds anywhere, ``--only`` some of the kinds, and ``--way`` some of the ways. Each row is measured
in a process of its own that ends after ``--limit`` seconds, so that one that hangs costs what was still
missing of it, and says where it stood. Each call is printed when it is warm, each row when it has been
measured, and all of them once more in a table in Markdown; of one that fails it says why. Peers are PyTorch's
eager mode and ``torch.compile``, where PyTorch is installed: what compiles for long comes last. Milliseconds
of a call that is waited for: medians of calls in turn.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any, Final

import tensorbus as tb

from benchmarks import eager_models, generation, isolated
from benchmarks.compiled.models import Library, gpt

Call = Callable[[], object]
WAYS: Final = ("PyTorch", "torch.compile", "tensorbus eager", "tensorbus")
TOGETHER: Final = 4
"""Calls of one way that are measured one after the other, before the next way's."""
READ: Final = 1.3
"""How many times as long as the step that reads nothing one that reads its loss may take."""
EAGER: Final = 1.2
"""How many times as long as PyTorch's eager steps those of tensorbus may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A case: its calls by who makes them; ``targets`` says for people what is asked of them."""

    name: str
    calls: dict[str, Call]
    targets: str = ""
    warm_up: int = 20
    """Calls that are not measured: after so many ``tb.compile`` has compared its program with Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of the models: whole ones, or ``SMALL``, which run on a processor."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    length: int = 1024
    batch: int = 8
    vocabulary: int = 50257
    text: tuple[int, int, int] = generation.MODELS["6 layers of 384"]
    tokens: int = 100
    images: int = 128
    dtypes: dict[str, str] = field(
        default_factory=lambda: {"float32": "float32", "TF32": "float32", "bf16": "bfloat16"}
    )


SMALL: Final = Sizes(
    layers=2, width=64, heads=2, length=32, batch=2, vocabulary=128,
    text=generation.MODELS["3 layers of 64"], tokens=12, images=2, dtypes={"float32": "float32"},
)  # fmt: skip


Build = Callable[[str, Sizes, Any], Row]
"""Makes a case for a device, in these sizes, beside PyTorch or ``None``."""


def cases(sizes: Sizes, kinds: Collection[str]) -> dict[str, Build]:
    """Return what makes each case of these kinds, or that is named, by its key."""
    by_kind: dict[str, dict[str, Build]] = {
        "language": {
            "language step": partial(_language_step, reads=False),
            "language step that reads": partial(_language_step, reads=True),
        },
        "text": {"text": _text},
        "images": {
            f"images, {name}": partial(_images, name=name, dtype=dtype)
            for name, dtype in sizes.dtypes.items()
        },
    }  # fmt: skip
    return {
        key: build for kind, builders in by_kind.items() for key, build in builders.items()
        if kind in kinds or key in kinds
    }  # fmt: skip


KINDS: Final = ("language", "text", "images")


def _library(of: Any) -> Library:
    is_own = of is tb
    return Library(
        nn=of.nn, functional=of.nn.functional, arrays=of,
        permute=of.permute_dims if is_own else of.permute, unbind=of.unstack if is_own else of.unbind,
    )  # fmt: skip


def _placed(of: Any, device: str) -> Any:
    """Return the context in which what is made lies on the device."""
    return of.device(device)


def _ways(make: Callable[[Any], Call], device: str, torch: Any) -> dict[str, Call]:
    """Return the calls of both libraries, eager and compiled."""
    calls: dict[str, Call] = {}
    for way, of in (
        ("tensorbus", tb), ("PyTorch", torch), ("tensorbus eager", tb), ("torch.compile", torch)
    ):  # fmt: skip
        if of is not None:
            of.manual_seed(0)
            with _placed(of, device):
                call = make(of)
            calls[way] = of.compile(call) if way in ("tensorbus", "torch.compile") else call
    return calls


def _language_step(device: str, sizes: Sizes, torch: Any, reads: bool) -> Row:
    shape = (sizes.batch, sizes.length)

    def step_of(of: Any) -> Call:
        model = gpt(
            _library(of), sizes.layers, sizes.width, sizes.heads, sizes.length, sizes.vocabulary
        ).to(of.bfloat16)  # fmt: skip
        optimizer = of.optim.AdamW(model.parameters(), lr=1e-4)
        tokens = of.randint(0, sizes.vocabulary, shape)
        targets = of.randint(0, sizes.vocabulary, shape).reshape(-1)

        def step() -> object:
            optimizer.zero_grad()
            logits = model(tokens).reshape(-1, sizes.vocabulary)
            loss = of.nn.functional.cross_entropy(logits, targets)
            loss.backward()
            optimizer.step()
            return loss.item() if reads else loss.detach()

        return step

    name = f"GPT, {sizes.layers} layers of {sizes.width}, {sizes.batch}x{sizes.length}, bf16, AdamW"
    text, asked = "loss not read", f"eager at most {EAGER} times PyTorch's"
    if reads:
        text, asked = "loss.item() returned", f"compiled at most {READ} times the row above"
    return Row(name=f"{name}, {text}", calls=_ways(step_of, device, torch), targets=asked)


def _text(device: str, sizes: Sizes, torch: Any) -> Row:
    layers, width, heads = sizes.text

    def generate_of(of: Any, wrap: Callable[[Any], Any]) -> Call:
        of.manual_seed(0)
        with _placed(of, device):
            model = generation.text_model(of, of.nn, layers, width, heads)
            start = of.ones((1, 1), dtype=of.int64)
        call = wrap(model)

        def generate() -> object:
            ids = start
            with of.no_grad(), _placed(of, device):
                for _ in range(sizes.tokens):
                    ids = of.concat([ids, of.argmax(call(ids), -1, True)], 1)
            return ids.tolist()

        return generate

    calls: dict[str, Call] = {"tensorbus eager": generate_of(tb, lambda model: model)}
    if torch is not None:
        calls["PyTorch"] = generate_of(torch, lambda model: model)
    calls["tensorbus"] = generate_of(tb, tb.compile)
    calls["tensorbus dynamic=True"] = generate_of(tb, lambda model: tb.compile(model, dynamic=True))
    if torch is not None:
        calls["torch.compile"] = generate_of(torch, lambda model: torch.compile(model, dynamic=True))
    return Row(
        name=f"{sizes.tokens} tokens, growing lengths, {layers} layers of {width}", calls=calls,
        targets="compiled below PyTorch's eager", warm_up=1,
    )  # fmt: skip


def _images(device: str, sizes: Sizes, torch: Any, name: str, dtype: str) -> Row:
    precision = "high" if name == "TF32" else "highest"

    def step_of(of: Any) -> Call:
        model = eager_models.residual_net(of).to(getattr(of, dtype))
        optimizer = of.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
        images = of.randn(sizes.images, 3, 32, 32).to(getattr(of, dtype))
        classes = of.randint(0, 10, (sizes.images,))

        def step() -> object:
            optimizer.zero_grad()
            loss = of.nn.functional.cross_entropy(model(images), classes)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    calls = _ways(step_of, device, torch)
    return Row(
        name=f"ResNet-18 step, CIFAR, batch {sizes.images}, {name}",
        calls={way: _at_precision(call, precision, torch) for way, call in calls.items()},
        targets=f"eager at most {EAGER} times PyTorch's",
    )


def _at_precision(call: Call, precision: str, torch: Any) -> Call:
    """Return a call that both libraries make with this precision of float32, convolutions included."""

    def run() -> object:
        tb.set_matmul_precision(precision)
        if torch is not None:
            torch.set_float32_matmul_precision(precision)
            torch.backends.cudnn.allow_tf32 = precision == "high"
        return call()

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Waits for the device, and has both libraries give up the memory that they keep for later."""

    device: str
    torch: Any

    def wait(self) -> None:
        tb.Device(self.device).synchronize()
        if self.torch is not None and self.device.startswith("cuda"):
            self.torch.cuda.synchronize()

    def empty_caches(self) -> None:
        tb.empty_cache(self.device)
        if self.torch is not None and self.device.startswith("cuda"):
            self.torch.cuda.empty_cache()

    def milliseconds(self, call: Call) -> float:
        start = time.perf_counter()
        call()
        self.wait()
        return 1e3 * (time.perf_counter() - start)


def measure(row: Row, device: Waiting, rounds: int, seconds: float) -> None:
    """Report the milliseconds of each call, or why it fails.

    Each is known once it is warm, by the last calls of its warm-up; those that a limit leaves time for are
    measured in turns after that, of a few calls each. One that fails at first is not called again.
    """
    isolated.report({"what": row.name, "asked": row.targets})
    times: dict[str, list[float]] = {}
    for way, call in row.calls.items():
        try:
            device.empty_caches()
            first = device.milliseconds(call)
            last = [device.milliseconds(call) for _ in range(row.warm_up)]
        except Exception as error:
            isolated.report({way: f"failed: {type(error).__name__}: {str(error)[:200]}"})
        else:
            times[way] = []
            tail = median(last[len(last) // 2 :])
            _show(f"{row.name}: {way}, first call {first:.0f}, at the end of the warm-up {tail:.3f}")
            isolated.report({way: round(tail, 3)})
    end = time.perf_counter() + seconds
    for k in range(rounds):
        for way, spent in times.items():
            device.empty_caches()
            device.milliseconds(row.calls[way])
            spent += [device.milliseconds(row.calls[way]) for _ in range(TOGETHER)]
        if k >= 2 and time.perf_counter() > end:
            break
    isolated.report({way: round(median(spent), 3) for way, spent in times.items()})


def main() -> None:
    """Measure and print the table; with ``--row`` measure one row, in a process that another one started."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.card_loops", description=__doc__)
    parser.add_argument("--device", default="cuda", help="where the models lie")
    parser.add_argument("--small", action="store_true", help="small models of the same kinds")
    parser.add_argument(
        "--only", choices=[*dict.fromkeys([*KINDS, *cases(Sizes(), KINDS)])], action="append",
        help="measure this kind, or row; may be repeated",
    )  # fmt: skip
    parser.add_argument("--way", choices=WAYS, action="append", help="measure this way; may be repeated")
    parser.add_argument("--seconds", type=float, default=5, help="of measuring a row, after its warm-up")
    parser.add_argument("--limit", type=float, default=80, help="seconds after which a row ends")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = SMALL if options.small else Sizes()
    builders = cases(sizes, options.only or KINDS)
    if options.row is not None:
        faulthandler.dump_traceback_later(max(options.limit - 5, 1), file=sys.stdout)
        torch: Any = None
        if importlib.util.find_spec("torch") is not None:
            torch = importlib.import_module("torch")
        row = builders[options.row](options.device, sizes, torch)
        if options.way:
            row = replace(row, calls={way: row.calls[way] for way in options.way if way in row.calls})
        device = Waiting(device=options.device, torch=torch)
        measure(row, device, rounds=5, seconds=options.seconds)
        return
    columns = ("what", *WAYS, "tensorbus dynamic=True", "asked", "stopped")
    table = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for key in builders:
        figures = isolated.measured(
            "benchmarks.card_loops", *sys.argv[1:], "--row", key, limit=60 * options.limit,
            wall=options.limit, show=_show, environment={},
        )  # fmt: skip
        _show(f"{key}: " + ", ".join(f"{what} {x}" for what, x in figures.items()))
        cells = [str(figures.get(column, "")).splitlines() for column in columns]
        table.append(f"| {' | '.join(cell[0][:80] if cell else '' for cell in cells)} |")
    _show("\n".join(table))


def _show(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
