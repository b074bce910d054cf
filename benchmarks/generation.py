"""Text generated token by token without a cache: every call of the model has a length that it has not seen.

Each way runs on one thread, in a process of its own with an empty cache on disk: the first tokens count what
compiling takes. Figures are of the processor, those of the first tokens of C compilers too.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from time import perf_counter, process_time
from typing import Any, Final

from benchmarks import isolated

MODELS: Final = {"3 layers of 64": (3, 64, 4), "6 layers of 384": (6, 384, 6)}
"""Layers, width and heads."""
WHOLE: Final = "generate compiled"
"""The function with the loop over tokens, compiled as a whole; torch.compile would unroll it."""
WAYS: Final = ("eager", "compiled", "dynamic=True", WHOLE)
FIRST, STEADY, VOCABULARY, LONGEST = 100, 40, 65, 512
"""Tokens that are counted from the start, and those later; how many there are, and the most of a text."""
LENGTHS: Final = (100, 200, 300)
LIMIT: Final = 300.0
TARGETS: Final[dict[str, float]] = {
    "first 100 tokens, s": 2.0,
    **{f"ms a token from length {n}": 1.0 for n in LENGTHS},
    "captures": 2,
}
"""What is asked of the model of 3 layers, compiled."""


def rows() -> Iterator[dict[str, Any]]:
    """Yield a row for each model and way, of PyTorch too where it is installed."""
    libraries = ["tensorbus", *(["torch"] if importlib.util.find_spec("torch") is not None else [])]
    for model in MODELS:
        for library in libraries:
            for way in WAYS if library == "tensorbus" else WAYS[:-1]:
                with tempfile.TemporaryDirectory() as folder:
                    caches = dict.fromkeys(("TENSORBUS_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"), folder)
                    figures = isolated.measured(
                        "benchmarks.generation", library, model, way, limit=LIMIT,
                        environment={**isolated.ONE_THREAD, **caches},
                    )  # fmt: skip
                yield {"model": model, "library": library, "way": way, **figures}


def _tensorbus_model(layers: int, width: int, heads: int) -> tuple[Any, Any]:
    import tensorbus as tb

    tb.set_num_threads(1)
    tb.manual_seed(0)
    return tb, text_model(tb, tb.nn, layers, width, heads)


def _torch_model(layers: int, width: int, heads: int) -> tuple[Any, Any]:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return torch, text_model(torch, torch.nn, layers, width, heads)


def text_model(of: Any, nn: Any, layers: int, width: int, heads: int) -> Any:
    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            parts = self.qkv(self.before(x)).reshape((batch, length, 3, heads, width // heads))
            q, k, v = (parts[:, :, j].permute((0, 2, 1, 3)) for j in range(3))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.permute((0, 2, 1, 3)).reshape((batch, length, width)))
            return x + self.down(nn.functional.gelu(self.up(self.between(x))))

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LONGEST, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.places(of.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)[:, -1, :])

    return Model().eval()


def measure(library: str, name: str, way: str) -> None:
    """Report the figures of one model generating text one way."""
    of, model = {"tensorbus": _tensorbus_model, "torch": _torch_model}[library](*MODELS[name])
    call = {
        "eager": lambda: model, "compiled": lambda: of.compile(model), WHOLE: lambda: model,
        "dynamic=True": lambda: of.compile(model, dynamic=True),
    }[way]()  # fmt: skip

    def extend(ids: Any, count: int) -> Any:
        for _ in range(count):
            ids = of.concat([ids, of.argmax(call(ids), axis=-1, keepdims=True)], axis=1)
        return ids

    extended = of.compile(extend) if way == WHOLE else extend
    figures: dict[str, Any] = {}
    with of.no_grad():
        ids = of.ones((1, 1), dtype=of.int64)

        def generate(count: int) -> float:
            nonlocal ids
            start = _processor_seconds()
            ids = extended(ids, count)
            ids.tolist()
            return _processor_seconds() - start

        start = perf_counter()
        figures["first 100 tokens, s"] = round(generate(FIRST), 2)
        figures["of the wall"] = round(perf_counter() - start, 2)
        for length in LENGTHS:
            figures[f"ms a token from length {length}"] = round(generate(STEADY) / STEADY * 1e3, 3)
            isolated.report(figures)
            generate(100 - STEADY)
    if library == "tensorbus" and way in ("compiled", "dynamic=True"):
        figures["captures"] = 1 + len(call.recompiles)
    if library == "tensorbus" and way != "eager" and name == "3 layers of 64":
        missed = [what for what, most in TARGETS.items() if figures.get(what, 0) > most]
        figures["met"] = "yes" if not missed else f"not: {', '.join(missed)}"
    isolated.report(figures)


def _processor_seconds() -> float:
    """Return the seconds that processors gave this process and the compilers that it waited for."""
    times = os.times()
    return process_time() + times.children_user + times.children_system


if __name__ == "__main__":
    measure(*sys.argv[1:])
