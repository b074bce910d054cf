"""What a run changed of the state that it could reach, as far as generated code can change it again."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from ..symbolic import Script
from ..tensor import Leaf, Tensor
from .looking import Keyed, NotReplayable, Part, TensorState, is_plain, look, mark
from .reach import Global, Reach, Seen

FILLED: Final[dict[type, str]] = {
    list: "{at}[:] = ({all})", deque: "{at}.clear(); {at}.extend(({all}))",
    dict: "{at}.clear(); {at}.update(({pairs}))", OrderedDict: "{at}.clear(); {at}.update(({pairs}))",
    defaultdict: "{at}.clear(); {at}.update(({pairs}))",
    Counter: "{at}.clear(); {at}.update(dict(({pairs})))", set: "{at}.clear(); {at}.update({set})",
}  # fmt: skip
"""How containers of a type are given other contents."""


@dataclass(slots=True)
class Changes:
    """``cells`` hold other values, ``grads`` other gradients; ``slots`` of containers hold new tensors.

    ``contents`` are arguments, and what lies behind them, that hold other things in any way; ``names`` are
    globals that stand for new tensors.
    """

    cells: list[Seen] = field(default_factory=list)
    grads: list[Seen] = field(default_factory=list)
    slots: list[tuple[Seen, Part, Tensor]] = field(default_factory=list)
    contents: list[Seen] = field(default_factory=list)
    names: list[tuple[Global, Tensor]] = field(default_factory=list)


def find(reach: Reach, kept: Iterable[Seen], names: Iterable[Global], script: Script) -> Changes:
    """Compare everything kept with what it was. Raises ``NotReplayable`` for a change of another kind."""
    changes = Changes()
    for seen in kept:
        after = look(seen.thing, reach.names)
        if isinstance(seen.before.state, TensorState):
            _tensor(seen, seen.before.state, after.state, changes)
        elif after.kind != seen.before.kind:
            raise NotReplayable(f"changes {describe(seen)}")
        elif after.state != seen.before.state and can_be_filled(seen, script):
            changes.contents.append(seen)
        elif after.state != seen.before.state:
            _container(reach, seen, {part.key: part for part in after.parts}, changes, script)
    for name in names:
        now = name.scope.get(name.name)
        if now is name.value:
            continue
        if type(now) is Tensor and type(name.value) is Tensor:
            changes.names.append((name, now))
        else:
            raise NotReplayable(f"assigns the global {name.name!r}")
    return changes


def _tensor(seen: Seen, before: TensorState, after: TensorState, changes: Changes) -> None:
    if after.vtype is not before.vtype or after.hooks != before.hooks:
        raise NotReplayable(f"changes the dtype, the device or the hooks of {describe(seen)}")
    if after.node is not before.node:
        raise NotReplayable(f"changes the history of {describe(seen)}")
    if after.value is not before.value:
        if before.node is not None and not isinstance(before.node, Leaf):
            raise NotReplayable(f"changes {describe(seen)}, which has a history")
        changes.cells.append(seen)
    if after.grad is not before.grad:
        changes.grads.append(seen)


def _container(reach: Reach, seen: Seen, now: dict[Any, Part], changes: Changes, script: Script) -> None:
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
            raise NotReplayable(f"takes {_place(old)} out of {describe(seen)}")
        if new.value is old.value or (is_of_script(script, seen, old) and not _is_rate(script, seen)):
            continue
        if type(new.value) is Tensor and type(old.value) is Tensor:
            changes.slots.append((seen, old, new.value))
        elif _differ(old.value, new.value):
            raise NotReplayable(f"changes {_place(old)} of {describe(seen)}")
    for new in now.values():
        if not is_of_script(script, seen, new):
            raise NotReplayable(f"adds {_place(new)} to {describe(seen)}")


def _is_rate(script: Script, seen: Seen) -> bool:
    """Return whether an entry of ``seen`` is one that the script only reads, so that others changed it."""
    return "params" in seen.thing and not script.owners


def can_be_filled(seen: Seen, script: Script) -> bool:
    """Return whether generated code can give an object of the caller's, of any call, what it is to hold.

    One that is the same at each call would be found changed by the next: Python serves that better.
    """
    if seen.fixed or any(is_of_script(script, seen, part) for part, _ in seen.parts):
        return False
    return seen.before.kind == "instance" or type(seen.thing) in FILLED


def _differ(old: Any, new: Any) -> bool:
    return bool(mark(old) != mark(new))


def is_of_script(script: Script, seen: Seen, part: Part) -> bool:
    """Return whether an entry is a number that the script reads or writes."""
    return isinstance(part.access, Keyed) and (id(seen.thing), part.access.key) in script.reads


def describe(seen: Seen) -> str:
    """Return what an object is called in messages."""
    kind = type(seen.thing).__name__
    return f"a {kind}" if seen.fixed else f"argument {seen.at} ({kind})"


def _place(part: Part) -> str:
    if isinstance(part.access, Keyed) and not is_plain(part.access.key):
        return f"an entry for a {type(part.access.key).__name__}"
    return f"entry {part.access.key!r}" if isinstance(part.access, Keyed) else f"{part.access.lstrip('.')}"
