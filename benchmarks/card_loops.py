"""Loops as people run them on a card: a step that reads its loss, text that grows, a convolutional network.

``python -m benchmarks.card_loops`` measures on the card; with ``--device cpu --small`` it runs small ones of
the same kinds anywhere, and ``--only`` some of the kinds. Each call is printed when it is warm, each row when
it has been measured, and all of them once more in the table; of one that fails it says why. Peers are
PyTorch's eager mode and ``torch.compile`` where PyTorch is installed.
Milliseconds of a call that is waited for: medians of calls in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Final

import tensorbus as tb
from rich.console import Console
from rich.table import Table

from benchmarks import eager_models, generation
from benchmarks.compiled.models import Library, gpt

Call = Callable[[], object]
WAYS: Final = ("PyTorch", "torch.compile", "tensorbus eager", "tensorbus")
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


KINDS: Final = ("language", "text", "images")


def rows(device: str, sizes: Sizes, kinds: Collection[str] = KINDS) -> Iterator[Row]:
    """Yield every case of these kinds; each is measured before the next is made."""
    torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") is not None else None
    if "language" in kinds:
        yield from _language_steps(device, sizes, torch)
    if "text" in kinds:
        yield _text(device, sizes, torch)
    if "images" in kinds:
        for name, dtype in sizes.dtypes.items():
            yield _images(device, sizes, torch, name, dtype)


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
    for of, eager, compiled in ((tb, "tensorbus eager", "tensorbus"), (torch, "PyTorch", "torch.compile")):
        if of is None:
            continue
        for way in (eager, compiled):
            of.manual_seed(0)
            with _placed(of, device):
                call = make(of)
            calls[way] = of.compile(call) if way is compiled else call
    return calls


def _language_steps(device: str, sizes: Sizes, torch: Any) -> Iterator[Row]:
    shape = (sizes.batch, sizes.length)

    def step_of(of: Any, reads: bool) -> Call:
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
    for reads, text, asked in (
        (False, "loss not read", f"eager at most {EAGER} times PyTorch's"),
        (True, "loss.item() returned", f"compiled at most {READ} times the row above"),
    ):
        calls = _ways(partial(step_of, reads=reads), device, torch)
        yield Row(name=f"{name}, {text}", calls=calls, targets=asked)


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

    calls: dict[str, Call] = {
        "tensorbus eager": generate_of(tb, lambda model: model), "tensorbus": generate_of(tb, tb.compile),
        "tensorbus dynamic=True": generate_of(tb, lambda model: tb.compile(model, dynamic=True)),
    }  # fmt: skip
    if torch is not None:
        calls["PyTorch"] = generate_of(torch, lambda model: model)
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


def waited_for(device: str) -> Callable[[], None]:
    """Return what waits for the device, by both libraries."""
    torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") is not None else None

    def wait() -> None:
        tb.Device(device).synchronize()
        if torch is not None and device.startswith("cuda"):
            torch.cuda.synchronize()

    return wait


def milliseconds(
    row: Row, wait: Callable[[], None], repeats: int, seconds: float, show: Callable[[str], None]
) -> dict[str, float | str]:
    """Return the median milliseconds of each call, in turn, or why it fails.

    ``show`` is told how each begins: somebody who ends the run keeps what is known by then.
    """
    times: dict[str, list[float]] = {}
    figures: dict[str, float | str] = {}
    for way, call in row.calls.items():
        try:
            first = _milliseconds(call, wait)
            last = [_milliseconds(call, wait) for _ in range(row.warm_up)]
        except Exception as error:
            figures[way] = f"failed: {type(error).__name__}: {str(error)[:200]}"
            show(f"{row.name}: {way} {figures[way]}")
        else:
            times[way] = []
            tail = median(last[len(last) // 2 :])
            show(f"{row.name}: {way}, first call {first:.0f}, at the end of the warm-up {tail:.3f}")
    end = time.perf_counter() + seconds
    for k in range(repeats):
        for way, spent in times.items():
            spent.append(_milliseconds(row.calls[way], wait))
        if k >= 2 and time.perf_counter() > end:
            break
    return figures | {way: median(spent) for way, spent in times.items()}


def _milliseconds(call: Call, wait: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    wait()
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.card_loops", description=__doc__)
    parser.add_argument("--device", default="cuda", help="where the models lie")
    parser.add_argument("--small", action="store_true", help="small models of the same kinds")
    parser.add_argument("--only", choices=KINDS, action="append", help="measure this kind; may be repeated")
    parser.add_argument("--seconds", type=float, default=10, help="of measuring a row, after its warm-up")
    options = parser.parse_args()
    sizes = SMALL if options.small else Sizes()
    wait = waited_for(options.device)
    table = Table(title=f"loops on {options.device}, ms")
    ways = (*WAYS, "tensorbus dynamic=True")
    for column in ("what", *ways, "asked"):
        table.add_column(column, justify="right" if column in ways else "left")
    with contextlib.suppress(KeyboardInterrupt):
        for row in rows(options.device, sizes, options.only or KINDS):
            figures = milliseconds(row, wait, repeats=20, seconds=options.seconds, show=_show)
            cells = {way: x if isinstance(x, str) else f"{x:.3f}" for way, x in figures.items()}
            _show(f"{row.name}: " + ", ".join(f"{way} {cell}" for way, cell in cells.items()))
            table.add_row(row.name, *[cells.get(way, "")[:24] for way in ways], row.targets)
    Console().print(table)


def _show(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
