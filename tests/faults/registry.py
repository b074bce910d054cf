"""Faults that the tests inject: each is a function of a random generator that does one trial.

A subject's faults lie in a module of this folder whose name ends in ``_faults`` (``saving_faults.py``):

    @fault("saving.killed", full=True)
    def killed(draw: random.Random) -> None:
        ...                      # one trial; raises, AssertionError as a rule, where something is wrong

``test_faults.py`` runs a few trials of each; whoever looks for what nobody thought of runs many. A trial
takes everything that varies from its generator, so that the seed repeats it, cleans up after itself, and
starts a child process (``child``) for what may end one.
"""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Final, Protocol


class Trial(Protocol):
    """A function that does one trial."""

    __code__: CodeType

    def __call__(self, draw: random.Random, /) -> None:
        """Do it; raise where something is wrong."""


_FOLDER: Final = Path(__file__).parent
_FAULTS: Final[dict[str, Fault]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: its name, ``subject.what``, and the function that does one trial.

    ``trials`` are those of the fast tier, and a third of those of the full one; ``full``: in the full tier
    only; ``device``: the device type that it needs, without which it is skipped.
    """

    name: str
    trial: Trial
    trials: int
    full: bool
    device: str | None

    def run(self, seed: int) -> None:
        """Do the trial of one seed. Raises what the trial raises, with a note that tells how to repeat it."""
        try:
            self.trial(random.Random(seed))
        except Exception as error:
            error.add_note(f"repeat this with: python tests/faults/registry.py {self.name} {seed}")
            raise


def fault(
    name: str, *, trials: int = 5, full: bool = False, device: str | None = None
) -> Callable[[Trial], Trial]:
    """Register the decorated function as a fault. Raises ``ValueError`` for a name that another one has."""

    def register(trial: Trial) -> Trial:
        other = _FAULTS.get(name)
        source = trial.__code__.co_filename  # pytest imports the file a second time, as another module
        if other is not None and other.trial.__code__.co_filename != source:
            raise ValueError(f"{name!r} is a fault of {other.trial.__code__.co_filename} and of {source}")
        _FAULTS[name] = Fault(name=name, trial=trial, trials=trials, full=full, device=device)
        return trial

    return register


def faults() -> dict[str, Fault]:
    """Return all faults by name, sorted: those of every module ``*_faults.py`` of this folder."""
    for folder in (_FOLDER, _FOLDER.parent / "conformance_kit", _FOLDER.parent / "suite"):  # as pytest has it
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    for path in sorted(_FOLDER.glob("*_faults.py")):
        importlib.import_module(path.stem)
    return dict(sorted(_FAULTS.items()))


def child(
    code: str, *arguments: str, timeout: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, with further environment variables; return its end."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def main(name: str, seed: str) -> None:
    """Do one trial again."""
    from registry import faults  # the module of this name, whose registry the other modules fill

    faults()[name].run(int(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
