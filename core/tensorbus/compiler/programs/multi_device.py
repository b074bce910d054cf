"""A captured program of several devices: a program for each stretch of one, and values carried between.

A stretch ends where a value of another device is needed that is computed from one of this device: so each
device has one program where values go one way, and one more for each time that they come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...devices.device import Device, ValueType
from ...interchange.transfer import carried
from ...ops.definition import Spec
from ...tensor.tensor import wrap
from .op_trace import Recording, Transfer
from .program_cache import Family, Program

Spot = tuple[Device, int]
"""A value: its device, and its place in the recording of that device."""
Make = Callable[[Recording, Sequence[int], Sequence[int]], Program | Family]
"""What compiles the program of a recording with these outputs, from these inputs."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A program, or (None) the carrying of a value; and what is forgotten after it."""

    program: Program | None
    inputs: tuple[Spot, ...]
    outputs: tuple[Spot, ...]
    done: tuple[Spot, ...] = ()


class Staged:
    """What gives the values at ``outputs``, called with those of all feeds, recording by recording."""

    def __init__(self, recordings: Mapping[Device, Recording], outputs: Sequence[Spot], make: Make) -> None:
        self._recordings = recordings
        self._given = [(d, p) for d, r in recordings.items() for p in r.inputs]
        self._outputs = tuple(outputs)
        self._specs = {spot: r.entries[p].spec for d, r in recordings.items() for spot, p in _spots(d, r)}
        self._levels = _levels(recordings)
        self._needed = self._behind(outputs)
        self._steps = self._released([*self._made(make)])

    @property
    def programs(self) -> list[Program]:
        """The programs, in the order in which they run."""
        return [step.program for step in self._steps if step.program is not None]

    def __call__(self, feeds: Sequence[Any]) -> list[Any]:
        """Run the programs in order; what is carried here waits for what it is carried from."""
        values = dict(zip(self._given, feeds, strict=True))
        for step in self._steps:
            if step.program is None:
                (source,), (target,) = step.inputs, step.outputs
                values[target] = self._carried(values[source], source[0], target)
            else:
                made = step.program([values[spot] for spot in step.inputs])
                values.update(zip(step.outputs, made, strict=True))
            for spot in step.done:
                del values[spot]
        return [values[spot] for spot in self._outputs]

    def _carried(self, value: Any, source: Device, target: Spot) -> Any:
        spec: Spec = self._specs[target]
        return carried(wrap(value, ValueType.of(spec.dtype, source)), target[0])._value

    def _behind(self, outputs: Iterable[Spot]) -> set[Spot]:
        """Return everything that the outputs are computed from, themselves included."""
        found: set[Spot] = set()
        stack = [*outputs]
        while stack:
            spot = stack.pop()
            if spot not in found:
                found.add(spot)
                stack.extend(self._before(spot))
        return found

    def _before(self, spot: Spot) -> list[Spot]:
        """Return what a value is computed from, or carried from."""
        device, place = spot
        source = self._source(spot)
        if source is not None:
            return [(source.device, source.place)]
        return [(device, x) for x in self._recordings[device].entries[place].operands]

    def _source(self, spot: Spot) -> Transfer | None:
        recording = self._recordings[spot[0]]
        entry = recording.entries[spot[1]]
        if entry.op != "input":
            return None
        source = recording.feeds[entry.attrs["index"]].source
        return source if isinstance(source, Transfer) else None

    def _made(self, make: Make) -> Iterable[_Step]:
        """Yield what is to be done, level by level."""
        users: dict[Spot, list[Spot]] = {}
        for spot in self._needed:
            for x in self._before(spot):
                users.setdefault(x, []).append(spot)
        wanted = {*self._outputs}
        for level in sorted({self._levels[spot] for spot in self._needed}):
            here = sorted((s for s in self._needed if self._levels[s] == level), key=lambda s: s[1])
            for spot in here:
                if self._source(spot) is not None:
                    yield _Step(None, tuple(self._before(spot)), (spot,))
            for device, recording in self._recordings.items():
                inside = [s for s in here if s[0] == device and not self._is_leaf(s, wanted)]
                outs = [
                    s for s in inside
                    if s in wanted or any(self._goes_on(s, user) for user in users.get(s, ()))
                ]  # fmt: skip
                if outs:
                    ins = self._inputs(recording, inside, level)
                    places = [p for _, p in outs]
                    made = make(recording, places, [p for _, p in ins]).at({})
                    yield _Step(made, tuple(ins), tuple(outs))

    def _is_leaf(self, spot: Spot, wanted: set[Spot]) -> bool:
        """Return whether a value is there already, or is a number that each program has as its own."""
        entry = self._recordings[spot[0]].entries[spot[1]]
        return entry.op == "input" or (entry.op == "constant" and spot not in wanted)

    def _goes_on(self, spot: Spot, user: Spot) -> bool:
        """Return whether a value is for another program than the one that makes it."""
        return user[0] != spot[0] or self._levels[user] > self._levels[spot]

    def _inputs(self, recording: Recording, inside: Sequence[Spot], level: int) -> list[Spot]:
        own = {*inside}
        asked = {(s[0], x) for s in inside for x in recording.entries[s[1]].operands}
        return sorted(
            (s for s in asked - own if recording.entries[s[1]].op != "constant"), key=lambda s: s[1]
        )

    def _released(self, steps: Sequence[_Step]) -> tuple[_Step, ...]:
        """Say of each step which values nobody needs after it."""
        kept = {*self._outputs}
        last: list[_Step] = []
        for step in reversed(steps):
            touched = dict.fromkeys((*step.inputs, *step.outputs))
            done = tuple(s for s in touched if s not in kept)
            kept.update(done)
            last.append(_Step(step.program, step.inputs, step.outputs, done))
        return tuple(reversed(last))


def _spots(device: Device, recording: Recording) -> Iterable[tuple[Spot, int]]:
    return (((device, p), p) for p in range(len(recording.entries)))


def _levels(recordings: Mapping[Device, Recording]) -> dict[Spot, int]:
    """Return how many transfers lie, one after the other, before each value."""
    found = {spot: 0 for d, r in recordings.items() for spot, _ in _spots(d, r)}
    changed = True
    while changed:  # once more than there are transfers in a row
        changed = False
        for device, recording in recordings.items():
            for place, entry in enumerate(recording.entries):
                level = max([found[device, x] for x in entry.operands], default=0)
                if entry.op == "input":
                    source = recording.feeds[entry.attrs["index"]].source
                    if isinstance(source, Transfer):
                        level = found[source.device, source.place] + 1
                if found[device, place] != level:
                    found[device, place], changed = level, True
    return found
