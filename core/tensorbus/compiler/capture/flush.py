"""``TraceFlush``: runs a trace. Where that ends early, each tensor has its old or its new value all the same.

An error of the device comes from a program; an interrupt (Ctrl-C) comes at any line. What was computed by
then is kept, the rest is computed kernel by kernel, as far as what failed does not hinder it.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ...autograd import engine, view_changes
from ...devices.device import Device
from ...tensor.tensor import lent
from ...tracing.active_tracer import untraced
from ...tracing.lazy_value import LazyValue
from ..programs.compiled_program import EXPECTED_ERRORS, CompiledProgram, PreparedRun
from ..programs.multi_device import MultiDeviceProgram, ValueRef
from ..programs.op_trace import OpTrace
from ..programs.program_cache import compile_program, compile_single_use, with_lifted_constants

if TYPE_CHECKING:
    from .tracer import Tracer

_PATIENCE: Final = 10.0
"""For how many seconds a recovery cannot be interrupted."""


class TraceFlush:
    """One run of traces, for the values that somebody has. ``recover`` fills in what ``run`` did not."""

    def __init__(self, tracer: Tracer, traces: Mapping[Device, OpTrace], ready: PreparedRun | None) -> None:
        self._tracer, self._traces, self._ready = tracer, traces, ready
        self._live = [((d, p.place), p) for d, trace in traces.items() for p in trace.live_values()]
        self._feeds = [  # an interrupt may leave one feed more than there are inputs
            feed.value for r in traces.values() for feed in r.sources[: len(r.inputs)]
        ]
        self._has_devices = len(traces) > 1
        self._results: list[tuple[Sequence[ValueRef], list[Any]]] = []
        self._in_place = False

    def run(self) -> None:
        """Compute the values and put them in their places."""
        if self._has_devices:
            self._run_several()
        else:
            for device, trace in self._traces.items():
                self._run_one(device, trace)
        values = self._values()
        for spot, p in self._live:
            _fill(p, values[spot])

    def recover(self, error: BaseException) -> None:
        """Put in place what was computed before ``error``, and compute what still can be.

        Interrupts reach the main thread only, so another one does it; who interrupts once more waits for it,
        unless that takes as long as if the device hung.
        """
        work = partial(self._recover, self._in_place and not isinstance(error, Exception))
        if threading.current_thread() is not threading.main_thread():
            work()
            return
        finished, context = threading.Event(), copy_context()
        until = monotonic() + _PATIENCE

        def run_work() -> None:
            try:
                context.run(work)
            finally:
                finished.set()

        try:
            _thread.start_new_thread(run_work, ())  # starting and joining a Thread object can be interrupted
        except RuntimeError:  # the interpreter is ending
            run_work()
        while not finished.is_set():
            try:
                finished.wait()
            except BaseException:
                if monotonic() > until:
                    raise

    def _recover(self, interrupted: bool) -> None:
        for device in self._traces:  # what was begun may have been begun in another stream
            with suppress(Exception):
                device.synchronize()
        for spot, p in self._live:
            with suppress(Exception):
                self.fill_lazy(spot, p, interrupted)
        for leaf in self._ready.leaves if self._ready is not None else ():
            if leaf.grad is not None and _is_lost(leaf.grad._value):
                leaf.grad = None  # as replays do
        for device in self._traces:
            with suppress(Exception):
                device.synchronize()

    def fill_lazy(self, spot: ValueRef, p: LazyValue, interrupted: bool) -> None:
        """Give a lazy value what was computed for it, or compute it by itself."""
        values = self._values()
        if spot not in values and self._traces[spot[0]].is_ordered(spot[1]):
            return  # other ranks do not take part again
        if spot not in values and interrupted:
            assert self._ready is not None
            old = self._ready.old_inputs
            if spot[1] in old:
                _fill(p, self._feeds[old[spot[1]]])
                return
            trace = self._traces[spot[0]]
            if not {trace.inputs[k] for k in old.values()}.isdisjoint(trace.needed([spot[1]], ())):
                return  # what it is computed from may be written over by now
        _fill(p, values[spot] if spot in values else self.compute_alone(spot))

    def compute_alone(self, spot: ValueRef) -> Any:
        """Compute one value by itself: state that was changed before what failed, say."""
        device, place = spot
        if self._has_devices:
            return MultiDeviceProgram(self._traces, [spot], self._once)(self._feeds)[0]
        return compile_single_use(self._traces[device], [place], self._tracer.mode)(self._feeds)[0]

    def _values(self) -> dict[ValueRef, Any]:
        return {
            s: v
            for spots, runs in self._results
            for results in runs
            for s, v in zip(spots, results, strict=True)
        }

    def _run_one(self, device: Device, trace: OpTrace) -> None:
        active, ready = self._tracer, self._ready
        live = list(dict.fromkeys(p.place for _, p in self._live))
        outputs = [place for place in live if ready is None or place not in ready.outputs]
        if ready is not None and any(map(trace.is_ordered, outputs)):  # two programs would do calls twice
            active.programs.append(ready.program.for_sizes(active.shape_env.hints))
            outputs, ready = live, None
        if ready is None:
            outputs += trace.unreached(outputs, (), trace.last_ordered)
        if outputs:  # before the program that is ready, whose results may take the places of given values
            more: list[Any] = []
            if active.trial:
                program = compile_single_use(trace, outputs, active.mode)
            else:
                program, more = with_lifted_constants(trace, outputs, active.mode, active.shape_env.hints)
            active.programs.append(program)
            self._call(program, [(device, place) for place in outputs], more)
        if ready is not None:
            program = ready.program.for_sizes(active.shape_env.hints)
            active.programs.insert(len(active.programs) - bool(outputs), program)
            self._call(program, [(device, place) for place in ready.outputs], in_place=ready.in_place)

    def _run_several(self) -> None:
        """Run the traces of several devices, which may wait for each other."""
        active, ready = self._tracer, self._ready
        last = [(d, trace.last_ordered) for d, trace in self._traces.items()]
        ordered = [(d, place) for d, place in last if place is not None]
        outputs = list(dict.fromkeys(spot for spot, _ in self._live))
        if ready is not None:
            active.programs += ready.program.programs
            others = [spot for spot in outputs if spot not in ready.outputs]
            if not (ordered and others):  # else two programs would do calls twice
                self._note(ready.outputs, ready.program)
                outputs, ordered = others, []
        outputs += [spot for spot in ordered if spot not in outputs]
        if outputs:
            program = MultiDeviceProgram(self._traces, outputs, self._once if active.trial else self._program)
            active.programs += program.programs
            self._note(outputs, program)

    def _call(
        self,
        program: CompiledProgram,
        spots: Sequence[ValueRef],
        more: Sequence[Any] = (),
        *,
        in_place: bool = False,
    ) -> None:
        with program.lock:
            run = program.checked_run  # which may compile
            self._in_place = in_place
            try:
                self._note(spots, run, more)
            except EXPECTED_ERRORS:
                raise
            except Exception as error:
                raise program.failed(error) from error

    def _note(
        self,
        spots: Sequence[ValueRef],
        run: Callable[[Sequence[Any]], Sequence[Any]],
        more: Sequence[Any] = (),
    ) -> None:
        """Run something and keep what it returns; no interrupt can come between the two."""
        results: list[Any] = []
        self._results.append((spots, results))
        results.extend(map(run, ([*self._feeds, *more] if more else self._feeds,)))

    def _program(self, trace: OpTrace, outputs: Sequence[int], inputs: Sequence[int]) -> Any:
        return compile_program(trace, outputs, self._tracer.mode, inputs=inputs)

    def _once(self, trace: OpTrace, outputs: Sequence[int], inputs: Sequence[int]) -> Any:
        return compile_single_use(trace, outputs, self._tracer.mode, inputs)


def _is_lost(value: Any) -> bool:
    return type(value) is LazyValue and value.value is None


def _fill(p: LazyValue, value: Any) -> None:
    """Put a value in the place of a lazy one; tensors have it in memory that nobody else writes to."""
    p.fill(value)
    if lent:
        tensors = [x for reference in p.tensors if (x := reference()) is not None and x._value is value]
        untraced(partial(view_changes.separate, tensors))
        engine.own_saved_values([x._node for x in tensors if x._node is not None])
