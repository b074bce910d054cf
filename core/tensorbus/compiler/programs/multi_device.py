"""A captured program of several devices: stages of one device each, with transfers between them.

A stage ends where a value of another device is needed that depends on one of this device: so each device has
one program where values go one way, and one more for each time that they come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...devices.device import Device, ValueType
from ...interchange.transfer import transferred
from ...ops.definition import Spec
from ...tensor.tensor import wrap
from .compiled_program import CompiledProgram
from .op_trace import OpTrace, Transfer
from .program_cache import ShapeSpecializations

ValueRef = tuple[Device, int]
"""A value: its device, and its place in the trace of that device."""
ProgramMaker = Callable[[OpTrace, Sequence[int], Sequence[int]], CompiledProgram | ShapeSpecializations]
"""A function that compiles the program of a trace with these outputs, from these inputs."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """A program, or (None) a transfer of a value; ``released`` are the values that are dead after it."""

    program: CompiledProgram | None
    inputs: tuple[ValueRef, ...]
    outputs: tuple[ValueRef, ...]
    released: tuple[ValueRef, ...] = ()


class MultiDeviceProgram:
    """Computes the values at ``outputs``, called with those of all inputs, trace by trace."""

    def __init__(
        self, traces: Mapping[Device, OpTrace], outputs: Sequence[ValueRef], make: ProgramMaker
    ) -> None:
        self._traces = traces
        self._inputs_given = [(d, p) for d, r in traces.items() for p in r.inputs]
        self._outputs = tuple(outputs)
        self._specs = {ref: r.nodes[p].spec for d, r in traces.items() for ref, p in _value_refs(d, r)}
        self._depths = _transfer_depths(traces)
        self._needed = self._needed_for(outputs)
        self._stages = self._with_releases([*self._stages_of(make)])

    @property
    def programs(self) -> list[CompiledProgram]:
        """The programs, in the order in which they run."""
        return [step.program for step in self._stages if step.program is not None]

    def __call__(self, feeds: Sequence[Any]) -> list[Any]:
        """Run the stages in order; a transfer waits for its source."""
        values = dict(zip(self._inputs_given, feeds, strict=True))
        for step in self._stages:
            if step.program is None:
                (source,), (target,) = step.inputs, step.outputs
                values[target] = self._transferred(values[source], source[0], target)
            else:
                results = step.program([values[ref] for ref in step.inputs])
                values.update(zip(step.outputs, results, strict=True))
            for ref in step.released:
                del values[ref]
        return [values[ref] for ref in self._outputs]

    def _transferred(self, value: Any, source: Device, target: ValueRef) -> Any:
        spec: Spec = self._specs[target]
        return transferred(wrap(value, ValueType.of(spec.dtype, source)), target[0])._value

    def _needed_for(self, outputs: Iterable[ValueRef]) -> set[ValueRef]:
        """Return all values that the outputs depend on, themselves included."""
        needed: set[ValueRef] = set()
        stack = [*outputs]
        while stack:
            ref = stack.pop()
            if ref not in needed:
                needed.add(ref)
                stack.extend(self._operands(ref))
        return needed

    def _operands(self, ref: ValueRef) -> list[ValueRef]:
        """Return the operands of a value, or the source of a transfer."""
        device, place = ref
        source = self._source(ref)
        if source is not None:
            return [(source.device, source.place)]
        return [(device, x) for x in self._traces[device].nodes[place].operands]

    def _source(self, ref: ValueRef) -> Transfer | None:
        trace = self._traces[ref[0]]
        entry = trace.nodes[ref[1]]
        if entry.op != "input":
            return None
        source = trace.sources[entry.attrs["index"]].source
        return source if isinstance(source, Transfer) else None

    def _stages_of(self, make: ProgramMaker) -> Iterable[_Stage]:
        """Yield the stages, by transfer depth."""
        users: dict[ValueRef, list[ValueRef]] = {}
        for ref in self._needed:
            for x in self._operands(ref):
                users.setdefault(x, []).append(ref)
        requested = {*self._outputs}
        for level in sorted({self._depths[ref] for ref in self._needed}):
            here = sorted((s for s in self._needed if self._depths[s] == level), key=lambda s: s[1])
            for ref in here:
                if self._source(ref) is not None:
                    yield _Stage(None, tuple(self._operands(ref)), (ref,))
            for device, trace in self._traces.items():
                inside = [s for s in here if s[0] == device and not self._is_available(s, requested)]
                outs = [
                    s for s in inside
                    if s in requested or any(self._crosses_stage(s, user) for user in users.get(s, ()))
                ]  # fmt: skip
                if outs:
                    ins = self._inputs(trace, inside, level)
                    places = [p for _, p in outs]
                    program = make(trace, places, [p for _, p in ins]).for_sizes({})
                    yield _Stage(program, tuple(ins), tuple(outs))

    def _is_available(self, ref: ValueRef, requested: set[ValueRef]) -> bool:
        """Return whether a value is an input, or a constant that each program has as its own."""
        entry = self._traces[ref[0]].nodes[ref[1]]
        return entry.op == "input" or (entry.op == "constant" and ref not in requested)

    def _crosses_stage(self, ref: ValueRef, user: ValueRef) -> bool:
        """Return whether a value is used by another stage than the one that computes it."""
        return user[0] != ref[0] or self._depths[user] > self._depths[ref]

    def _inputs(self, trace: OpTrace, inside: Sequence[ValueRef], level: int) -> list[ValueRef]:
        own = {*inside}
        operands = {(s[0], x) for s in inside for x in trace.nodes[s[1]].operands}
        return sorted((s for s in operands - own if trace.nodes[s[1]].op != "constant"), key=lambda s: s[1])

    def _with_releases(self, steps: Sequence[_Stage]) -> tuple[_Stage, ...]:
        """Return the stages with the values that are dead after each."""
        live = {*self._outputs}
        last: list[_Stage] = []
        for step in reversed(steps):
            touched = dict.fromkeys((*step.inputs, *step.outputs))
            dead = tuple(s for s in touched if s not in live)
            live.update(dead)
            last.append(_Stage(step.program, step.inputs, step.outputs, dead))
        return tuple(reversed(last))


def _value_refs(device: Device, trace: OpTrace) -> Iterable[tuple[ValueRef, int]]:
    return (((device, p), p) for p in range(len(trace.nodes)))


def _transfer_depths(traces: Mapping[Device, OpTrace]) -> dict[ValueRef, int]:
    """Return the number of transfers in a row before each value."""
    depths = {ref: 0 for d, r in traces.items() for ref, _ in _value_refs(d, r)}
    changed = True
    while changed:  # once more than there are transfers in a row
        changed = False
        for device, trace in traces.items():
            for place, entry in enumerate(trace.nodes):
                level = max([depths[device, x] for x in entry.operands], default=0)
                if entry.op == "input":
                    source = trace.sources[entry.attrs["index"]].source
                    if isinstance(source, Transfer):
                        level = depths[source.device, source.place] + 1
                if depths[device, place] != level:
                    depths[device, place], changed = level, True
    return depths
