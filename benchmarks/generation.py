"""Text generated token by token without a cache: every call of the model has a length that it has not seen.

Each way runs on one thread, in a process of its own with an empty cache on disk: the first tokens count what
compiling takes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from time import perf_counter
from typing import Any, Final

MODELS: Final = {"3 layers of 64": (3, 64, 4), "6 layers of 384": (6, 384, 6)}
"""Layers, width and heads."""
WHOLE: Final = "generate compiled"
"""The function with the loop over tokens, compiled as a whole; torch.compile would unroll it."""
WAYS: Final = ("eager", "compiled", "dynamic=True", WHOLE)
FIRST, STEADY, VOCABULARY, LONGEST = 100, 40, 65, 512
"""Tokens that are counted from the start, and those later; how many there are, and the most of a text."""


def rows() -> list[dict[str, Any]]:
    """Return a row for each model and way, of PyTorch too where it is installed."""
    libraries = ["tensorbus", *(["torch"] if importlib.util.find_spec("torch") is not None else [])]
    table = []
    for model in MODELS:
        for library in libraries:
            for way in WAYS if library == "tensorbus" else WAYS[:-1]:
                with tempfile.TemporaryDirectory() as folder:
                    environment = {
                        **os.environ, "TENSORBUS_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder
                    }  # fmt: skip
                    command = [sys.executable, "-m", "benchmarks.generation", library, model, way]
                    done = subprocess.run(
                        command, env=environment, capture_output=True, text=True, check=True, timeout=1800
                    )
                table.append(json.loads(done.stdout.splitlines()[-1]))
    return table


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


def measure(library: str, name: str, way: str) -> dict[str, Any]:
    """Return the figures of one model generating text one way."""
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
    row: dict[str, Any] = {"model": name, "library": library, "way": way}
    with of.no_grad():
        ids = of.ones((1, 1), dtype=of.int64)

        def generate(count: int) -> float:
            nonlocal ids
            start = perf_counter()
            ids = extended(ids, count)
            ids.tolist()
            return perf_counter() - start

        row["first 100 tokens, s"] = generate(FIRST)
        for length in (100, 200, 300):
            seconds = generate(STEADY)
            row[f"ms a token from length {length}"] = seconds / STEADY * 1e3
            generate(100 - STEADY)
    return row


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
