"""What a run changed of the state that it could reach, as far as generated code can change it again."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from ...tensor.leaf import detached_in
from ...tensor.tensor import Leaf, Tensor
from ...tracing.host_script import Script
from .class_layout import writes_itself
from .object_view import Keyed, Look, NotReplayable, Part, Settling, TensorState, look
from .reachable import Global, Reach, Seen
from .value_identity import is_plain, mark

FILLED: Final[dict[type, str]] = {
    list: "{at}[:] = ({all})", deque: "{at}.clear(); {at}.extend(({all}))",
    dict: "{at}.clear(); {at}.update(({pairs}))", OrderedDict: "{at}.clear(); {at}.update(({pairs}))",
    defaultdict: "{at}.clear(); {at}.update(({pairs}))",
    Counter: "{at}.clear(); {at}.update(dict(({pairs})))", set: "{at}.clear(); {at}.update({set})",
}  # fmt: skip
"""How containers of a type are given other contents."""


class CacheInfo(NamedTuple):
    """What ``cache_info`` of a function with a cache says."""

    hits: int
    misses: int
    maxsize: int | None
    currsize: int


@dataclass(slots=True)
class Changes:
    """``cells`` hold other values, ``grads`` other gradients; ``slots`` of containers hold other tensors.

    Or tuples and such of tensors, as ``names`` do, which are globals. ``contents`` are arguments, and what
    lies behind them, that hold other things in any way, ``leaves`` those that ask for a gradient now.
    ``flags`` are True that were False, or the reverse; what finds them so is another program. The others
    make the next run another: ``numbers`` at places and ``counters``, globals, that became others, lists
    that have ``grown``, and ``rates``: what code read of the script's state. ``why`` says it of the first.
    """

    cells: list[Seen] = field(default_factory=list)
    grads: list[Seen] = field(default_factory=list)
    slots: list[tuple[Seen, Part, Any]] = field(default_factory=list)
    contents: list[Seen] = field(default_factory=list)
    flags: list[tuple[Seen, Part, bool]] = field(default_factory=list)
    names: list[tuple[Global, Any]] = field(default_factory=list)
    leaves: list[Seen] = field(default_factory=list)
    numbers: list[tuple[Seen, Part]] = field(default_factory=list)
    counters: list[Global] = field(default_factory=list)
    grown: list[Seen] = field(default_factory=list)
    rates: str | None = None
    why: str | None = None

    def goes_on(self, why: str) -> None:
        """Note why the next run is another."""
        self.why = self.why or why


class Moving(NotReplayable):
    """The next run is another; ``changes`` say in what."""

    def __init__(self, changes: Changes) -> None:
        super().__init__(changes.rates or changes.why)
        self.changes = changes


def find(
    reach: Reach, kept: Iterable[Seen], names: Iterable[Global], script: Script, forgotten: Container[int]
) -> Changes:
    """Compare everything kept with what it was. Raises ``NotReplayable`` for a change of another kind.

    ``forgotten`` are the ids of tensors whose gradients are written over, whatever they were.
    """
    changes = Changes()
    for seen in kept:
        after = look(seen.thing, reach.names)
        if isinstance(seen.before.state, TensorState):
            _tensor(seen, seen.before.state, after.state, changes)
            if detached_in(seen.thing, script):
                raise NotReplayable(f"leaves a gradient at {describe(seen)}, which requires none")
            if id(seen.thing) in forgotten and after.state.grad is None:
                changes.grads.append(seen)
        elif after.kind != seen.before.kind:
            raise NotReplayable(f"changes {describe(seen)}")
        elif id(seen.thing) in script.grown:
            continue
        elif after.state != seen.before.state and can_be_filled(seen, script):
            changes.contents.append(seen)
        elif after.state != seen.before.state and _grows(seen):
            changes.grown.append(seen)
            changes.goes_on(f"adds to {describe(seen)}")
        elif after.state != seen.before.state:
            if seen.before.kind == "cache":
                _cache(seen, CacheInfo(*seen.before.state[0]), CacheInfo(*after.state[0]))
            _container(reach, seen, {part.key: part for part in after.parts}, changes, script)
    for name in names:
        now = name.scope.get(name.name)
        if now is name.value:
            continue
        if _is_tree(now) and type(now) is type(name.value) and _is_tree(name.value):
            changes.names.append((name, now))
        elif _is_step(name.value, now):
            changes.counters.append(name)
            changes.goes_on(f"assigns the global {name.name!r}")
        else:
            raise NotReplayable(f"assigns the global {name.name!r}")
    return changes


def _tensor(seen: Seen, before: TensorState, after: TensorState, changes: Changes) -> None:
    if after.vtype is not before.vtype or after.hooks != before.hooks:
        raise NotReplayable(f"changes the dtype, the device or the hooks of {describe(seen)}")
    if before.node is None and type(after.node) is Leaf and not seen.fixed:
        changes.leaves.append(seen)
    elif after.node is not before.node:
        raise NotReplayable(f"changes the history of {describe(seen)}")
    if after.value is not before.value:
        if before.node is not None and not isinstance(before.node, Leaf):
            raise NotReplayable(f"changes {describe(seen)}, which has a history")
        changes.cells.append(seen)
    if after.grad is not before.grad:
        changes.grads.append(seen)


def _cache(seen: Seen, before: CacheInfo, after: CacheInfo) -> None:
    if (before.misses, before.currsize) != (after.misses, after.currsize):
        raise Settling(f"computes what {describe(seen)} keeps")
    if after.hits != before.hits and after.currsize == after.maxsize:
        raise NotReplayable(f"asks {describe(seen)} that is full, and forgets by what was asked for last")


def _container(reach: Reach, seen: Seen, now: dict[Any, Part], changes: Changes, script: Script) -> None:
    if seen.before.kind == "set":
        raise NotReplayable(f"changes {describe(seen)}")
    if seen.before.kind in ("sequence", "mapping") and writes_itself(seen.thing):
        raise NotReplayable(f"changes {describe(seen)}, whose class says itself what that does")
    keys = [part.key for part in now.values()]
    if seen.before.kind == "mapping" and [part.key for part, _ in seen.parts if part.key in now] != [
        key for key in keys if any(part.key == key for part, _ in seen.parts)
    ]:
        raise NotReplayable(f"changes the order of {describe(seen)}")
    for old, _ in seen.parts:
        new = now.pop(old.key, None)
        if new is None and is_of_script(script, seen, old):
            continue
        if new is None:
            raise NotReplayable(f"takes {label(old)} out of {describe(seen)}")
        if new.value is old.value or (is_of_script(script, seen, old) and not _is_rate(script, seen)):
            continue
        if _is_tree(new.value) and type(old.value) is type(new.value) and _is_tree(old.value):
            changes.slots.append((seen, old, new.value))
        elif type(old.value) is bool and type(new.value) is bool:
            changes.flags.append((seen, old, new.value))
        elif _is_step(old.value, new.value):
            changes.numbers.append((seen, old))
            changes.goes_on(f"changes {label(old)} of {describe(seen)}")
        elif _differ(old.value, new.value):
            raise NotReplayable(f"changes {label(old)} of {describe(seen)}")
    for new in now.values():
        if not is_of_script(script, seen, new):
            raise NotReplayable(f"adds {label(new)} to {describe(seen)}")


def _is_rate(script: Script, seen: Seen) -> bool:
    """Return whether an entry of ``seen`` is one that the script only reads, so that others changed it."""
    return isinstance(seen.thing, dict) and "params" in seen.thing and not script.owners


def can_be_filled(seen: Seen, script: Script) -> bool:
    """Return whether generated code can give an object of the caller's, of any call, what it is to hold.

    One that is the same at each call would be found changed by the next: Python serves that better.
    """
    if seen.fixed or any(is_of_script(script, seen, part) for part, _ in seen.parts):
        return False
    return seen.before.kind == "instance" or type(seen.thing) in FILLED


def holds_alike(seen: Seen, now: Look) -> bool:
    """Return whether an object holds what it did, but for other tensors: another run finds no difference."""
    if [part.key for part, _ in seen.parts] != [part.key for part in now.parts]:
        return False
    pairs = [(old.value, new.value) for (old, _), new in zip(seen.parts, now.parts, strict=True)]
    return all(a is b or (type(a) is type(b) and _is_tree(a) and _is_tree(b)) for a, b in pairs)


def _is_tree(x: Any) -> bool:
    """Return whether ``x`` is a tensor, or a tuple, list or dict that holds tensors and nothing else."""
    if type(x) is Tensor:
        return True
    parts = x.values() if type(x) is dict else x if type(x) in (tuple, list) else ()
    return bool(parts) and all(map(_is_tree, parts))


def _grows(seen: Seen) -> bool:
    """Return whether a list or queue has more entries than it had; others, where their number is limited."""
    thing, known = seen.thing, seen.parts
    if type(thing) is deque and thing.maxlen is not None:
        return seen.fixed
    return seen.fixed and type(thing) in (list, deque) and len(thing) > len(known)


def _is_step(old: Any, new: Any) -> bool:
    """Return whether a number took the place of another."""
    return type(old) in (int, float) and type(new) is type(old) and repr(old) != repr(new)


def _differ(old: Any, new: Any) -> bool:
    return bool(mark(old) != mark(new))


def is_of_script(script: Script, seen: Seen, part: Part) -> bool:
    """Return whether an entry is a number that the script reads or writes."""
    if (id(seen.thing), part.key) in script.held:
        return True
    return isinstance(part.access, Keyed) and (id(seen.thing), part.access.key) in script.reads


def describe(seen: Seen) -> str:
    """Return what an object is called in messages."""
    thing = seen.thing
    if isinstance(thing, ModuleType):
        return f"module {thing.__name__}"
    if isinstance(thing, (type, FunctionType)):
        kind = f"{'class' if isinstance(thing, type) else 'function'} {thing.__qualname__}"
        return kind if seen.fixed else f"argument {seen.at} ({kind})"
    kind = "cache" if seen.before.kind == "cache" else type(thing).__name__
    return f"a {kind}" if seen.fixed else f"argument {seen.at} ({kind})"


def label(part: Part) -> str:
    """Return what a part is called in messages."""
    if isinstance(part.access, Keyed):
        key = part.access.key
        return f"entry {key!r}" if is_plain(key) else f"an entry for a {type(key).__name__}"
    if isinstance(part.key, tuple) and part.key[0] in ("attribute", "slot"):
        return f"attribute {part.key[1]!r}"
    return part.access.strip(".")
