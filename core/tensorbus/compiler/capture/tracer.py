"""``Tracer``: takes the ops of a thread while a function is captured, and runs them when values are needed.

It gives every op the checks, the dtypes and the history that it has without a capture; only the numbers come
later. Whatever Python asks of a value makes the tracer run what it has so far: a break in the graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Final, TypeVar

from ...autograd import engine, node_order
from ...devices.device import Device, ValueType
from ...dispatch.modes import CompositeValue, Mode, is_value_mode, value_modes
from ...dtypes.definition import check_scalar, integer_range, weak_operand
from ...eager.runner import as_operands
from ...errors import CaptureError
from ...nn.parameter import Parameter
from ...ops.definition import Op, Spec, table
from ...ops.fused_update import is_fused_update
from ...random.generator import untaped
from ...tensor.tensor import Tensor, wrap
from ...tracing.active_modes import active_modes, mode_stack
from ...tracing.host_prologue import HostPrologue
from ...tracing.lazy_value import LazyValue
from ...tracing.sym_int import ShapeEnv, SymInt, hints, is_open
from ...tracing.sym_number import SymNumber
from ..programs.compiled_program import CompiledProgram, PreparedRun
from ..programs.op_trace import OpTrace, Transfer
from ..programs.program_cache import compile_program
from . import symbolic_index
from .break_sites import BreakSites
from .data_dependent_errors import is_checked_read, is_error_handled, pending_operands, run_now
from .flush import TraceFlush
from .graph_break import GraphBreak, locate_break
from .op_signatures import OpSignature, signature_of, symbolic_signature
from .side_effect_observer import restore_profiler, unobserved

T = TypeVar("T")
_SCALARS: Final = frozenset({bool, int, float, complex})
_OPERANDS: Final = _SCALARS | {Tensor, Parameter, SymNumber}


_FindLongLoop = Callable[[BreakSites, Mapping[Device, OpTrace], FrameType], GraphBreak | None]


class Tracer(Mode):
    """The tracer of one call of a captured function.

    ``traces`` are those that have not run, one a device; ``breaks`` where it had to run early. In a
    ``trial``, the first call of a function say, what becomes no replay is not compiled either: it may be the
    one call that sets things up. A ``dry`` run computes nothing.
    """

    reentrant = True
    captures = True

    def __init__(
        self, mode: str = "default", fullgraph: bool = False, *, dry: bool = False, trial: bool = False,
        find_long_loop: _FindLongLoop | None = None, search_from: int = 0,
    ) -> None:  # fmt: skip
        self.mode = mode
        self.trial = trial
        self.fullgraph = fullgraph
        self.sites = BreakSites()
        self._find_long_loop = find_long_loop
        self._search_at = search_from
        self._has_ended = False
        self.prologue = HostPrologue(dry, self.sites.note_break if trial else None)
        self.grads = False
        self.gradients: dict[Any, bool] = {}
        self.began = next(node_order.order)
        self.shape_env = self.prologue.shape_env = ShapeEnv(self.prologue.number)
        self._symbolic_tensors: list[tuple[Tensor, LazyValue]] = []
        self.breaks: list[GraphBreak] = []
        self.programs: list[CompiledProgram] = []
        self.traces: dict[Device, OpTrace] = {}
        self._places: dict[int, tuple[Device, int]] = {}
        self._transfers: dict[tuple[Transfer, Device], int] = {}
        self._alive: list[Any] = []
        self._recompute_tag = self._number = 0
        self._fragile = ""
        self.at_breaks: list[Callable[[], None]] = []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        if error is not None and self.traces and not self.prologue.dry:
            self.run()  # an interrupt came between the lines that see to it

    def untraced(self, function: Callable[[], T]) -> T:
        """Call ``function`` as if nothing were being captured."""
        stack = mode_stack.get()
        below = stack[: stack.index(self)] if self in stack else stack
        entries = [entry for entry in self._entries if active_modes.pop(entry, None) is not None]
        mode_stack.set(below)
        try:
            with unobserved():
                return function()
        finally:
            mode_stack.set(stack)
            active_modes.update(dict.fromkeys(entries, self))

    def apply(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Record an op; return its result, or ``NotImplemented`` for values of another mode."""
        if self.trial:
            self.sites.note_op()
            if self._search_at and len(self.sites.nodes) >= self._search_at:
                self._end_at_long_loop()
            if self._has_ended:
                return self._at_once(op, operands, attrs)
        for x in operands:
            if type(x) not in _OPERANDS:
                return self._check_and_record(op, operands, attrs)
        observed = sys.getprofile()
        sys.setprofile(None)  # what follows runs nothing of the user's
        try:
            return self._check_and_record(op, operands, attrs)
        finally:
            restore_profiler(observed)

    def _at_once(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Return the result of an op behind the end of what is recorded, and of what is observed."""
        sys.setprofile(None)
        if is_fused_update(op.name):  # its ops come one by one
            return NotImplemented
        plain = [x._value() if type(x) is SymNumber else x for x in operands]
        attrs = {k: v._value() if type(v) is SymNumber else v for k, v in attrs.items()}
        return self.untraced(partial(self.below, op, plain, attrs))

    def _check_and_record(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        if not operands:
            where: Any = attrs.get("device")
            if where is None or is_value_mode(where.type):
                return NotImplemented
            if type(attrs.get("value")) is SymNumber:
                return self._filled(op, attrs)
        tensors = True
        for x in operands:
            if not isinstance(x, Tensor):
                tensors = False
            elif is_value_mode(x._vtype.device.type):
                composite = isinstance(x._value, CompositeValue)
                return self._beside(op, operands, attrs, x) if composite else NotImplemented
        if not tensors:
            operands = [x.number() if type(x) is SymInt else x for x in operands]
            operands = self._as_operands(op, operands)
        observed = sys.getprofile()
        sys.setprofile(None)  # what follows runs nothing of the user's
        try:
            return self._record(op, operands, attrs)
        finally:
            restore_profiler(observed)

    @staticmethod
    def _beside(op: Op[...], operands: Sequence[Any], attrs: dict[str, Any], value: Tensor) -> Any:
        """Lift what was captured and stands beside a composite value, whose parts the capture sees."""
        if not any(isinstance(x, Tensor) and type(x._value) is LazyValue for x in operands):
            return NotImplemented
        device = value._vtype.device
        lift = value_modes[device.type].lift_operand
        lifted = [
            lift(op.name, x, device)
            if isinstance(x, Tensor) and not is_value_mode(x._vtype.device.type)
            else x
            for x in operands
        ]
        return table.run(op.name, lifted, attrs, below=True)

    def _record(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        kinds = [x._vtype.materialized if isinstance(x, Tensor) else _kind(x) for x in operands]
        signature = self._signature(op, kinds, operands, attrs)
        planned = signature.plan
        device = planned.out.device
        trace = self._trace_on(device)
        places = tuple(
            [
                self._operand(trace, device, x, dtype, cast is not None)
                for x, dtype, cast in zip(operands, planned.computed, planned.casts, strict=True)
            ]
        )
        trace.recompute_tag = self._number
        call = op.name, places, planned.attrs, signature.specs[0], signature.key
        place = trace.add_ordered(*call, bool(op.results)) if op.ordered else trace.add(*call)
        if self.trial:
            self.sites.note_node(device, place)
        tracked = any(isinstance(x, Tensor) and x._node is not None for x in operands)
        if tracked and planned.differentiable and engine.is_grad_enabled():
            apart = [k for k, x in enumerate(operands) if isinstance(x, Tensor) and x._node is None]
            place = trace.tracked(place, tuple(apart))
        if op.raises_for:
            self._attempt(trace, op, operands, places, planned.attrs)
        if tracked and not self.prologue.dry:  # the history may be walked when there is no prologue any more
            operands = [x.plain if type(x) is SymNumber else x for x in operands]
        if not op.results:
            out = self._lazy_tensor(trace, place, signature.specs[0], planned.out)
            if tracked:
                engine.record(planned, operands, out)
            return self._materialize_fragile(out)
        outs = [
            self._lazy_tensor(trace, trace.result(place, k, spec), spec, kind)
            for k, (spec, kind) in enumerate(zip(signature.specs, planned.outs, strict=True))
        ]
        if tracked:
            engine.record_several(planned, operands, outs)
        return self._materialize_fragile(outs)

    def _materialize_fragile(self, result: Any) -> Any:
        """Return what an op made, computed if it is one that may fail here."""
        if self._fragile:
            name, self._fragile = self._fragile, ""
            self.materialize(f"{name} may fail, for some values")
        return result

    def _attempt(
        self, trace: OpTrace, op: Op[...], operands: Sequence[Any], places: Sequence[int], attrs: Any
    ) -> None:
        """See to it that an op that was just recorded fails here if it fails at all, where that matters."""
        if self.prologue.dry or self.shape_env.symbols or any(feed.value is None for feed in trace.sources):
            return
        is_exchanged = any(trace.is_ordered(places[k]) for k in pending_operands(op, operands))
        is_tried = self.trial or (is_checked_read(op) and not any(_is_pending(x) for x in operands[1:]))
        if is_tried and not is_exchanged:
            try:
                self.untraced(partial(run_now, trace, op, operands, places, attrs, self.mode))
            except Exception:
                self.prologue.obstacle = f"has run into an error of {op.name}, which depends on values"
                raise
        elif not self.fullgraph and (
            (op.raises_for == op.operands and not self.trial) or is_error_handled(sys._getframe(1))
        ):
            self._fragile = op.name

    def _as_operands(self, op: Op[...], operands: Sequence[Any]) -> Sequence[Any]:
        if op.family != "elementwise" or not all(
            isinstance(x, Tensor) or type(x) in _SCALARS or type(x) is SymNumber for x in operands
        ):
            plain = [x._value() if type(x) is SymNumber else x for x in operands]
            return as_operands(op, plain)
        return operands

    def _signature(
        self, op: Op[...], kinds: Sequence[Any], operands: Sequence[Any], attrs: dict[str, Any]
    ) -> OpSignature:
        shapes = [x._value.shape if isinstance(x, Tensor) else () for x in operands]
        if self.shape_env.symbols and (is_open(shapes) or is_open(attrs)):
            return symbolic_signature(op, kinds, shapes, attrs)
        signature = signature_of(op, kinds, shapes, attrs)
        for kind, x, computed in zip(kinds, operands, signature.plan.computed, strict=True):
            if kind is int:
                self.prologue.checked(partial(check_scalar, op.name, dtype=computed), x)
        return signature

    def _trace_on(self, device: Device) -> OpTrace:
        for candidate in self.traces.values():  # mostly one: asked for at each op
            if candidate.device is device:
                return candidate
        trace = self.traces.get(device)
        if trace is None:
            trace = self.traces[device] = OpTrace(device, self.shape_env.symbols)
        return trace

    def _operand(self, trace: OpTrace, device: Device, x: Any, dtype: Any, cast: bool) -> int:
        if not isinstance(x, Tensor):
            spec = Spec((), dtype)
            if type(x) is not SymNumber:
                return trace.constant(weak_operand(x, dtype), spec)
            place = self._places.get(id(x))
            if place is None or place[0] != device or trace.nodes[place[1]].spec != spec:
                place = (device, trace.input(spec, x, x.plain, scalar=True))
                self._places[id(x)] = place
                self._alive.append(x)
                if dtype.is_integer and type(x.plain) is int:
                    self.prologue.bounded(x, *integer_range(dtype))
            return place[1]
        place_of = self.place(x)
        if cast:
            spec = Spec(x._value.shape, dtype)
            return trace.add("cast", (place_of,), {"dtype": dtype}, spec, ("cast", dtype.name))
        return place_of

    def place(self, x: Tensor) -> int:
        """Return where the value of a tensor stands in the trace of its device; a new one is an input."""
        value = x._value
        if type(value) is LazyValue:
            if value.tracer is self:
                return value.place
            from ...tensor.tensor import materialize

            value = materialize(x)
        location = self._places.get(id(value))
        device = x._vtype.device
        if location is None or location[0] != device:
            place = self._trace_on(device).input(Spec(value.shape, x.dtype), x, value)
            self._places[id(value)] = location = (device, place)
            self._alive.append(value)
        return location[1]

    def _lazy_tensor(self, trace: OpTrace, place: int, spec: Spec, kind: ValueType) -> Tensor:
        value = LazyValue(self, place, spec.shape)
        trace.lazy_values.append(value)
        return wrap(value, kind.lazy())

    def open(self, x: Tensor, at: str, axes: Mapping[int, tuple[int, int | None]]) -> None:
        """Leave the lengths of ``axes`` of ``x``, which the code ``at`` finds, open within these limits."""
        value = x._value
        shape: Any = tuple(
            self.shape_env.new_symbol(n, f"{at}._value.shape[{k}]", *axes[k]) if k in axes else n
            for k, n in enumerate(value.shape)
        )
        place = self._trace_on(x.device).input(Spec(shape, x.dtype), x, value)
        stand = LazyValue(self, place, shape)
        stand.value = value
        self._symbolic_tensors.append((x, stand))
        x._value, x._vtype = stand, x._vtype.lazy()

    def discard(self) -> None:
        """Forget what was recorded: nothing of it will run."""
        self.close()
        for trace in self.traces.values():
            for p in trace.lazy_values:
                p.tracer = None
        for _, stand in self._symbolic_tensors:
            stand.tracer = None

    def close(self) -> None:
        """Put the values of tensors back whose lengths were left open."""
        for x, stand in self._symbolic_tensors:
            if x._value is stand:
                x._value, x._vtype = stand.value, x._vtype.materialized

    def is_one_program(self) -> bool:
        """Return whether all that is recorded is to become one program."""
        return self.trial or self.fullgraph or self.prologue.dry

    def transfer(self, x: Tensor, there: Device) -> Any:
        """Record that ``x`` is copied to another device; ``NotImplemented``: it is to be copied at once."""
        if (
            self.prologue.dry
            or self._has_ended
            or is_value_mode(x._vtype.device.type)
            or is_value_mode(there.type)
        ):
            return NotImplemented
        source = Transfer(x.device, self.place(x))
        trace, spec = self._trace_on(there), Spec(x._value.shape, x.dtype)
        input_place = self._transfers.get((source, there))
        if input_place is None:
            input_place = self._transfers[source, there] = trace.input(spec, source, None)
        return self._lazy_tensor(trace, input_place, spec, ValueType.of(x.dtype, there))

    def trace_symbolic(self, concrete: Callable[[], Tensor], make: Callable[[], Tensor]) -> Tensor:
        """Return the tensor that ``make`` computes from numbers which are others at each run.

        ``concrete`` makes what it is in this run: for comparison with a run that knew no symbolic numbers.
        """
        x = concrete()
        place, trace = self.place(x), self._trace_on(x.device)
        first = len(trace.nodes)
        result = make()
        trace.shadow(result._value.place, place, first)
        return result

    def _filled(self, op: Op[...], attrs: dict[str, Any]) -> Any:
        """Return what is filled with a symbolic number: zeros, and the number added to each."""
        n, kind = attrs["value"], attrs["dtype"]
        if not (kind.is_floating or (kind.is_integer and type(n.plain) is int)):
            return self._check_and_record(op, (), {**attrs, "value": check_scalar(op.name, n._value(), kind)})
        none = {**attrs, "value": -0.0 if kind.is_floating else 0}  # which keeps the sign of a zero
        return self.trace_symbolic(
            lambda: self._record(op, (), {**attrs, "value": check_scalar(op.name, n.plain, kind)}),
            lambda: self._record(op, (), none) + n,
        )

    def is_varying_key(self, key: Any) -> bool:
        """Return whether a key of ``x[key]`` varies from run to run."""
        return (
            bool(self.prologue.varying)
            and not self._has_ended
            and symbolic_index.is_symbolic(self.prologue, key)
        )

    def indexed(self, function: Callable[..., Tensor], x: Tensor, key: Any, *value: Any) -> Tensor:
        """Return what ``function``, which indexes ``x``, makes of a varying key."""
        now = symbolic_index.concrete_key(key)
        concrete_result = self.prologue.checked(
            lambda *_: function(x, now, *value), *symbolic_index.key_numbers(key)
        )
        return symbolic_index.record_indexing(
            self.prologue, self._trace_on(x.device), concrete_result, function, x, key, *value
        )

    def made_each_run(self, owner: Any, function: Callable[..., Any], sizes: tuple[Any, ...]) -> Any:
        """Return the tensor ``function(*sizes)``, made untraced; each run makes it anew."""
        x = self.untraced(partial(self._make, owner, function, sizes))
        if self._has_ended:
            return x
        name = f"m{len(self.prologue.lines)}"
        self.prologue.lines[-1] = f"{name} = {self.prologue.lines[-1]}._value"
        place = self._trace_on(x.device).input(Spec(x.shape, x.dtype), name, x._value)
        self._places[id(x._value)] = (x.device, place)
        self._alive.append(x._value)
        return x

    @contextmanager
    def recomputed(self) -> Iterator[None]:
        """Record what is done meanwhile as computed again: it is not what was recorded before."""
        self._recompute_tag += 1
        outer, self._number = self._number, self._recompute_tag
        try:
            yield
        finally:
            self._number = outer

    def _make(self, owner: Any, function: Callable[..., Any], sizes: tuple[Any, ...]) -> Any:
        outcome = self.prologue.call(owner, function, sizes=sizes)
        if not self.prologue.dry:
            return outcome
        slots = {name: getattr(owner, name) for name in type(owner).__slots__}
        try:
            with untaped():
                return function(*hints(sizes))
        finally:
            for name, value in slots.items():
                setattr(owner, name, value)

    def materialize(self, reason: str) -> None:
        """Run what was recorded, because of ``reason``."""
        if self.prologue.dry:
            raise CaptureError(f"compile: {reason}, where lengths are open.")
        graph_break = locate_break(reason)
        if self.fullgraph:
            raise CaptureError(
                f"compile: fullgraph=True, but {reason} here, so the graph breaks:\n  {graph_break}\n"
                f"Compute it with tensors (where, maximum ...), or compile without fullgraph."
            )
        self.breaks.append(graph_break)
        if self.trial:
            self.sites.note_break(devices=self.traces)
            self.sites.nodes.clear()
        self.run()
        while self.at_breaks:  # effects that were put off until behind what was recorded
            self.untraced(self.at_breaks.pop(0))

    def _end_at_long_loop(self) -> None:
        """Run what was recorded, if a loop has recorded too much of it; else look again later.

        There is no program then: what comes is computed at once, and only its places are noted.
        """
        assert self._find_long_loop is not None
        graph_break = self.untraced(partial(self._find_long_loop, self.sites, self.traces, sys._getframe(1)))
        self._search_at += self._search_at // 2 + 1
        if graph_break is not None:
            self.breaks.append(graph_break)
            self.sites.nodes.clear()
            self.run()
            self._has_ended = True

    def run(self, ready: PreparedRun | None = None) -> None:
        """Run the traces for the values that somebody has; afterwards everything begins anew.

        ``ready`` is a program of the only trace that gives (most of) these values.
        """
        traces = self.traces
        finish = TraceFlush(self, traces, ready)
        try:
            self.traces, self._places, self._transfers, self._alive = {}, {}, {}, []
            self.untraced(finish.run)
        except BaseException as error:
            self.untraced(partial(finish.recover, error))
            raise
        finally:
            for trace in traces.values():
                for p in trace.lazy_values:
                    p.tracer = None
            self.close()
            for _, stand in self._symbolic_tensors:
                stand.tracer = None
                stand.fill(stand.value)
            self._symbolic_tensors = []

    def program(self, trace: OpTrace, outputs: Sequence[int], inputs: Sequence[int]) -> Any:
        """Return the program of a part of a trace."""
        return compile_program(trace, outputs, self.mode, inputs=inputs)


def _is_pending(x: Any) -> bool:
    return isinstance(x, Tensor) and type(x._value) is LazyValue and x._value.value is None


def _kind(x: Any) -> type:
    return type(x.plain) if type(x) is SymNumber else type(x)
