"""Writes to what derivatives need: an error in the backward pass, where it is one in PyTorch.

A node has the values that its derivative needs, which never change. Which tensors they were saved from is
told by the histories of the operands; of an operand without one the node has the tensor. A change in place
leaves its number and name there, and a backward pass compares: where nothing was written since a node was
recorded that is one look at a number. Whether the derivative really reads what was written over is seen
only then, by following the value through the derivative's ops.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from weakref import ref

from ..devices.device import ValueType
from ..dispatch.modes import Mode
from ..dispatch.plan import Plan, new_cache
from ..dtypes.definition import bool_
from ..errors import AutogradError
from ..ops.creation.creation import full
from ..ops.definition import Op
from ..ops.elementwise.where_cast import where
from ..tensor import leaf
from ..tensor.grad_mode import GradMode
from ..tensor.leaf import Leaf
from ..tensor.tensor import Tensor, wrap_settled

Write = tuple[int, str]
"""A change in place: histories up to this number saw what stood there before, and what it was done by."""
last_write: Final = [0]
"""The number of the last change of anything."""
last_tracked_write: Final = [0]
"""The number of the last change of a tensor that had a history."""
_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_clocks: Final[dict[int, list[ref[WriteClock]]]] = {}
"""Those of the calls that write to a tensor, or to that of a leaf, by its id."""
alias: Final[Any] = Op(
    name="alias", family="alias", operands=("x",), arguments=lambda x, /: ((x,), {}),
    infer=lambda specs: specs[0], vjp=lambda g: (g,), dtypes=(),
)  # fmt: skip
"""What stands in a history where a tensor of its own begins that has the value of another."""
_plans: Final[dict[Any, Plan]] = new_cache()


def alias_plan(kind: ValueType) -> Plan:
    """Return the plan by which an alias is recorded."""
    plan = _plans.get(kind)
    if plan is None:
        plan = _plans[kind] = Plan(op=alias, operands=(kind,), run=None, out=kind, casts=(None,), attrs={})
    return plan


def note_write(x: Tensor, history: Any, number: int, by: str) -> None:
    """Note that ``x``, which had this history, was changed in place by what ``by`` names."""
    write = x._written = (number, by)
    if number > last_write[0]:
        last_write[0] = number
    if history is None:
        known = leaf._detached.get(id(x)) if leaf._detached else None
        if known is None or known[0]() is not x:
            return
        history = known[1]
    if number > last_tracked_write[0]:
        last_tracked_write[0] = number
    at = history if type(history) is Leaf else owner(history)
    if isinstance(at, Leaf) or hasattr(at, "plan"):
        at.written = write
    else:  # one result of several
        (whole,) = at.parents
        whole.written = {**(getattr(whole, "written", None) or {}), at.place: write}


def owner(history: Any, ends: Container[int] = ()) -> Any:
    """Return the history of what a tensor with ``history`` is a view of, no further than ids in ``ends``."""
    while (plan := getattr(history, "plan", None)) is not None and plan.op.view is not None:
        if id(history) in ends:
            break
        (history, *_) = history.parents
    return history


def last_write_to(history: Any) -> Write | None:
    """Return the last change of a tensor with this history, or of what it is a view of."""
    at = owner(history)
    if isinstance(at, Leaf):
        return _latest(at, at.written)
    return last_write_to_result(at) if hasattr(at, "plan") else last_write_to_result(*_part(at))


def last_write_to_result(node: Any, place: int = 0) -> Write | None:
    """Return the last change of the result of a node, or of one of several."""
    written = getattr(node, "written", None)
    write: Write | None = written.get(place) if isinstance(written, dict) else written
    return write


def _part(part: Any) -> tuple[Any, int]:
    return part.parents[0], part.place


def forget_own(node: Any, x: Tensor, since: int) -> None:
    """Let a change of ``x`` that led to ``node`` not keep ``x``, which holds its result: it has the value."""
    stack, seen = [node], set[int]()
    while stack:
        node = stack.pop()
        if node is None or isinstance(node, Leaf) or id(node) in seen or node.order <= since:
            continue
        seen.add(id(node))
        saved = getattr(node, "saved", None)
        if saved is x:
            node.saved = None
        elif type(saved) is tuple:
            node.saved = tuple([None if y is x else y for y in saved])
        stack.extend(node.parents)


def keep_operands(node: Any, operands: Sequence[Any], untracked: Container[int] = ()) -> None:
    """Fill in what a node holds of its operands, whatever they are.

    Nobody looks for writes to those at the places ``untracked``.
    """
    shapes, values, parents = [], [], []
    saved: Any = None
    is_tracked = False
    for place, (x, keep) in enumerate(zip(operands, node.plan.keeps, strict=True)):
        if isinstance(x, Tensor):
            value = x._value
            shapes.append(value.shape)
            values.append(value if keep else None)
            parents.append(x._node)
            if keep and x._node is None:
                is_tracked = is_tracked or place not in untracked
                saved = x if saved is None else (*(saved if type(saved) is tuple else (saved,)), x)
        else:
            shapes.append(())
            values.append(x)
            parents.append(None)
    node.shapes, node.values, node.parents = tuple(shapes), tuple(values), tuple(parents)
    node.saved = saved if is_tracked else None


def is_touched(node: Any) -> bool:
    """Return whether anything was written since ``node`` was recorded that it may have saved."""
    number: int = node.order
    return number <= last_tracked_write[0] or (number <= last_write[0] and node.saved is not None)


def saved_tensors(node: Any) -> dict[int, Tensor]:
    """Return the operands without a history that a node saved values from, by place."""
    if node.saved is None:
        return {}
    saved = node.saved if type(node.saved) is tuple else (node.saved,)
    pairs = enumerate(zip(node.values, node.plan.operands, node.parents, strict=True))
    places = [
        place for place, (value, kind, parent) in pairs
        if parent is None and value is not None and isinstance(kind, ValueType)
    ]  # fmt: skip
    return {place: x for place, x in zip(places, saved, strict=True) if x is not None}


def overwritten(node: Any) -> list[tuple[int | str, Write]]:
    """Return which of what a recorded op saved was written over since: an operand's place, or ``out``."""
    plan, number = node.plan, node.order
    hits: list[tuple[int | str, Write]] = []
    untracked = saved_tensors(node)
    saved = zip(node.values, plan.operands, node.parents, strict=True)
    for place, (value, kind, parent) in enumerate(saved):
        if value is None or not isinstance(kind, ValueType) or may_overwrite(node, place):
            continue
        x = untracked.get(place)
        write = last_write_to(parent) if parent is not None else last_write_to_tensor(x)
        if write is not None and write[0] >= number:
            hits.append((place, write))
    if plan.keeps_out and not may_overwrite(node, "out"):
        written = getattr(node, "written", None)
        latest = max(written.values(), default=None) if isinstance(written, dict) else written
        if latest is not None and latest[0] >= number:
            hits.append(("out", latest))
    return hits


def may_overwrite(node: Any, which: int | str) -> bool:
    """Return whether the tensor of an operand, or ``out``, may be written to although it is saved."""
    op = node.plan.op
    names = op.may_overwrite(node.shapes) if callable(op.may_overwrite) else op.may_overwrite
    return (
        bool(names)
        and (which if isinstance(which, str) else op.operands[min(which, len(op.operands) - 1)]) in names
    )


class _Reading(Mode):
    """Follows a value through ops: ``knows`` says whether a tensor was computed from it."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._values = {id(value): value for value in values}

    def knows(self, x: Any) -> bool:
        """Return whether a tensor holds what was computed from the value."""
        return isinstance(x, Tensor) and id(x._value) in self._values

    def apply(self, op: Op[...], operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Run the op below, and see whether an operand is known."""
        result = self.below(op, operands, attrs)
        if any(map(self.knows, operands)):
            several = result if isinstance(result, tuple) else (result,)
            self._values.update({id(x._value): x._value for x in several if isinstance(x, Tensor)})
        return result


def gradients_unless_overwritten(
    node: Any, useful: Sequence[bool], derive: Callable[[], list[Any]]
) -> list[Any] | None:
    """Return what ``derive`` gives, or None where nothing that ``node`` saved was written over since.

    Raises ``AutogradError`` where a gradient that is ``useful`` is computed from such a value.
    """
    grads: list[Any] | None = None
    hits = overwritten(node)
    for which, (_, by) in hits:
        read, grads = reads(node, which, useful, derive, {each for each, _ in hits})
        if read:
            shapes = node.shapes if which != "out" else (getattr(node.out, "shape", ()),)
            raise AutogradError(message_of(node.plan, shapes, which, by))
    return grads


def reads(
    node: Any, which: int | str, useful: Sequence[bool], derive: Callable[[], list[Any]],
    hits: Container[int | str] = (),
) -> tuple[bool, list[Any]]:  # fmt: skip
    """Return whether a ``useful`` gradient that ``derive`` gives is computed from what was saved, and all.

    ``hits`` are the places of all that was written over.
    """
    with _apart(node, which, hits) as values, _Reading(values) as reading:
        grads = derive()
    return any(reading.knows(g) for g, wanted in zip(grads, useful, strict=True) if wanted), grads


@contextmanager
def _apart(node: Any, which: Any, hits: Container[Any]) -> Iterator[tuple[Any, ...]]:
    """Let a value that a node saved be told from equal ones that it saved from other tensors; yield it."""
    values, out = node.values, node.out if isinstance(node.out, tuple) else (node.out,)
    if which == "out":
        yield out
        return
    value = values[which]
    shared = any(x is value and k not in hits for k, x in enumerate(values))
    if not shared and ("out" in hits or not any(x is value for x in out)):
        yield (value,)
        return
    with GradMode(False):
        x = wrap_settled(value, node.plan.operands[which])
        own = where(full((), True, dtype=bool_, device=x.device), x, x)._value
    node.values = (*values[:which], own, *values[which + 1 :])
    try:
        yield (own,)
    finally:
        node.values = values


def message_of(plan: Plan, shapes: Sequence[Any], which: Any, by: str) -> str:
    """Return what is wrong where ``by`` has written over an operand, or ``out``, that a derivative needs."""
    if which == "out":
        what = "its results" if plan.outs else f"its result, {described(plan.out, shapes[0])}"
    else:
        count = len(plan.operands)
        place = _ORDINALS[which] if which < len(_ORDINALS) else f"{which + 1}th"
        what = "its operand" if count == 1 else f"its {place} operand"
        what = f"{what}, {described(plan.operands[which], shapes[which])}"
    return message(f"{plan.op.name}'s derivative", what, by)


def described(kind: ValueType, shape: Any) -> str:
    """Return how a saved tensor is told of."""
    return f"a {kind.dtype} tensor of shape {shape}"


def message(who: str, what: str, by: str) -> str:
    """Return what is wrong where ``who`` needs what ``by`` has written over, and what to do."""
    return (
        f"backward: {who} needs {what}, which {by} has overwritten since. Change a copy (x.clone()), use"
        f" the op that is not in place, or write after backward()."
    )


class WriteClock:
    """The number of the last call of a compiled function that writes to the same tensors at each call."""

    __slots__ = ("__weakref__", "by", "number")

    def __init__(self, written: Iterable[Any]) -> None:
        """Stand for changes of tensors and leaves that live as long as this."""
        self.by, self.number = "a compiled function", 0
        for x in written:
            _clocks[id(x)] = [*_clocks.get(id(x), ()), ref(self, partial(_forget_clock, id(x)))]


def _forget_clock(key: int, clock: ref[WriteClock]) -> None:
    """Let go what stands for the clock of a call that is gone."""
    left = [other for other in _clocks.get(key, ()) if other is not clock]
    if left:
        _clocks[key] = left
    else:
        _clocks.pop(key, None)


def _latest(x: Any, write: Write | None) -> Write | None:
    """Return the last change of a tensor or leaf, which is ``write`` unless a compiled function made it."""
    for reference in _clocks.get(id(x), ()):
        clock = reference()
        if clock is not None and clock.number > (0 if write is None else write[0]):
            write = clock.number, clock.by
    return write


def last_write_to_tensor(x: Tensor | None) -> Write | None:
    """Return the last change of a tensor without a history."""
    return _latest(x, getattr(x, "_written", None))
