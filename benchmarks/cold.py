"""The first two steps of a training loop: with nothing on disk, and with what an earlier process left there.

Each figure is of a process of its own, of the wall and of its processors; the models, 32 x 32 images and SGD
are those of ``eager_models``. The peer is ``torch.compile`` with an empty cache, where PyTorch is installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Final

from benchmarks import isolated

MODELS: Final = ("residual_net", "shuffle_net", "mobile_net")
BATCH: Final = 32
COLD, WARM = 6.0, 1.5
"""Seconds that the first two steps may take on two cores, without and with an earlier process's programs."""
LIMIT: Final = 300.0


def rows() -> Iterator[dict[str, Any]]:
    """Yield a row for each model."""
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            cold, warm = (_first_steps("tensorbus", model, folder) for _ in range(2))
        row: dict[str, Any] = {"model": model}
        for name, seconds, most in (("cold", cold, COLD), ("warm", warm, WARM)):
            row |= {f"{name} s": seconds["wall"], f"{name} cpu s": seconds["cpu"], f"{name} at most": most}
            row[f"{name} met"] = isinstance(seconds["wall"], float) and seconds["wall"] <= most
        if importlib.util.find_spec("torch") is not None:
            with tempfile.TemporaryDirectory() as folder:
                peer = _first_steps("torch", model, folder)
            row |= {"torch.compile cold s": peer["wall"], "torch.compile cold cpu s": peer["cpu"]}
        yield row


def _first_steps(library: str, model: str, folder: str) -> dict[str, Any]:
    environment = {
        **dict.fromkeys(isolated.ONE_THREAD, "2"),
        **dict.fromkeys(("TENSORBUS_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"), folder),
    }
    figures = isolated.measured("benchmarks.cold", library, model, limit=LIMIT, environment=environment)
    return figures if "wall" in figures else dict.fromkeys(("wall", "cpu"), figures.get("stopped"))


def first_steps(library: str, model: str) -> dict[str, float]:
    """Return the seconds of the first two compiled steps, without starting up and making the model."""
    import numpy as np

    from benchmarks import eager_models, eager_steps

    t: Any = importlib.import_module(library)
    case = eager_steps.Case(
        model=getattr(eager_models, model), data=eager_steps.images(BATCH), optimizer=eager_steps.sgd
    )  # fmt: skip
    to_tensor = t.asarray if library == "tensorbus" else t.from_numpy
    step = t.compile(eager_steps.step_of(t, case, to_tensor))
    start, before = time.perf_counter(), _processor_seconds()
    for _ in range(2):
        np.asarray(step())
    return {
        "wall": round(time.perf_counter() - start, 2), "cpu": round(_processor_seconds() - before, 2)
    }  # fmt: skip


def _processor_seconds() -> float:
    """Return the seconds that processors gave this process and the compilers that it waited for."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    isolated.report(first_steps(*sys.argv[1:]))
