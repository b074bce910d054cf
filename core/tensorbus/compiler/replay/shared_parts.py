"""Parts of values: those that more than one tensor has, of whose memory a run writes over none, and the rest.

What a run replaces it writes over where nobody else refers to it, which is what Python counts. Of a value of
parts, as that of a distributed tensor, the value and the parts may be shared as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from sys import getrefcount
from types import SimpleNamespace
from typing import Any, Final

from ...autograd.view_changes import assign, separate
from ...autograd.views import family_of, no_views
from ...dispatch.modes import CompositeValue
from ...tensor.tensor import Tensor, lent, wrap
from ..state.reachable import TrackedObject


def _references(x: Any) -> int:
    """Return how many references there are to the value of a tensor, or to the part that has the most."""
    value = x._value
    most = getrefcount(value)
    for name in value.PARTS:
        part = getattr(value, name)
        most = max(most, getrefcount(part))
    return most


def _counts(objects: Iterable[Any], of: Callable[[Any], Any]) -> list[int]:
    """Return how many references there are to what ``of`` takes from each object."""
    return [*map(getrefcount, map(of, objects))]


_VALUE, _KIND = attrgetter("_value"), attrgetter("_value.__class__")
_TENSOR: Final = SimpleNamespace(_value=SimpleNamespace(PARTS=("part",), part=SimpleNamespace()))
_UNSHARED: Final = _references(_TENSOR)
_UNSHARED_COUNT: Final = _counts([_TENSOR], _VALUE)[0]


def shared_parts(tensors: Sequence[Any]) -> list[Any]:
    """Return what the parts of those tensors hold whose values others refer to; held, it is not alone.

    >>> from types import SimpleNamespace as Value
    >>> x = Value(_value=Value(PARTS=("part",), part=Value(_value="elements")))
    >>> shared_parts([x])
    []
    >>> part = x._value.part
    >>> shared_parts([x])
    ['elements']
    """
    alone = [_UNSHARED_COUNT] * len(tensors)
    if len({*map(_KIND, tensors)}) == 1 and _counts(tensors, _VALUE) == alone:
        ways = [attrgetter(f"_value.{name}") for name in tensors[0]._value.PARTS]
        if all(_counts(tensors, way) == alone for way in ways):
            return []
    return [
        getattr(x._value, name)._value
        for x in tensors if _references(x) > _UNSHARED
        for name in x._value.PARTS
    ]  # fmt: skip


def put_parts(
    tensors: Sequence[Any], values: Sequence[Any], shared: Sequence[Any] | None, number: int, by: str
) -> None:
    """Put values into the parts of tensors, whose values have one each.

    ``shared`` is what ``shared_parts`` says of them, None where it was not asked: where nobody else refers to
    a value of parts, or to a part, it stays, and the part takes the value. Else a tensor gets another value,
    of another part, and so does what shows it: ``number`` and ``by`` are what is noted of that.
    """
    part_of = attrgetter(f"_value.{tensors[0]._value.PARTS[0]}")
    parts = [*map(part_of, tensors)]
    if shared is not None and not shared and _are_alone([*tensors, *parts]):
        for part, value in zip(parts, values, strict=True):
            part._value = value
        return
    new = [wrap(value, part._vtype) for part, value in zip(parts, values, strict=True)]
    if lent:
        separate(new)
    assign([(x, x._value.rebuilt(part)) for x, part in zip(tensors, new, strict=True)], number, by)


def _are_alone(tensors: Sequence[Tensor]) -> bool:
    """Return whether no other tensor shows elements of these, and none has lent its memory."""
    return no_views() or not (lent or any(map(family_of, tensors)))


def by_parts(
    changed: Sequence[TrackedObject],
) -> tuple[list[tuple[TrackedObject, Tensor]], list[TrackedObject]]:
    """Return the tensors that ``put_parts`` makes what they are now, with those parts; and the others."""
    parts: list[tuple[TrackedObject, Tensor]] = []
    wholes: list[TrackedObject] = []
    for tracked in changed:
        x, old = tracked.obj, tracked.before.state.value
        if _differs_by_part(x, old) and (not parts or type(old) is type(parts[0][0].obj._value)):
            parts.append((tracked, getattr(x._value, old.PARTS[0])))
        else:
            wholes.append(tracked)
    return parts, wholes


def _differs_by_part(x: Tensor, old: Any) -> bool:
    """Return whether a tensor, whose value was ``old``, has another value in its one part and the same frame.

    Nobody else refers to its value, or to the part.
    """
    if not isinstance(x._value, CompositeValue) or type(x._value) is not type(old) or len(old.PARTS) != 1:
        return False
    (name,) = old.PARTS
    if _counts([x], _VALUE) + _counts([x], attrgetter(f"_value.{name}")) != [_UNSHARED_COUNT] * 2:
        return False
    before, now = getattr(old, name), getattr(x._value, name)
    return (
        getattr(old, old.FRAME) is getattr(x._value, old.FRAME) and before._vtype is now._vtype.materialized
        and type(before) is type(now) is Tensor and before._node is now._node is None
    )  # fmt: skip
