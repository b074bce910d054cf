"""Text that grows by a token at each call, on a card or anywhere: what a length costs that is met first.

``python -m benchmarks.text_lengths --device cuda`` generates 500 tokens with a model of 6 layers of 384, the
first 100 a second and a third time, in one process for each way and with an empty cache on disk. PyTorch's
eager mode is its peer, where it is installed. Printed are milliseconds a token of a stretch of 100, waited
for at its end, in brackets the median of queueing one, and the slowest.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from statistics import median
from time import perf_counter
from typing import Any, Final

from benchmarks import generation

WAYS: Final = ("PyTorch", "eager", "default", "dynamic=True")
STRETCHES: Final = ("cold", "new", "again", "again", "new", "new", "new")
"""Of 100 tokens each: the first of the text, the next, the first once more; then those after 200."""
LIMIT: Final = 150.0


def measure(way: str, device: str, model_name: str) -> None:
    """Print the figures of one way."""
    library = "torch" if way == "PyTorch" else "tensorbus"
    of: Any = __import__(library)
    model = generation.text_model(of, of.nn, *generation.MODELS[model_name]).to(device)
    step = {
        "default": lambda: of.compile(model), "dynamic=True": lambda: of.compile(model, dynamic=True)
    }.get(way, lambda: model)()  # fmt: skip
    with of.no_grad():
        texts = [of.ones((1, 1), dtype=of.int64).to(device)]
        for what in STRETCHES:
            ids = texts[-1] if what != "again" else texts[0]
            ids.tolist()
            seconds: list[float] = []
            start = perf_counter()
            for _ in range(100):
                begun = perf_counter()
                ids = of.concat([ids, of.argmax(step(ids), axis=-1, keepdims=True)], axis=1)
                seconds.append(perf_counter() - begun)
                if ids.shape[1] >= generation.LONGEST:
                    break
            ids.tolist()
            whole = (perf_counter() - start) / len(seconds)
            if what != "again":
                texts.append(ids)
            times = f"{whole * 1e3:.2f} ({median(seconds) * 1e3:.2f}; {max(seconds) * 1e3:.0f})"
            first = 1 if what == "again" else texts[-2].shape[1]
            print(f"{way:14} {what:6} from {first:4}: {times}", flush=True)


def main() -> None:
    """Measure each way in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="6 layers of 384", choices=[*generation.MODELS])
    parser.add_argument("--only", nargs="*", default=WAYS)
    parser.add_argument("--way", default="")
    arguments = parser.parse_args()
    if arguments.way:
        measure(arguments.way, arguments.device, arguments.model)
        return
    for way in arguments.only:
        if way == "PyTorch" and importlib.util.find_spec("torch") is None:
            print("PyTorch is not installed here")
            continue
        command = [sys.executable, "-m", "benchmarks.text_lengths", "--way", way]
        command += ["--device", arguments.device, "--model", arguments.model]
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "TENSORBUS_CACHE_DIR": folder}
            try:
                subprocess.run(command, env=environment, timeout=LIMIT, check=True)
            except (subprocess.SubprocessError, OSError) as error:
                print(f"{way}: {error}")


if __name__ == "__main__":
    main()
