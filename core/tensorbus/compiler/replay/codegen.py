"""From one observed run to code that does the same: guards, script, executable, effects, result.

The code is Python, written for this program and run once per call; it starts by asking whether everything
that the program was captured under still holds, and answers ``MISS`` where it does not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ...autograd import engine as autograd
from ...errors import ValuesError
from ...optim.optimizer import SCHEDULED, Optimizer
from ...random.generator import Generator
from ...tensor.tensor import Tensor
from ...tracing.lazy_value import Pending, structure
from ...tracing.sym_int import Length, Lengths
from ...tracing.sym_number import Number
from ..aot_autograd.joint_graph import attach, derive, is_spent, spent
from ..capture.data_dependent_errors import may_fail_named
from ..capture.side_effect_observer import Observer
from ..capture.tracer import Recorder
from ..guards.guard_codegen import AMBIENT, Guard, GuardWriter, Unchanged
from ..programs.multi_device import Staged
from ..programs.op_trace import Feed, Recording, Transfer
from ..programs.program_cache import Family, Program, Ready, program
from ..state.global_modes import Ambient
from ..state.mutations import FILLED, Changes, Moving, describe, find, holds_alike, label
from ..state.object_view import NotReplayable, Part, TensorState, look
from ..state.optimizer_init import resting
from ..state.reachable import Global, Reach, Seen
from .output_codegen import AnswerWriter, remake, store

T = TypeVar("T")

MISS: Final = object()
"""What a replay answers where a guard does not hold."""
FAILED: Final = object()
"""What it answers where Python is to run the function, and nothing has changed.

Its program met values that an op is not defined for: Python finds the error then where it belongs. All else
that a program raises is the device's: it is raised. Or there is no program for these sizes yet.
"""


@dataclass(slots=True, kw_only=True, eq=False)
class Replay:
    """A captured call: ``run(args, kwargs)`` returns its result, or ``MISS``."""

    run: Any
    guards: tuple[Guard, ...]
    ready: Ready | None
    source: str
    scope: dict[str, Any]
    lengths: Lengths

    def by_python(self, function: Callable[[], T]) -> T:
        """Return what ``function()`` does, which Python is to run."""
        made = self.ready.program if self.ready is not None else None
        return made.run(function) if isinstance(made, Family) else function()

    def failing(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Guard | None:
        """Return the first guard that does not hold for these arguments."""
        return next((guard for guard, _ in self._failing(self.guards, args, kwargs)), None)

    def moved(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[tuple[int | str, Any]]:
        """Return the places of numbers that are others by now (see ``reach.place_of``)."""
        guards = [guard for guard in self.guards if guard.places]
        found = self._failing(guards, args, kwargs)
        return {place for guard, there in found if there for place in guard.places}

    def programs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Program]:
        """Return what a call with these arguments runs, for which the guards hold."""
        if self.ready is None:
            return []
        made = self.ready.program
        if isinstance(made, Staged):
            return [*made.programs]
        scope = self._known(args, kwargs)
        return [made.at({name: scope[name] for name in self.lengths.symbols})]

    def _known(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return what the names in guards stand for."""
        scope = {**self.scope, "a": args, "k": kwargs, **{f"x{k}": x for k, x in enumerate(args)}}
        for name, at in self.lengths.symbols.items():
            with suppress(LookupError, AttributeError, NameError, TypeError):
                scope[name] = eval(at, scope)
        return scope

    def _failing(
        self, guards: Iterable[Guard], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[Guard, bool]]:
        """Yield the guards that do not hold, and whether what they are about was there to be asked."""
        scope = self._known(args, kwargs)
        for guard in guards:
            try:
                if not eval(guard.code, scope):  # written by this package
                    yield guard, True
            except (LookupError, AttributeError, TypeError, ValueError, NameError):
                yield guard, False


class Writer:
    """Writes the code of one replay. Raises ``NotReplayable`` where it cannot be written."""

    def __init__(self, reach: Reach, observer: Observer, recorder: Recorder) -> None:
        self.reach, self.observer, self.recorder = reach, observer, recorder
        self.script = recorder.script
        self.outputs: list[Any] = []
        self._several = len(recorder.recordings) > 1
        """Whether values of several devices are computed: an output is then a ``Spot``, not a place."""
        ran, hidden = {*observer.codes, *reach.later()}, {*map(id, self.script.owners), *self.script.grown}
        hidden |= resting(reach, self.script.stepped)
        self.unread = {
            id(seen.thing) for seen in reach.tensors() if seen.before.state.node not in recorder.gradients
        }
        """The tensors whose gradients the run neither looked at nor changed."""
        self.kept = {id(seen.thing): seen for seen in reach.behind(ran, hidden, self.unread)}
        self.used = reach.used(ran)
        self._check()
        for seen in reach.held_weakly(ran, hidden, self.unread):  # guards would keep it
            raise NotReplayable(f"has {describe(seen)} by a weak reference only")
        self.forgotten = {
            id(seen.thing) for seen in self.kept.values()
            if isinstance(seen.before.state, TensorState) and recorder.gradients.get(seen.before.state.node)
            and seen.before.state.grad is None
        }  # fmt: skip
        """The tensors that had no gradient; had they had one, it would have been written over unread."""
        self.guards = GuardWriter(
            reach, self.kept, ran, self.script, recorder.grads, recorder.lengths, self.forgotten | self.unread
        )
        self.guards.strict = self.strict
        self._passed: set[int] = set()
        self._homes: dict[int, list[Seen]] = {}
        self._histories: dict[int, list[Seen]] = {}
        for seen in self.kept.values():
            if isinstance(seen.before.state, TensorState):
                self._homes.setdefault(id(seen.before.state.value), []).append(seen)
                self._histories.setdefault(id(seen.thing._node), []).append(seen)

    def write(self, result: Any) -> Replay:
        """Return the replay of the run that returned ``result``. A writer writes once."""
        self.answer = AnswerWriter(self.reach, self.kept, self._output, self._shared)
        try:
            return self._write(result)
        finally:
            del self.answer  # which leads back here, and would keep the tensors of the run

    def _write(self, result: Any) -> Replay:
        recordings = [*self.recorder.recordings.values()]
        changes = find(self.reach, self.kept.values(), self.used, self.script, self.forgotten)
        changes.rates = self.rates
        if changes.rates or changes.why:
            raise Moving(changes)
        self._loosen(changes)
        for seen in changes.contents:
            now = look(seen.thing, self.reach.names)
            if self.reach.filled.get(id(seen.thing)) == seen.before.state and not holds_alike(seen, now):
                raise NotReplayable(f"changes {describe(seen)}, which is the same at each call")
            self.reach.filled[id(seen.thing)] = now.state
        effects = self._effects(changes)
        answer = self.answer.build(result)
        history = self._history(recordings) if self.outputs else []  # which may ask for more inputs
        values = [self._input(feed) for recording in recordings for feed in recording.feeds]
        body = [*self.script.lines]
        if self.script.drifting and not self.script.owners:
            fails = "except (ArithmeticError, ValueError):"
            body = ["try:", *[f"    {line}" for line in body], fails, "    return MISS"]
        ready: Ready | None = None
        made: Any = None
        if self.outputs:
            made = self._program(recordings, changes)
        self.guards.write(self.used)  # while the device may already be compiling
        if self.outputs:
            old = {} if self._several else self._before(recordings[0], changes)
            in_place = not self._several and bool(self._replaces(recordings[0], changes))
            leaves = tuple(seen.thing._node for seen in changes.grads)
            ready = Ready(made, tuple(self.outputs), old, in_place, leaves)
            body.append(f"v = [{', '.join(values)}]")
            body += self._released(changes, [*values, *self.answer.lines, *history, *effects, answer])
            at = len(body)
            if isinstance(made, Family):
                body += ["o = p(v)"]
            elif isinstance(made, Staged) or made.waits:
                body += ["o = run(v)"]
            else:
                body += ["with lock:", "    o = run(v)"]
            entries = [e for recording in recordings for e in recording.entries]
            streams = {id(owner): owner for owner in self.script.owners}.values()
            if any(may_fail_named(e.op) for e in entries) and all(type(x) is Generator for x in streams):
                run = [f"    {line}" for line in body[at:]]
                names = [self.script.name(x) for x in streams]
                back = [f"    {name}.set_state(s{name})" for name in names]  # for Python, which draws again
                body[at:] = ["try:", *run, "except ValuesError:", *back, "    return FAILED"]
                body[:0] = [f"s{name} = {name}.get_state()" for name in names]
            if isinstance(made, Family):
                body[:0] = [f"p = family.worth({_sizes(self.recorder)})", "if p is None: return FAILED"]
            body += [*self.script.writes, *self.answer.lines, *history, *effects]
        else:
            body += [*self.script.writes, *self.answer.lines, *effects]
        return self._made(body, answer, ready)

    def _check(self) -> None:
        recorder, observer = self.recorder, self.observer
        for reason in (observer.obstacle, self.script.obstacle):
            if reason is not None:
                raise NotReplayable(reason)
        if name := self.reach.ambient.differs(Ambient.now()):
            raise NotReplayable(f"leaves Python with another {name} than it found")
        if recorder.breaks:
            raise NotReplayable(f"needs values in Python: {recorder.breaks[0]}")
        if observer.any_name and not self.reach.every:
            raise NotReplayable("asks for attributes by computed names")
        if self.reach.reads_later(self.script.held):
            raise NotReplayable("a number that moves is read by what a kernel was given")
        self.rates = self._check_script()
        for scope, names in self.reach.unbound({*observer.codes}):
            if made := sorted(names & scope.keys()):
                raise NotReplayable(f"makes the global {made[0]!r}")
        for seen in self.kept.values():
            if seen.before.kind == "opaque":
                raise NotReplayable(f"depends on {describe(seen)}, which Python cannot look into")

    def _check_script(self) -> str | None:
        """Return what code may read of the script's numbers otherwise: they are no part of guards."""
        self.strict = False
        if self.script.free:
            return None
        names: set[str] = set()
        for code in self.observer.codes:
            names.update(code.co_names, (c for c in code.co_consts if isinstance(c, str)))
        groups = [c for c in self.script.reads.values() if "params" in c]
        states = len(groups) < len(self.script.reads)
        if self.script.reads and ("state_dict" in names or ("state" in names and states)):
            return "looks at the state of an optimizer, which changes at each step"
        for owner in self.script.owners:
            own = {n for n, v in getattr(owner, "__dict__", {}).items() if type(v) in (int, float)}
            if own & names:
                return f"reads {min(own & names)!r} of a schedule, which changes at each step"
        self.strict = not names.isdisjoint(("param_groups", *SCHEDULED)) or self._holds(groups)
        if self.strict and self.script.owners and groups:
            return "looks into param_groups, which a schedule may change at each step"
        return self.script.told

    def _holds(self, groups: Sequence[Any]) -> bool:
        """Return whether anything but optimizers holds one of ``groups`` or a list of them."""
        own = {id(group) for group in groups}
        every = [s.thing for s in self.kept.values() if type(s.thing) is list]
        lists = {id(x) for x in every if own & {*map(id, x)}}
        held = [c for s in self.kept.values() if not isinstance(s.thing, Optimizer) for _, c in s.parts]
        held += [g.seen for g in self.used] + [seen for _, seen in self.reach.given]
        things = [id(s.thing) for s in held if s is not None]
        return not lists.isdisjoint(things) or any(things.count(k) > 1 for k in own)

    def _loosen(self, changes: Changes) -> None:
        """Let tensors that the run replaces in containers be found there, whichever they are."""
        for seen, part, _ in changes.slots:
            child = self.kept.get(id(part.value))
            uses = sum(c is child for s in self.kept.values() for _, c in s.parts)
            if child is None or uses != 1 or any(g.seen is child for g in self.reach.globals):
                raise NotReplayable(
                    f"replaces {label(part)} of {describe(seen)}, which is known elsewhere too"
                )
            self._free(child, self.reach.access(seen, part))
        for seen in changes.grads:
            before = seen.before.state.grad
            child = self.kept.get(id(before)) if before is not None else None
            if child is not None:
                child.fixed, child.at = False, f"{seen.at}._node.grad"
        self._loosen_gradients()
        self._loosen_state()
        for found, _ in changes.names:
            child = found.seen
            uses = sum(c is child for s in self.kept.values() for _, c in s.parts)
            if child is None or uses or any(g.seen is child and g is not found for g in self.reach.globals):
                raise NotReplayable(f"assigns the global {found.name!r}, which is known elsewhere too")
            self._free(child, self._global(found))

    def _loosen_gradients(self) -> None:
        """Let gradients that the run only reads be found at their tensors: each backward makes others."""
        held = Counter(id(c) for s in self.kept.values() for _, c in s.parts)
        held.update(id(g.seen) for g in self.reach.globals)
        for seen in self.kept.values():
            state = seen.before.state
            child = self.kept.get(id(state.grad)) if isinstance(state, TensorState) else None
            if child is not None and child.fixed and held[id(child)] == 1:
                child.fixed, child.at = False, f"{seen.at}._node.grad"

    def _loosen_state(self) -> None:
        """Let tensors in the place of which captures have found others be found there, whichever they are."""
        for place, at, seen in self.reach.homes():
            alone = all(child is None for _, child in seen.parts)
            if place in self.reach.replaced and id(seen.thing) in self.kept and alone:
                seen.fixed, seen.at = False, at

    def _free(self, child: Seen, at: str) -> None:
        """Let an object be found where the code ``at`` finds one, and what it holds in it."""
        child.fixed, child.at = False, at
        for part, seen in child.parts:
            if seen is not None:
                if sum(c is seen for s in self.kept.values() for _, c in s.parts) != 1:
                    raise NotReplayable(
                        f"replaces {label(part)} of {describe(child)}, which is known elsewhere"
                    )
                self._free(seen, self.reach.access(child, part))

    def _input(self, feed: Feed) -> str:
        """Return the code of an input's value."""
        if type(feed.source) is Number:
            return feed.source.name
        if type(feed.source) is Transfer:
            return "None"  # until it is carried
        return feed.source if isinstance(feed.source, str) else self._old(feed.value)

    def _old(self, value: Any) -> str:
        """Return the code of a value that was there before, or that was made of constants."""
        homes = self._homes.get(id(value), [])
        for other in homes[1:]:
            self.guards.add(f"{homes[0].at}._value is {other.at}._value", "tensors that hold the same value")
        return f"{homes[0].at}._value" if homes else self.reach.name(value)

    def _output(self, x: Tensor) -> str:
        """Return the code of the value that a tensor holds after the run."""
        value = x._value
        known = value if type(value) is not Pending else value.value  # of an argument whose lengths are open
        if known is not None:
            self._passed.add(id(known))
            return self._old(known)
        spot = (x.device, value.place) if self._several else value.place
        if spot not in self.outputs:
            self.outputs.append(spot)
        return f"o[{self.outputs.index(spot)}]"

    def _shared(self, x: Tensor) -> str | None:
        """Return the code of the history of ``x`` where a tensor that was there has the same: of a clone."""
        homes = self._histories.get(id(x._node), []) if x._node is not None else []
        for other in homes[1:]:
            self.guards.add(f"{homes[0].at}._node is {other.at}._node", "tensors that share a history")
        if any(seen.before.state.node is not x._node for seen in homes):
            raise NotReplayable(f"shares what it makes of {describe(homes[0])} with another tensor")
        return f"{homes[0].at}._node" if homes else None

    def _program(self, recordings: Sequence[Recording], changes: Changes) -> Any:
        """Return what runs: in place where it may, if it is of one device."""
        if self._several:
            return Staged(self.recorder.recordings, self.outputs, self.recorder.program)
        replaces = self._replaces(recordings[0], changes)
        return program(recordings[0], self.outputs, self.recorder.mode, replaces=replaces)

    def _effects(self, changes: Changes) -> list[str]:
        lines = [f"{seen.at}._value = {self._output(seen.thing)}" for seen in changes.cells]
        lines += [f"{seen.at}._node = Leaf()" for seen in changes.leaves]
        lines += [f"{s.at}._node.grad = {self.answer.build(s.thing._node.grad)}" for s in changes.grads]
        lines += [self._put(s, part, self.answer.build(x)) for s, part, x in changes.slots]
        lines += [self._put(s, part, repr(value)) for s, part, value in changes.flags]
        lines += ["structure[0] += 1"] * bool(changes.flags)  # which guards that are counted rely on
        lines += [f"{self._global(found)} = {self.answer.build(x)}" for found, x in changes.names]
        for held in self.script.held.values():
            if held.changed:
                lines.append(held.assigned(self._number(held.now)))
        for grown in self.script.grown.values():
            lines += [f"{grown.name}.append({self.answer.build(x)})" for x in grown.items]
        return [*lines, *[self.answer.fill(s, FILLED.get(type(s.thing), "")) for s in changes.contents]]

    def _put(self, seen: Seen, part: Part, text: str) -> str:
        """Return the code that puts something in a place."""
        if isinstance(seen.thing, type) and isinstance(part.key, tuple):  # whose dictionary cannot be written
            return f"type.__setattr__({seen.at}, {part.key[1]!r}, {text})"
        return f"{self.reach.access(seen, part)} = {text}"

    def _number(self, x: Any) -> str:
        """Return the code of what a place has come to hold."""
        if type(x) not in (Number, Length, int, float):
            raise NotReplayable(f"puts a {type(x).__name__} in the place of a number")
        return self.answer.build(x)

    def _global(self, found: Global) -> str:
        return f"{self.reach.name(found.scope)}[{found.name!r}]"

    def _released(self, changes: Changes, code: Sequence[str]) -> list[str]:
        """Return the code that lets go, before the run, of gradients that it replaces and nobody reads.

        Their memory serves the new ones then. A run that fails leaves none behind, as ``zero_grad`` does.
        """
        held = [
            f"{seen.at}._node.grad" for seen in changes.grads
            if seen.before.state.grad is not None or id(seen.thing) in self.forgotten
        ]  # fmt: skip
        used = "\n".join([line.partition(" = ")[2] or line for line in code])
        return [f"{at} = None" for at in held if at not in used]

    def _history(self, recordings: Sequence[Recording]) -> list[str]:
        """Return the code that gives the results that have a history a compiled one."""
        gone = [name for x, name in self.answer.tracked if is_spent(x)]
        tracked = [(x, name) for x, name in self.answer.tracked if name not in gone]
        lines = [f"{name}._node = spent()" for name in gone]
        if not tracked:
            return lines
        if self._several:
            raise NotReplayable("returns a tensor with a history that crosses devices")
        (recording,), results = recordings, [x for x, _ in tracked]
        given = []
        for k, feed in enumerate(recording.feeds):
            homes = self._homes.get(id(feed.value), []) if isinstance(feed.source, Tensor) else []
            nodes = [s for s in homes if s.before.state.node is not None]
            if len({id(s.before.state.node) for s in nodes}) > 1:
                raise NotReplayable("is given one value with two histories")
            if nodes:
                given.append((k, nodes[0].before.state.node, f"{nodes[0].at}._node"))
        ends = {id(node) for _, node, _ in given}
        reached = {id(node) for node in autograd._reached([x._node for x in results], ends)}
        parents = [(k, node, at) for k, node, at in given if id(node) in reached]
        made = derive(self.recorder, recording, results, [(k, node) for k, node, _ in parents], self.outputs)
        names, tops = ", ".join(name for _, name in tracked), ", ".join(at for _, _, at in parents)
        sizes = _sizes(self.recorder)
        return [*lines, f"attach({self.reach.name(made)}, v, o, ({tops},), [{names}], {sizes})"]

    def _replaces(self, recording: Recording, changes: Changes) -> dict[int, int]:
        """Return which outputs take the place of which inputs in their cells.

        An input whose old value somebody gets, or that the history of a result keeps, stays as it is.
        """
        if any(not is_spent(x) for x, _ in self.answer.tracked):
            return {}
        place = _numbers(recording)
        found: dict[int, int] = {}
        for seen in changes.cells:
            value, k = seen.thing._value, place.get(id(seen.before.state.value))
            if k is None or k in found.values() or id(seen.before.state.value) in self._passed:
                continue
            if type(value) is Pending:
                found.setdefault(self.outputs.index(value.place), k)
        return found

    def _before(self, recording: Recording, changes: Changes) -> dict[int, int]:
        """Return of the places of new values which input, by number, holds the old one."""
        numbers = _numbers(recording)
        return {
            seen.thing._value.place: numbers[id(seen.before.state.value)]
            for seen in changes.cells
            if type(seen.thing._value) is Pending and id(seen.before.state.value) in numbers
        }

    def _made(self, body: Sequence[str], answer: str, ready: Ready | None) -> Replay:
        lines = [f"    {line}" for line in body]
        source = "\n".join([*self.guards.head(), *lines, f"    return {answer}"]) + "\n"
        code = compile(source, "<replay>", "exec")  # while the device may still be compiling
        counted = self.guards.counted()
        named = {
            *re.findall(r"\w+", source + counted)
        }  # what nobody names, old gradients say, is not kept for nothing
        constants = {k: v for k, v in self.reach.constants.items() if k in named}
        scope: dict[str, Any] = {
            **AMBIENT, **constants, **self.script.constants, "MISS": MISS, "FAILED": FAILED, "Tensor": Tensor,
            "structure": structure, "checked": [self.reach.structure], "remake": remake, "store": store,
            "attach": attach, "spent": spent, "ValuesError": ValuesError,
        }  # fmt: skip
        if ready is not None and isinstance(ready.program, Family):
            scope.update(family=ready.program)
        elif ready is not None and isinstance(ready.program, Staged):
            scope.update(run=ready.program)
        elif ready is not None and isinstance(ready.program, Program):
            scope.update(run=ready.program.run, lock=ready.program.lock)
        scope["unchanged"] = Unchanged(counted, scope)
        exec(code, scope)
        guards = tuple(self.guards.guards)
        return Replay(
            run=scope["replay"],
            guards=guards,
            ready=ready,
            source=source + counted,
            scope=scope,
            lengths=self.recorder.lengths,
        )


def _numbers(recording: Recording) -> dict[int, int]:
    """Return which input each value of a tensor is, by id."""
    return {id(feed.value): k for k, feed in enumerate(recording.feeds) if isinstance(feed.source, Tensor)}


def _sizes(recorder: Recorder) -> str:
    return "{" + ", ".join(f"{name!r}: {name}" for name in recorder.lengths.symbols) + "}"
