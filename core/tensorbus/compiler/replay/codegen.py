"""From one observed run to generated code that repeats it: guards, prologue, program, mutations, result.

The code is Python, one function for each cache entry, run once per call. It checks the guards first, and
returns ``GUARD_MISS`` where one fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...autograd import node_order
from ...autograd.engine import aliased
from ...autograd.saved_values import WriteClock, last_tracked_write, last_write, note_write
from ...autograd.view_changes import assign, separate
from ...autograd.views import link_side_by_side, relations
from ...dispatch.modes import CompositeValue
from ...errors import ValuesError
from ...optim.optimizer import SCHEDULED, Optimizer
from ...random.generator import Generator
from ...tensor.leaf import keeps_gradient
from ...tensor.tensor import Tensor, lent
from ...tracing.lazy_value import LazyValue
from ...tracing.mutation_counter import mutation_counter
from ...tracing.sym_int import SymInt
from ...tracing.sym_number import SymNumber
from ..aot_autograd.joint_graph import attach_node, freed_node, is_freed, trace_backward
from ..capture.data_dependent_errors import may_fail
from ..capture.side_effect_observer import SideEffectObserver
from ..capture.tracer import Tracer
from ..guards.guard import CounterGuards
from ..guards.guard_codegen import GUARD_GLOBALS, GuardCodegen
from ..programs.compiled_program import EXPECTED_ERRORS, CompiledProgram, PreparedRun
from ..programs.multi_device import MultiDeviceProgram
from ..programs.op_trace import InputSource, OpTrace, Transfer
from ..programs.program_cache import ShapeSpecializations, compile_program
from ..state.global_modes import GlobalModes
from ..state.mutations import (
    REFILL_CODE,
    Mutations,
    StateVaries,
    describe_object,
    diff_state,
    note_refill,
)
from ..state.object_view import ChildRef, OpaqueObject, TensorState, Uncapturable
from ..state.optimizer_init import idle_states
from ..state.reachable import GlobalRef, ReachableState, TrackedObject
from .cache_entry import FALL_BACK, GUARD_MISS, CacheEntry
from .input_relaxation import relax
from .late_errors import guarded, late_errors
from .noted_writes import TICK, UntrackedInputs, clock_of, noted
from .output_codegen import OutputCodegen, construct, link_along, set_attribute
from .shared_parts import by_parts, put_parts, shared_parts


class ReplayCodegen:
    """Generates the code of one cache entry. Raises ``Uncapturable`` where that is impossible."""

    def __init__(self, reach: ReachableState, observer: SideEffectObserver, tracer: Tracer) -> None:
        self.reach, self.observer, self.tracer = reach, observer, tracer
        self.prologue = tracer.prologue
        self.outputs: list[Any] = []
        self._multi_device = len(tracer.traces) > 1
        """Whether several devices compute: an output is then a ``ValueRef``, not a place in the trace."""
        ran, hidden = (
            {*observer.codes, *reach.deferred_code()},
            {*map(id, self.prologue.owners), *self.prologue.appended},
        )
        hidden |= idle_states(reach, self.prologue.stepped_optimizers)
        self.unread = {
            id(tracked.obj)
            for tracked in reach.tensors()
            if tracked.before.state.node not in tracer.gradients
        }
        """The tensors whose gradients the run neither read nor changed."""
        self.reached = {
            id(tracked.obj): tracked for tracked in reach.reachable_from(ran, hidden, self.unread)
        }
        self.globals = reach.globals_read_by(ran)
        self._check()
        for tracked in reach.weakly_held(ran, hidden, self.unread):  # guards would keep it
            raise Uncapturable(f"has {describe_object(tracked)} by a weak reference only")
        self.overwritten = {
            id(tracked.obj) for tracked in self.reached.values()
            if isinstance(state := tracked.before.state, TensorState)
            and tracer.gradients.get(state.node) and state.grad is None
        }  # fmt: skip
        """The tensors without a gradient, whose gradient the run writes before it reads it."""
        self.guards = GuardCodegen(
            reach,
            self.reached,
            ran,
            self.prologue,
            tracer.grads,
            tracer.shape_env,
            self.overwritten | self.unread,
            observer.own_code.keys(),
        )
        self.guards.strict = self.strict
        self._passed_on: set[int] = set()
        self._tensors_of_value: dict[int, list[TrackedObject]] = {}
        self._tensors_of_history: dict[int, list[TrackedObject]] = {}
        self.clock: WriteClock | None = None
        for tracked in self.reached.values():
            if isinstance(tracked.before.state, TensorState):
                self._tensors_of_value.setdefault(id(tracked.before.state.value), []).append(tracked)
                self._tensors_of_history.setdefault(id(tracked.obj._node), []).append(tracked)

    def emit(self, result: Any) -> CacheEntry:
        """Return the cache entry of the run that returned ``result``; called once."""
        self.output = OutputCodegen(self.reach, self.reached, self._output, self._shared)
        try:
            return self._emit(result)
        finally:
            del self.output  # which leads back here, and would keep the tensors of the run

    def _emit(self, result: Any) -> CacheEntry:
        traces = [*self.tracer.traces.values()]
        mutations = diff_state(
            self.reach, self.reached.values(), self.globals, self.prologue, self.overwritten
        )
        mutations.rates = self.rates
        if mutations.rates or mutations.reason:
            raise StateVaries(mutations)
        relax(self.reach, self.reached, mutations)
        for tracked in mutations.refilled:
            note_refill(self.reach, tracked)
        effects = self._effects(mutations)
        answer = self.output.emit(result)
        effects = [*self.output.emit_views(), *effects]
        self._guard_views(mutations)
        history = self._history(traces) if self.outputs else []  # which may ask for more inputs
        late = late_errors(self.tracer, self.outputs)
        self.outputs += self._ordered_calls(traces)
        values = [self._input(feed) for trace in traces for feed in trace.sources]
        body = [*self.prologue.lines]
        if self.prologue.varying and not self.prologue.owners:
            fails = "except (ArithmeticError, ValueError):"
            body = ["try:", *[f"    {line}" for line in body], fails, "    return GUARD_MISS"]
        ready: PreparedRun | None = None
        program: Any = None
        if self.outputs:
            program = self._program(traces, mutations)
        self.guards.emit(self.globals)  # while the device may already be compiling
        if self.outputs:
            old = {} if self._multi_device else self._old_inputs(traces[0], mutations)
            in_place = not self._multi_device and bool(self._reused_inputs(traces[0], mutations))
            leaves = tuple(tracked.obj._node for tracked in mutations.grads)
            ready = PreparedRun(program, tuple(self.outputs), old, in_place, leaves)
            body.append(f"v = [{', '.join(values)}]")
            if parts := [s.expr for s in mutations.tensor_values if _has_parts(s)]:
                shared = f"shared_parts(({', '.join(parts)},))" if in_place else "None"
                body.append(f"h = {shared}")  # which nothing is written over
            body += self._free_early(mutations, [*values, *self.output.lines, *history, *effects, answer])
            at = len(body)
            if isinstance(program, ShapeSpecializations):
                body += ["o = p(v)"]
            elif isinstance(program, MultiDeviceProgram):
                body += ["o = run(v)"]
            else:
                run = ["    o = run(v)"] if program.waits else ["    with lock:", "        o = run(v)"]
                body += ["try:", *run, "except EXPECTED_ERRORS:", "    raise", "except Exception as error:"]
                body += ["    raise failed(error) from error"]
            entries = [e for trace in traces for e in trace.nodes]
            streams = {id(owner): owner for owner in self.prologue.owners}.values()
            once = any(trace.last_ordered is not None for trace in traces)  # Python must not do these again
            is_repeated = (late is not None or any(may_fail(e.op) for e in entries)) and not once
            if is_repeated and all(type(x) is Generator for x in streams):
                body = guarded(body, at, [self.prologue.name(x) for x in streams], late)
            if isinstance(program, ShapeSpecializations):
                body[:0] = [
                    f"p = sizes.program_if_worthwhile({_sizes(self.tracer)})",
                    "if p is None: return FALL_BACK",
                ]
        if mutations.tensor_values:
            body.append(TICK)  # before what is recorded
            self.clock = clock_of(mutations.tensor_values)
        if self.outputs:
            body += [*self.prologue.writes, *self.output.lines, *history, *effects]
        else:
            body += [*self.prologue.writes, *self.output.lines, *effects]
        has_history = any("attach_node(" in line for line in history)
        return self._compile_entry(body, answer, ready, has_history, late)

    def _check(self) -> None:
        tracer, observer = self.tracer, self.observer
        for reason in (observer.obstacle, self.prologue.obstacle):
            if reason is not None:
                raise Uncapturable(reason)
        if name := self.reach.global_modes.first_difference(GlobalModes.current()):
            raise Uncapturable(f"leaves Python with another {name} than it found")
        if tracer.breaks:
            raise Uncapturable(f"needs values in Python: {tracer.breaks[0]}")
        if observer.reads_any_name and not self.reach.all_attributes:
            raise Uncapturable("asks for attributes by computed names")
        if self.reach.deferred_code_reads(self.prologue.slots):
            raise Uncapturable("a number that varies is read by a rule of a user's kernel")
        self.rates = self._check_script()
        for scope, names in self.reach.missing_globals({*observer.codes}):
            if created := sorted(names & scope.keys()):
                raise Uncapturable(f"makes the global {created[0]!r}")
        for tracked in self.reached.values():
            if tracked.before.kind == "opaque":
                raise OpaqueObject(f"depends on {describe_object(tracked)}, which Python cannot look into")

    def _check_script(self) -> str | None:
        """Return how code may read numbers of the prologue by another way: guards leave those out."""
        self.strict = False
        if self.prologue.free:
            return None
        names: set[str] = set()
        for code in self.observer.codes:
            names.update(code.co_names, (c for c in code.co_consts if isinstance(c, str)))
        groups = [c for c in self.prologue.reads.values() if "params" in c]
        states = len(groups) < len(self.prologue.reads)
        if self.prologue.reads and ("state_dict" in names or ("state" in names and states)):
            return "looks at the state of an optimizer, which changes at each step"
        for owner in self.prologue.owners:
            own = {n for n, v in getattr(owner, "__dict__", {}).items() if type(v) in (int, float)}
            if own & names:
                return f"reads {min(own & names)!r} of a schedule, which changes at each step"
        self.strict = not names.isdisjoint(("param_groups", *SCHEDULED)) or self._has_other_holders(groups)
        if self.strict and self.prologue.owners and groups:
            return "looks into param_groups, which a schedule may change at each step"
        return self.prologue.observed

    def _has_other_holders(self, groups: Sequence[Any]) -> bool:
        """Return whether anything but optimizers holds one of ``groups`` or a list of them."""
        own = {id(group) for group in groups}
        every = [s.obj for s in self.reached.values() if type(s.obj) is list]
        lists = {id(x) for x in every if own & {*map(id, x)}}
        children = [
            c for s in self.reached.values() if not isinstance(s.obj, Optimizer) for _, c in s.children
        ]
        children += [g.tracked for g in self.globals]
        children += [tracked for _, tracked in self.reach.argument_objects]
        things = [id(s.obj) for s in children if s is not None]
        return not lists.isdisjoint(things) or any(things.count(k) > 1 for k in own)

    def _input(self, feed: InputSource) -> str:
        """Return the expression of an input's value."""
        if type(feed.source) is SymNumber:
            return feed.source.name
        if type(feed.source) is Transfer:
            return "None"  # until it is carried
        return feed.source if isinstance(feed.source, str) else self._value_from_before(feed.value)

    def _value_from_before(self, value: Any) -> str:
        """Return the expression of a value that existed before the run, or was computed from constants."""
        homes = self._tensors_of_value.get(id(value), [])
        for other in homes[1:]:
            self.guards.add(
                f"{homes[0].expr}._value is {other.expr}._value", "tensors that hold the same value"
            )
        return f"{homes[0].expr}._value" if homes else self.reach.name(value)

    def _output(self, x: Tensor) -> str:
        """Return the expression of the value that a tensor holds after the run."""
        value = x._value
        if isinstance(value, CompositeValue):
            parts = [self.output.emit(getattr(value, name)) for name in value.PARTS]
            return f"{self.reach.name(value.rebuilt)}({', '.join(parts)})"
        computed = (
            value if type(value) is not LazyValue else value.value
        )  # of an argument whose lengths are open
        if computed is not None:
            self._passed_on.add(id(computed))
            return self._value_from_before(computed)
        spot = (x.device, value.place) if self._multi_device else value.place
        if spot not in self.outputs:
            self.outputs.append(spot)
        return f"o[{self.outputs.index(spot)}]"

    def _ordered_calls(self, traces: Sequence[OpTrace]) -> list[Any]:
        """Return what the program has to compute although nobody takes it."""
        if not self._multi_device:
            return [p for trace in traces for p in trace.unreached(self.outputs, (), trace.last_ordered)]
        last = [(trace.device, trace.last_ordered) for trace in traces if trace.last_ordered is not None]
        return [spot for spot in last if spot not in self.outputs]

    def _shared(self, x: Tensor) -> str | None:
        """Return the expression of the autograd node of ``x`` where an older tensor shares it."""
        homes = self._tensors_of_history.get(id(x._node), []) if x._node is not None else []
        for other in homes[1:]:
            self.guards.add(f"{homes[0].expr}._node is {other.expr}._node", "tensors that share a history")
        if any(tracked.before.state.node is not x._node for tracked in homes):
            raise Uncapturable(f"shares what it makes of {describe_object(homes[0])} with another tensor")
        return f"{homes[0].expr}._node" if homes else None

    def _program(self, traces: Sequence[OpTrace], mutations: Mutations) -> Any:
        """Return the program; one of a single device reuses inputs in place where it may."""
        if self._multi_device:
            return MultiDeviceProgram(self.tracer.traces, self.outputs, self.tracer.program)
        reused_inputs = self._reused_inputs(traces[0], mutations)
        return compile_program(traces[0], self.outputs, self.tracer.mode, reused_inputs=reused_inputs)

    def _effects(self, mutations: Mutations) -> list[str]:
        parts, wholes = by_parts(mutations.tensor_values)
        lines = []
        if parts:
            values = "".join([f"{self._output(part)}, " for _, part in parts])
            tensors = "".join([f"{s.expr}, " for s, _ in parts])
            lines.append(f"put_parts(({tensors}), ({values}), h, w.number, w.by)")
        assigned = [(s.expr, self._output(s.obj)) for s in wholes]
        if assigned:  # what shows elements of these, and is not reached from here, has to follow
            pairs = "".join(f"({at}, {value}), " for at, value in assigned)
            lines += ["if no_views():", *[f"    {at}._value = {value}" for at, value in assigned]]
            lines += ["else:", f"    assign_values(({pairs}), w.number, w.by)"]
        lines += [line for s in mutations.tensor_values for line in noted(s)]
        lines += [f"{tracked.expr}._node = Leaf()" for tracked in mutations.leaves]
        lines += [f"{s.expr}._node.grad = {self.output.emit(s.obj._node.grad)}" for s in mutations.grads]
        lines += [self._assignment(s, ref, self.output.emit(x)) for s, ref, x in mutations.container_tensors]
        lines += [self._assignment(s, ref, repr(value)) for s, ref, value in mutations.flags]
        lines += ["mutation_counter[0] += 1"] * bool(mutations.flags)  # guards behind the counter rely on it
        lines += [
            f"{self._global(global_ref)} = {self.output.emit(x)}"
            for global_ref, x in mutations.global_tensors
        ]
        for slot in self.prologue.slots.values():
            if slot.changed:
                lines.append(slot.assigned(self._number(slot.now)))
        for grown in self.prologue.appended.values():
            lines += [f"{grown.expr}.append({self.output.emit(x)})" for x in grown.items]
        return [
            *lines,
            *[self.output.emit_fill(s, REFILL_CODE.get(type(s.obj), "")) for s in mutations.refilled],
        ]

    def _guard_views(self, mutations: Mutations) -> None:
        """Guard which tensors show elements of one another, where the run changes any."""
        if not mutations.tensor_values:
            return
        tensors = [s for s in self.reached.values() if isinstance(s.before.state, TensorState)]
        now, text = relations([s.obj for s in tensors]), "which tensors are views of one another"
        if now:
            code = f"relations(({''.join(f'{s.expr}, ' for s in tensors)})) == {self.reach.name(now)}"
            self.guards.add(code, text)
            return
        fixed = self.reach.name(frozenset(id(s.obj) for s in tensors if s.fixed))
        others = self.guards.ids([s.expr for s in tensors if not s.fixed])
        self.guards.add(f"(no_views() or are_unrelated({fixed}, [{others}]))", text)

    def _assignment(self, tracked: TrackedObject, ref: ChildRef, text: str) -> str:
        """Return the code that puts something in a place."""
        if isinstance(tracked.obj, type) and isinstance(ref.key, tuple):  # whose dictionary cannot be written
            return f"type.__setattr__({tracked.expr}, {ref.key[1]!r}, {text})"
        return f"{self.reach.access(tracked, ref)} = {text}"

    def _number(self, x: Any) -> str:
        """Return the expression of the new value of a number."""
        if type(x) not in (SymNumber, SymInt, int, float):
            raise Uncapturable(f"puts a {type(x).__name__} in the place of a number")
        return self.output.emit(x)

    def _global(self, ref: GlobalRef) -> str:
        return f"{self.reach.name(ref.scope)}[{ref.name!r}]"

    def _free_early(self, mutations: Mutations, code: Sequence[str]) -> list[str]:
        """Return the code that frees, before the run, gradients that it replaces and nobody reads.

        Their memory serves the new ones then. A run that fails leaves none, as after ``zero_grad``.
        """
        if self.tracer.sites.late:
            return []
        replaced = [
            f"{tracked.expr}._node.grad" for tracked in mutations.grads
            if tracked.before.state.grad is not None or id(tracked.obj) in self.overwritten
        ]  # fmt: skip
        used = "\n".join([line.partition(" = ")[2] or line for line in code])
        return [f"{at} = None" for at in replaced if at not in used]

    def _history(self, traces: Sequence[OpTrace]) -> list[str]:
        """Return the code that gives differentiable results their compiled autograd node."""
        if any(keeps_gradient(x) for x, _ in self.output.tracked):
            raise Uncapturable("gives back the result of an op that keeps its gradient")
        freed = [name for x, name in self.output.tracked if is_freed(x, self.tracer.began)]
        tracked = [(x, name) for x, name in self.output.tracked if name not in freed]
        lines = [f"{name}._node = freed_node()" for name in freed]
        if not tracked:
            return lines
        if self._multi_device:
            raise Uncapturable("returns a tensor with a history that crosses devices")
        (trace,), results = traces, [x for x, _ in tracked]
        with_history = []
        for k, feed in enumerate(trace.sources):
            homes = self._tensors_of_value.get(id(feed.value), []) if isinstance(feed.source, Tensor) else []
            nodes = [s for s in homes if s.before.state.node is not None]
            if len({id(s.before.state.node) for s in nodes}) > 1:
                raise Uncapturable("is given one value with two histories")
            if nodes:
                with_history.append((k, nodes[0].before.state.node, f"{nodes[0].expr}._node"))
        ends = {id(node) for _, node, _ in with_history}
        reached = {id(node) for node in node_order.reached_from([x._node for x in results], ends)}
        parents = [(k, node, at) for k, node, at in with_history if id(node) in reached]
        untracked, tops = UntrackedInputs(self.reached), [(k, node) for k, node, _ in parents]
        backward = trace_backward(self.tracer, trace, results, tops, self.outputs, untracked)
        names, above = ", ".join(name for _, name in tracked), ", ".join(at for _, _, at in parents)
        sizes = _sizes(self.tracer)
        parts = f"{self.reach.name(backward)}, v, o, ({above},), [{names}], {sizes}, ({untracked.code})"
        return [*lines, f"attach_node({parts})"]

    def _reused_inputs(self, trace: OpTrace, mutations: Mutations) -> dict[int, int]:
        """Return which outputs reuse the memory of which inputs, whose tensors they are assigned to.

        An input whose old value is returned, or saved for the backward pass, is not reused.
        """
        if self.tracer.sites.late or any(not is_freed(x, self.tracer.began) for x, _ in self.output.tracked):
            return {}
        place = _input_numbers(trace)
        reused: dict[int, int] = {}
        for tracked in mutations.tensor_values:
            for value, before in _value_pairs(tracked):
                k = place.get(id(before))
                if k is None or k in reused.values() or id(before) in self._passed_on:
                    continue
                if type(value) is LazyValue:
                    reused.setdefault(self.outputs.index(value.place), k)
        return reused

    def _old_inputs(self, trace: OpTrace, mutations: Mutations) -> dict[int, int]:
        """Return, by place of each new value of a tensor, the number of the input with its old value."""
        numbers = _input_numbers(trace)
        return {
            tracked.obj._value.place: numbers[id(tracked.before.state.value)]
            for tracked in mutations.tensor_values
            if type(tracked.obj._value) is LazyValue and id(tracked.before.state.value) in numbers
        }

    def _compile_entry(
        self, body: Sequence[str], answer: str, ready: PreparedRun | None, has_history: bool, late: Any
    ) -> CacheEntry:
        lines = [f"    {line}" for line in body]
        self.guards.define_names("\n".join([*lines, answer]))
        head = self.guards.emit_head()
        source = "\n".join([*head, *lines, f"    return {answer}"]) + "\n"
        code = compile(source, "<replay>", "exec")  # while the device may still be compiling
        on_mutation = self.guards.emit_on_mutation()
        named = {
            *re.findall(r"\w+", source + on_mutation)
        }  # what nobody names, old gradients say, is not kept for nothing
        constants = {k: v for k, v in self.reach.constants.items() if k in named}
        scope: dict[str, Any] = {
            **GUARD_GLOBALS, **constants, **self.prologue.constants, "GUARD_MISS": GUARD_MISS,
            "FALL_BACK": FALL_BACK, "Tensor": Tensor, "mutation_counter": mutation_counter,
            "checked": [self.reach.mutation_count], "construct": construct,
            "set_attribute": set_attribute, "attach_node": attach_node, "freed_node": freed_node,
            "ValuesError": ValuesError, "EXPECTED_ERRORS": EXPECTED_ERRORS, "assign_values": assign,
            "note_write": note_write, "last_write": last_write, "last_tracked_write": last_tracked_write,
            "late": late, "order": node_order.order, "w": self.clock,
            "shared_parts": shared_parts, "put_parts": put_parts, "aliased": aliased,
            "link_along": link_along, "link_side_by_side": link_side_by_side,
            "lent": lent, "separate": separate,
        }  # fmt: skip
        if ready is not None and isinstance(ready.program, ShapeSpecializations):
            scope.update(sizes=ready.program)
        elif ready is not None and isinstance(ready.program, MultiDeviceProgram):
            scope.update(run=ready.program)
        elif ready is not None and isinstance(ready.program, CompiledProgram):
            program = ready.program
            scope.update(run=program.run, lock=program.lock, failed=program.failed)
        scope["unchanged"] = CounterGuards(on_mutation, scope)
        exec(code, scope)
        guards = tuple(self.guards.guards)
        return CacheEntry(
            run=scope["replay"],
            guards=guards,
            prepared=ready,
            source=source + on_mutation,
            scope=scope,
            shape_env=self.tracer.shape_env,
            guard_source="\n".join([*head, "    return None", ""]),
            eager_head=self.guards.emit_eager_head(),
            has_history=has_history,
        )


def _input_numbers(trace: OpTrace) -> dict[int, int]:
    """Return the number of the input of each tensor value, by id."""
    return {id(feed.value): k for k, feed in enumerate(trace.sources) if isinstance(feed.source, Tensor)}


def _sizes(tracer: Tracer) -> str:
    return "{" + ", ".join(f"{name!r}: {name}" for name in tracer.shape_env.symbols) + "}"


def _has_parts(tracked: TrackedObject) -> bool:
    """Return whether a tensor had, and has, a value of parts."""
    old, new = tracked.before.state.value, tracked.obj._value
    return isinstance(new, CompositeValue) and type(old) is type(new)


def _value_pairs(tracked: TrackedObject) -> list[tuple[Any, Any]]:
    """Return the values that a tensor, or each of its parts, has and had."""
    old, new = tracked.before.state.value, tracked.obj._value
    if not _has_parts(tracked):
        return [(new, old)]
    return [(getattr(new, name)._value, getattr(old, name)._value) for name in new.PARTS]
