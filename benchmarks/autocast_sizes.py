"""Programs of open lengths beside those of one length: bfloat16 by ``tb.autocast``.

``python -m benchmarks.autocast_sizes --device cuda`` runs a language model at one length, by a program that
is compiled for it alone and by one for all lengths, which has served others before. Milliseconds of a call
that is waited for: medians of calls in turns. At most 1.05 times is asked.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import tensorbus as tb

from benchmarks import generation

ASKED: Final = 1.05
WARM_UP: Final = 40
ROUNDS, TOGETHER = 12, 8


def _steps(device: str, layers: int, width: int, heads: int) -> dict[str, Callable[[Any], Any]]:
    """Return what is measured, each a function of the tokens."""
    tb.manual_seed(0)
    with tb.device(device):
        model = generation.text_model(tb, tb.nn, layers, width, heads)

    def forward(tokens: Any) -> Any:
        with tb.no_grad(), tb.autocast(tb.bfloat16):
            return model(tokens)

    def gradients(tokens: Any) -> Any:
        for parameter in model.parameters():
            parameter.grad = None
        with tb.autocast(tb.bfloat16):
            loss = (model(tokens).to(tb.float32) ** 2).mean()
        loss.backward()
        return loss.detach()

    return {"forward": forward, "with gradients": gradients}


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.autocast_sizes", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--model", choices=generation.MODELS, default="6 layers of 384")
    options = parser.parse_args()
    device = tb.Device(options.device)
    print("| what | one length, ms | open lengths, ms | times | asked |\n|---|---|---|---|---|")
    for name, step in _steps(options.device, *generation.MODELS[options.model]).items():
        ways = {"fixed": tb.compile(step, dynamic=False), "open": tb.compile(step, dynamic=True)}
        with tb.device(options.device):
            texts = [
                tb.randint(0, generation.VOCABULARY, (options.batch, options.length - away))
                for away in (0, 3, 16)
            ]
        for text in (*texts, *texts):
            ways["open"](text)
        spent: dict[str, list[float]] = {way: [] for way in ways}
        for call in ways.values():
            for _ in range(WARM_UP):
                call(texts[0])
        for _ in range(ROUNDS):
            for way, call in ways.items():
                call(texts[0])
                device.synchronize()
                for _ in range(TOGETHER):
                    start = time.perf_counter()
                    call(texts[0])
                    device.synchronize()
                    spent[way].append(1e3 * (time.perf_counter() - start))
        fixed, opened = (median(times) for times in spent.values())
        print(f"| {name} | {fixed:.3f} | {opened:.3f} | {opened / fixed:.2f} | {ASKED} |", flush=True)


if __name__ == "__main__":
    main()
