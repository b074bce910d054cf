"""``mode="max-autotune"``: the knobs of a lowering are chosen by timing the program on the device.

A lowering declares knobs as data. Each value of a knob is compiled and timed in turns with the best one so
far, so that a machine that slows down slows both; the better one by the median is kept, and stored on disk
for the same program, device and knobs. A value that the device refuses is noted and not taken. Inputs are
arbitrary: zeros where they are integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from statistics import median
from time import perf_counter
from typing import Any, Final

from ...backend_interface.compilation import CompileRequest, Executable, Knob, Lowering
from ...backend_interface.graph import Node
from ...devices.device import Device
from ...errors import DeviceError
from ...ops.creation.creation import zeros
from ...random.generator import Generator, uniform
from ...system.disk_cache import cache_load, cache_store, private_folder
from ...version import __version__
from .compiled_program import lower_checked

BETTER_BELOW: Final = 0.95
"""The share of the time below which another value counts as better: less is noise."""
MAX_TURNS: Final = 15
COMPARISON_SECONDS: Final = 0.4
"""How many turns a comparison takes, and after how many seconds it ends with fewer; there are 3 at least."""
HOPELESS_RATIO: Final = 2.0
"""The ratio of first runs above which a value is not timed again."""
SEARCH_SECONDS: Final = 60.0
"""The seconds after which no further knob is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """The values chosen for a program, and notes on them."""

    chosen: Mapping[str, int]
    notes: tuple[str, ...]


def autotune(
    device: Device, lowering: Lowering, request: CompileRequest
) -> tuple[Executable, tuple[str, ...]]:
    """Return the executable of ``order`` with the choices that were the fastest, and notes on them."""
    declared = getattr(lowering, "knobs", None)
    knobs: Sequence[Knob] = declared(request) if declared is not None else ()
    if not knobs:
        return lower_checked(device, lowering, request), (
            f"max-autotune: {device.type} has nothing to choose",
        )
    folder = private_folder(device.type, "choices")
    path = folder / _key(device, request, knobs) if folder is not None else None
    stored = _read(cache_load(path) if path is not None else None)
    if stored is not None:
        return lower_checked(device, lowering, replace(request, chosen=stored.chosen)), stored.notes
    search = _Search(device, lowering, request)
    search.run(knobs)
    result = TuningResult(chosen=search.chosen, notes=tuple(search.notes))
    if path is not None:
        cache_store(path, json.dumps({"chosen": dict(result.chosen), "notes": list(result.notes)}).encode())
    return search.best, result.notes


def _key(device: Device, request: CompileRequest, knobs: Sequence[Knob]) -> str:
    properties = device.properties
    about = (
        __version__,
        properties.name,
        properties.driver,
        str(properties.compute_units),
        str(request.graph),
    )
    return sha256(
        "\0".join([*about, repr(sorted(request.replaces.items())), repr(knobs)]).encode()
    ).hexdigest()


def _read(data: bytes | None) -> TuningResult | None:
    if data is None:
        return None
    fields = json.loads(data)
    return TuningResult(chosen=fields["chosen"], notes=tuple(fields["notes"]))


class _Search:
    """A coordinate search: knob after knob, with the others at their best values so far."""

    def __init__(self, device: Device, lowering: Lowering, request: CompileRequest) -> None:
        self.device, self.lowering, self.request = device, lowering, request
        self.chosen: dict[str, int] = {}
        self.notes: list[str] = []
        self.values = [_sample_input(node, device) for node in request.graph.inputs]
        self.usual = self.best = lower_checked(device, lowering, request)

    def run(self, knobs: Sequence[Knob]) -> None:
        """Try each value of each knob."""
        start = perf_counter()
        for knob in knobs:
            if perf_counter() - start > SEARCH_SECONDS:
                self.notes.append(f"max-autotune: {knob.name}, {knob.what}: not tried, for want of time")
                continue
            if knob.each and hasattr(self.best, "times"):
                self._each(knob)
            else:
                self._whole(knob)
        if self.best is not self.usual:
            self._confirm()

    def _confirm(self) -> None:
        """Revert all choices unless they are faster together: single ones may have been luck."""
        before, after = self._compared(self.usual, self.best)
        if after < before * BETTER_BELOW:
            self.notes.append(f"max-autotune: all together take {after / before:.2f} of the time")
        else:
            self.best, self.chosen = self.usual, {}
            self.notes.append("max-autotune: all together are not faster: everything stays as ever")

    def _whole(self, knob: Knob) -> None:
        """Choose one value for the program."""
        best_value, figures = knob.usual, []
        for value in knob.values:
            if value == knob.usual:
                continue
            try:
                other = self._compiled({**self.chosen, knob.name: value})
                before, after = self._compared(self.best, other)
            except DeviceError as error:
                figures.append(f"{value} cannot be run: {error}")
                continue
            figures.append(f"{value} took {after / before:.2f} of the time of {best_value}")
            if after < before * BETTER_BELOW:
                best_value, self.best = value, other
                self.chosen[knob.name] = value
        self._note(knob, str(best_value) if best_value != knob.usual else "", figures)

    def _each(self, knob: Knob) -> None:
        """Choose a value for each step, by the steps' own times."""
        usual = self._times(self.best, None)
        fastest = {name: (seconds, knob.usual) for name, seconds in usual.items()}
        figures: list[str] = []
        for value in knob.values:
            if value == knob.usual:
                continue
            try:
                other = self._compiled({**self.chosen, knob.name: value})
                times = self._times(other, HOPELESS_RATIO * sum(usual.values()))
            except DeviceError as error:
                figures.append(f"{value} cannot be run: {error}")
                continue
            for name, seconds in times.items():
                if name in fastest and seconds < fastest[name][0] * BETTER_BELOW:
                    fastest[name] = seconds, value
        per_step = {f"{knob.name}@{n}": v for n, (_, v) in fastest.items() if v != knob.usual}
        if per_step:
            other = self._compiled({**self.chosen, **per_step})
            before, after = self._compared(self.best, other)
            figures.append(f"together they took {after / before:.2f} of the time")
            if after < before * BETTER_BELOW:
                self.chosen.update(per_step)
                self.best = other
            else:
                per_step = {}
        self._note(knob, ", ".join(f"{v} for {n.partition('@')[2]}" for n, v in per_step.items()), figures)

    def _note(self, knob: Knob, choice: str, figures: Sequence[str]) -> None:
        """Note the choice for a knob."""
        what = f"{choice} instead of {knob.usual}" if choice else f"{knob.usual} as ever, no value is faster"
        measured = f" ({'; '.join(figures)})" if figures else ""
        self.notes.append(f"max-autotune: {knob.name}, {knob.what}: {what}{measured}")

    def _compiled(self, choices: Mapping[str, int]) -> Executable:
        return self.lowering.compile(replace(self.request, chosen=choices))

    def _times(self, program: Any, most: float | None) -> dict[str, float]:
        """Return the median seconds of each step; nothing where a run takes more than ``most`` seconds."""
        program.times(list(self.values))
        runs: list[Mapping[str, float]] = []
        start = perf_counter()
        while len(runs) < 3 or (len(runs) < MAX_TURNS and perf_counter() - start < COMPARISON_SECONDS):
            runs.append(program.times(list(self.values)))
            if most is not None and sum(runs[0].values()) > most:
                return {}
        return {name: median(run[name] for run in runs) for name in runs[0]}

    def _compared(self, one: Executable, other: Executable) -> tuple[float, float]:
        """Return the median seconds of a run of each, taken in turns."""
        runs = [self._timed(program) for program in (one, other)]
        first = [run(1) for run in runs]
        if first[1] > HOPELESS_RATIO * first[0]:
            return first[0], first[1]
        many = [max(1, min(1000, int(2e-3 / max(seconds, 1e-7)))) for seconds in first]
        measured: tuple[list[float], list[float]] = ([], [])
        start = perf_counter()
        while len(measured[0]) < 3 or (
            len(measured[0]) < MAX_TURNS and perf_counter() - start < COMPARISON_SECONDS
        ):
            for times, run, count in zip(measured, runs, many, strict=True):
                times.append(run(count))
        return median(measured[0]), median(measured[1])

    def _timed(self, program: Executable) -> Callable[[int], float]:
        """Return a function that runs the program ``count`` times, and returns the seconds of one run."""
        wait, values = self.device.runtime.synchronize, self.values

        def run(count: int) -> float:
            wait(self.device.index)
            start = perf_counter()
            for _ in range(count):
                program(list(values))
            wait(self.device.index)
            return (perf_counter() - start) / count

        run(1)
        return run


def _sample_input(node: Node, device: Device) -> Any:
    """Return a value for an input: a Python number, or a value of the device."""
    dtype = node.spec.dtype
    if "scalar" in node.attrs:
        return 0.5 if dtype.is_floating or dtype.is_complex else dtype.kind != "bool"
    if not dtype.is_floating or 0 in node.spec.shape:
        return zeros(node.spec.shape, dtype=dtype, device=device)._value
    return uniform(node.spec.shape, dtype=dtype, generator=Generator(0), device=device)._value
