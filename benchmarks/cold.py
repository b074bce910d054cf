"""The first two steps of a training loop: with nothing on disk, and with what an earlier process left there.

Each figure is of a process of its own, of the wall and of its processors; the models, 32 x 32 images and SGD
are those of ``eager_models``. The peer is ``torch.compile`` with an empty cache, where PyTorch is installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

MODELS: Final = ("residual_net", "shuffle_net", "mobile_net")
BATCH: Final = 32
COLD, WARM = 6.0, 1.5
"""Seconds that the first two steps may take on two cores, without and with an earlier process's programs."""
PATIENCE: Final = 900


def rows(show: Callable[[str], object] = lambda what: None) -> list[dict[str, Any]]:
    """Return a row for each model; ``show`` is told what is being measured."""
    table = []
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            show(f"{model}, cold")
            cold = _first_steps("tensorbus", model, folder)
            show(f"{model}, warm")
            warm = _first_steps("tensorbus", model, folder)
        row: dict[str, Any] = {
            "model": model, "cold s": cold["wall"], "cold cpu s": cold["cpu"], "at most": COLD,
            "met": cold["wall"] <= COLD, "warm s": warm["wall"], "warm cpu s": warm["cpu"],
            "warm at most": WARM, "warm met": warm["wall"] <= WARM,
        }  # fmt: skip
        if importlib.util.find_spec("torch") is not None:
            with tempfile.TemporaryDirectory() as folder:
                show(f"{model}, torch.compile, cold")
                peer = _first_steps("torch", model, folder)
            row |= {"torch.compile cold s": peer["wall"], "torch.compile cold cpu s": peer["cpu"]}
        table.append(row)
    return table


def _first_steps(library: str, model: str, folder: str) -> dict[str, float]:
    environment = {**os.environ, "TENSORBUS_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
    command = [sys.executable, "-m", "benchmarks.cold", library, model]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE
    )  # fmt: skip
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


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
    print(json.dumps(first_steps(*sys.argv[1:])))
