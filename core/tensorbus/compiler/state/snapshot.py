"""Snapshots of objects, and their restoration: a dry run leaves no effects.

What ``inspect_object`` sees is restored: containers with their order, attributes, slots, cells, tensors,
globals.
"""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import _lru_cache_wrapper
from typing import Any, Final, TypeVar

from ...autograd.views import members
from ...errors import TensorbusError
from ...tensor.tensor import Leaf, Tensor
from ...tracing.lazy_value import LazyValue
from .inspection import inspect_object
from .object_view import KeyAccess, ObjectView, TensorState, Uncapturable
from .reachable import ReachableState

T = TypeVar("T")

DRY_RUN_ERRORS: Final = (
    Uncapturable, TensorbusError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError,
)  # fmt: skip
"""Errors by which a dry run ends where symbolic values do not do: then no symbolic program exists."""
_ABSENT: Final = object()


def run_dry(function: Callable[..., T], args: Iterable[Any], kwargs: Mapping[str, Any]) -> T:
    """Return what a function returns that has just been run, with symbolic values in the place of others.

    Raises ``Uncapturable`` where it raises anything: the first run did not, so what it minds is a symbolic
    value, as code does that asserts the type of a number.
    """
    try:
        return function(*args, **kwargs)
    except (Exception, SystemExit) as error:
        raise Uncapturable(f"raises {type(error).__name__} where a value is symbolic") from error


def can_be_taken_back(reach: ReachableState) -> bool:
    """Return whether a dry run leaves nothing behind: in no cache of ``functools``, and by no finalizer."""
    for x in [tracked.obj for tracked in reach.objects.values()]:
        is_finalized = issubclass(type(x), type) and any("__del__" in vars(base) for base in type.mro(x))
        if is_finalized or type(x) is _lru_cache_wrapper:
            return False
    return True


def complete_all(*steps: Callable[[], None]) -> None:
    """Take every step, each of which may be repeated; an interrupt is raised after the last one."""
    interrupt: BaseException | None = None
    for step in steps:
        for _ in range(3):
            try:
                step()
            except Exception:
                raise
            except BaseException as error:
                interrupt = error
            else:
                break
    if interrupt is not None:
        raise interrupt


class Snapshot:
    """The state of everything in ``reach`` when inspected, or ``now``; ``restore`` brings it back."""

    def __init__(self, reach: ReachableState, *, now: bool = False) -> None:
        self._names = reach.names
        things = reach.objects.values()
        self._views = {
            id(s.obj): (s.obj, inspect_object(s.obj, reach.names) if now else s.before) for s in things
        }
        self._others: dict[int, Tensor] = {}
        """Tensors of the same memory as those in ``reach``, which a capture of another thread may be of."""
        for s in things:
            for x in members(s.obj) if isinstance(s.before.state, TensorState) else ():
                view = inspect_object(x, reach.names)
                if id(x) not in self._views and type(view.state.value) is not LazyValue:
                    self._views[id(x)], self._others[id(x)] = (x, view), x
        self._globals: list[tuple[dict[str, Any], str, Any]] = [
            (g.scope, g.name, g.scope.get(g.name, _ABSENT) if now else g.value) for g in reach.globals
        ]
        for scope, names in reach.missing_globals({*reach.codes}):
            self._globals += [(scope, name, _ABSENT) for name in names]

    def value(self, key: int, ref: Any) -> Any:
        """Return the value at a location: of the object or globals with this id; if unknown, self."""
        if key in self._views:
            children = self._views[key][1].children
            return next((p.value for p in children if p.key == ref), self)
        return next((v for scope, name, v in self._globals if id(scope) == key and name == ref), self)

    def list_items(self, x: Any) -> list[Any] | None:
        """Return the items that a list had, or None."""
        entry = self._views.get(id(x))
        return None if entry is None else [p.value for p in entry[1].children if type(p.key) is int]

    def restore(self) -> None:
        """Restore everything."""
        for thing, was in self._views.values():
            now = self._others[id(thing)]._value if id(thing) in self._others else None
            if type(now) is LazyValue and now.value is was.state.value:
                continue  # it stands in for the value in another thread's capture, which puts that back
            restore_object(thing, was, self._names)
        for scope, name, value in self._globals:
            if value is _ABSENT:
                scope.pop(name, None)
            elif scope.get(name, _ABSENT) is not value:
                scope[name] = value


def restore_object(x: Any, was: ObjectView, names: frozenset[str] | None) -> None:
    """Restore ``x`` to the view ``was``, with the attributes in ``names``; None: all."""
    if isinstance(was.state, TensorState):
        _restore_tensor(x, was.state)
        return
    if isinstance(x, types.CellType):
        _restore_cell(x, was)
        return
    now = inspect_object(x, names)
    if now.state == was.state:
        return
    if was.kind == "set":
        type(x).clear(x)
        type(x).update(x, [v for _, v in was.state[0]])
    items = [ref for ref in was.children if type(ref.key) is int]
    if isinstance(x, list):
        list.__setitem__(x, slice(None), [ref.value for ref in items])
    elif isinstance(x, deque):
        deque.clear(x)
        deque.extend(x, [ref.value for ref in items])
    elif isinstance(x, dict):
        kind = OrderedDict if isinstance(x, OrderedDict) else dict
        kind.clear(x)
        for ref in was.children:
            if isinstance(ref.access, KeyAccess) and ref.key[0] == "item":
                kind.__setitem__(x, ref.access.key, ref.value)
    _restore_attributes(x, _children_of_kind(was, "attribute"), _children_of_kind(now, "attribute"))
    slots = _children_of_kind(was, "slot")
    for name in {**_children_of_kind(now, "slot"), **slots}:
        if name not in slots:
            object.__delattr__(x, name)
        elif getattr(x, name, _ABSENT) is not slots[name]:
            object.__setattr__(x, name, slots[name])


def _restore_tensor(x: Any, state: TensorState) -> None:
    x._value, x._vtype, x._node = state.value, state.vtype, state.node
    if isinstance(state.node, Leaf):
        state.node.grad = state.grad


def _restore_cell(x: types.CellType, was: ObjectView) -> None:
    if was.kind != "empty":
        x.cell_contents = was.children[0].value
    elif inspect_object(x, None).kind != "empty":
        del x.cell_contents


def _children_of_kind(view: ObjectView, kind: str) -> dict[str, Any]:
    keyed = [ref for ref in view.children if type(ref.key) is tuple]
    return {ref.key[1]: ref.value for ref in keyed if ref.key[0] == kind}


def _restore_attributes(x: Any, was: dict[str, Any], now: dict[str, Any]) -> None:
    if isinstance(x, type):
        for name in now.keys() - was.keys():
            type.__delattr__(x, name)
        for name, value in was.items():
            if now.get(name, _ABSENT) is not value:
                type.__setattr__(x, name, value)
        return
    if [*was] == [*now] and all(a is b for a, b in zip(was.values(), now.values(), strict=True)):
        return
    own: dict[str, Any] = vars(x)
    uninspected: Iterable[str] = [
        n for n in own if n not in now
    ]  # attributes that were not inspected stay in place
    if [*was] != [*now] and not uninspected:
        own.clear()
    for name in now.keys() - was.keys():
        own.pop(name, None)
    own.update(was)
