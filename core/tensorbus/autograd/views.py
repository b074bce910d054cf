"""Views: tensors that show elements of others, and which those are.

The result of a view op has a link: a weak reference to its base, the op, and the base's own link. By it a
change of one reaches all that show the same (``view_changes``). Reads know nothing of all this. Making a view
costs its link and an entry in ``new_views``; which views a root has is worked out at a change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final
from weakref import getweakrefcount, ref

from ..ops.definition import Op, Shape, Spec, Strides, ViewRule, table
from ..system import fork_safe_locks
from ..tensor.tensor import Tensor, lent, unlent
from ..tracing.sym_int import hints
from .engine import aliased

Link = tuple[Any, Shape, Any, Any, Any]
"""A weak reference to the base, its shape, the op (``op``, ``attrs``), the base's link, a ``start``."""
MAX_NEW_VIEWS: Final = 256
new_views: Final[list[ref[Tensor]]] = []
"""Views that were made since they were last sorted into families."""
_families: Final[dict[int, Family]] = {}
"""The roots that have views, by the id of their weak reference."""
_shared: Final[dict[int, Family]] = {}
"""Those of which two tensors may be alive: a list of detached losses, say, has none."""
_sorted: Final = [0]
"""How many views went into families since those that are gone were last taken out, with those there were."""
_limit: Final = [MAX_NEW_VIEWS]
"""How many of them are there when those that are gone are taken out next."""
_LOOKS: Final = 2
"""How many families that have views are looked at where it is asked whether there are any."""
_turn: Final[list[int]] = []
"""The ids of the families that are looked at next."""
lock: Final = fork_safe_locks.reentrant()
"""Held while a change reaches the tensors that show it: two of different parts are both kept."""


class ViewStep:
    """The taking of a view, where there is no plan that says it.

    ``root`` is kept alive: the base, where views are to show it, or what it has lent, though it is let go of.
    ``operands``, as a plan has them: the type of the base, where the view's may be another.
    """

    __slots__ = ("attrs", "op", "operands", "root")

    def __init__(self, op: Op[...] | None, attrs: dict[str, Any], operands: tuple[Any, ...] = ()) -> None:
        self.op, self.attrs, self.operands = op, attrs, operands
        self.root: Tensor | None = None


class KeyStep(ViewStep):
    """The taking of ``base[key]`` by a key whose numbers vary from run to run of a captured program."""

    __slots__ = ("key", "name", "take", "view")

    def __init__(self, key: Any, get: Callable[[Any, Any], Any], put: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__(None, {})
        self.op: Any = self
        self.name, self.key = "indexing", key
        self.take: Callable[[Any], Any] = lambda base: get(base, key)
        self.view = ViewRule(put=lambda base, value, _: put(base, key, value), partial=True)


DETACHED: Final = ViewStep(None, {})
"""How ``detach`` takes its result: the same value, and another history."""


class Family:
    """A root and its views; both may be gone."""

    __slots__ = ("root", "views")

    def __init__(self, root: ref[Tensor]) -> None:
        self.root = root
        self.views: list[ref[Tensor]] = []

    def is_shared(self) -> bool:
        """Return whether two of its tensors are alive, whatever they show now."""
        living = {id(x) for reference in (self.root, *self.views) if (x := reference()) is not None}
        return len(living) > 1

    def alive(self) -> dict[int, Tensor]:
        """Return the views that are alive, by the id of their link."""
        by_link: dict[int, Tensor] = {}
        for reference in self.views:
            x = reference()
            if x is not None and x._view is not None and root_reference(x._view) is self.root:
                by_link[id(x._view)] = x
        if not by_link:
            _families.pop(id(self.root), None)
            _shared.pop(id(self.root), None)
        return by_link


def link(x: Tensor, base: Tensor, how: Any, start: Any = None) -> Tensor:
    """Make ``x`` a view of ``base``, taken by a plan or ``Step``, unless it can only be a copy; return it."""
    if getweakrefcount(base):
        try:
            parent = base._view
        except AttributeError:
            parent = base._view = None
        if lent and parent is None and id(base) in lent:
            how = kept_by(how, base)
        if parent is not None and how.op is not None and how.op.view.copies is not None:
            key = (how, parent[2]) if parent[3] is None else (how, *[at[2] for at in chain_of(parent)])
            copies = _layouts.get(key)
            if copies is None:
                copies = _copies(key, parent, base._value.shape)
            if copies:
                return _own_history(separate_value(x))
    else:
        parent = base._view = None
    x._view = (ref(base), base._value.shape, how, parent, start)
    new_views.append(ref(x))
    if len(new_views) >= MAX_NEW_VIEWS:
        _sort()
    return x


def kept_by(how: Any, base: Tensor) -> ViewStep:
    """Return how a view was taken, so that it keeps ``base`` alive: one that has lent its memory, say."""
    step = copy.copy(how) if isinstance(how, ViewStep) else ViewStep(how.op, how.attrs, how.operands)
    step.root = base
    return step


def link_by_key(
    x: Tensor, base: Tensor, key: Any, get: Callable[[Any, Any], Any], put: Callable[[Any, Any, Any], Any]
) -> Tensor:
    """Make ``x`` the view ``base[key]`` by a key of numbers that vary; return it."""
    return link(x, base, KeyStep(key, get, put)) if isinstance(x, Tensor) else x


def unlink(x: Any) -> Any:
    """Make a tensor no view of another; return it."""
    if isinstance(x, Tensor):
        _own_history(separate_value(x))
        if getweakrefcount(x):
            x._view = None
    return x


def _own_history(x: Tensor) -> Tensor:
    """Give a tensor that is a copy a history that is not that of a view; return it."""
    plan = None if x._node is None else getattr(x._node, "plan", None)
    if plan is not None and plan.op.view is not None:
        x._node = aliased(x)._node or x._node
    return x


def separate_value(x: Tensor) -> Tensor:
    """Give a tensor that is no view memory that nobody else writes to; return it."""
    if lent:
        x._value = unlent(x._value)
    return x


def view_of(x: Tensor) -> Link | None:
    """Return the link of a view, None of another tensor."""
    if not getweakrefcount(x):
        return None
    at: Link | None = getattr(x, "_view", None)
    return at


_layouts: Final[dict[Any, bool]] = {}
"""Whether an op on a view copies, by its plan and those of the chain: they know all shapes."""


def _copies(key: tuple[Any, ...], base: Link, shape: Shape) -> bool:
    """Return whether an op on a view copies: a reshape of what does not lie in order, say."""
    how = key[0]
    copies: bool = how.op.view.copies(_strides(base), hints(shape), **hints(dict(how.attrs)))
    if not any(isinstance(step, ViewStep) for step in key):
        if len(_layouts) >= 4096:
            _layouts.clear()
        _layouts[key] = copies
    return copies


def _strides(at: Link) -> Strides | None:
    """Return the strides of a view, in elements of its root; None where they are unknown."""
    shape, how, parent = hints(at[1]), at[2], at[3]
    if parent is not None:
        strides = _strides(parent)
    else:
        strides, step = (), 1
        for n in reversed(shape):
            strides, step = (step, *strides), step * n
    if how.op is None or strides is None:
        return strides
    rule = how.op.view
    if rule.strides is None:
        return None
    view_strides: Strides | None = rule.strides(strides, shape, **hints(attrs_of(at)))
    return view_strides


def is_in_order(x: Tensor) -> bool:
    """Return whether elements lie in C order, in the memory of what ``x`` is a view of."""
    at = view_of(x)
    if at is None:
        return True
    strides, step = _strides(at), 1
    if strides is None:
        return False
    for n, stride in zip(reversed(hints(x.shape)), reversed(strides), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


def root_reference(at: Link) -> ref[Tensor]:
    """Return the weak reference to what a view is of at last."""
    while at[3] is not None:
        at = at[3]
    root: ref[Tensor] = at[0]
    return root


def chain_of(at: Link | None) -> Iterator[Link]:
    """Return the links from a view to its root, the nearest first."""
    while at is not None:
        yield at
        at = at[3]


def attrs_of(at: Link) -> dict[str, Any]:
    """Return the attributes of the op that a view was taken by."""
    how, start = at[2], at[4]
    return dict(how.attrs) if start is None else {**how.attrs, "start": start}


def _sort() -> None:
    """Sort new views into families; those that are gone already are most of them."""
    with lock:
        new = new_views[:]
        del new_views[: len(new)]
        alive = [x for reference in new if (x := reference()) is not None and x._view is not None]
        if not alive:
            return
        for x in alive:
            root = root_reference(x._view)
            family = _families.get(id(root))
            if family is None:
                family = _families[id(root)] = Family(root)
            family.views.append(ref(x))
            _shared[id(root)] = family
        _sorted[0] += len(alive)
        if _sorted[0] > _limit[0]:
            for key, family in list(_families.items()):
                family.views = [r for r in family.views if r() is not None]
                if not family.views:
                    del _families[key]
                    _shared.pop(key, None)
            _sorted[0] = sum(len(family.views) for family in _families.values())
            _limit[0] = max(MAX_NEW_VIEWS, 2 * _sorted[0])


def family_of(x: Tensor) -> Family | None:
    """Return the family of a tensor that others may show, or that shows others.

    One that nothing refers to weakly has none: each link does, and the list of views.
    """
    if not getweakrefcount(x):
        return None
    if new_views:
        _sort()
    if not _families:
        return None
    at = getattr(x, "_view", None)
    return _families.get(id(ref(x) if at is None else root_reference(at)))


def members(x: Tensor) -> list[Tensor]:
    """Return the other tensors that are alive and show elements of the same root."""
    family = family_of(x)
    if family is None:
        return []
    with lock:
        root = family.root()
        tensors = [*family.alive().values()]
    if root is not None:
        tensors.append(root)
    return [m for m in tensors if m is not x]


def root_of(x: Tensor) -> Tensor | None:
    """Return the tensor that ``x`` is a view of at last, ``x`` if it is none; None where that is gone."""
    at = view_of(x)
    return x if at is None else root_reference(at)()


def no_views() -> bool:
    """Return whether no tensor is known to be a view of another that is alive, or to have lent its memory."""
    if new_views:
        _sort()
    if _families:
        _forget_gone()
    return not _families and not lent


def _forget_gone() -> None:
    """Forget families without a view that is one still, as parameters are none once they were written.

    They are looked at in turn, each time until a few are found that have one.
    """
    with lock:
        for _ in range(_LOOKS):
            while _families or _turn:
                if not _turn:
                    _turn.extend(_families)
                family = _families.get(_turn.pop())
                if family is not None and family.alive():
                    break


def relations(xs: Sequence[Tensor]) -> tuple[Any, ...]:
    """Return which of ``xs`` show elements of one root, and how: equal for what a change treats alike."""
    groups: dict[int, list[Any]] = {}
    for k, x in enumerate(xs):
        family = family_of(x)
        if family is not None:
            chain = tuple([(_name(at), at[1], _hashable(attrs_of(at))) for at in chain_of(view_of(x))])
            groups.setdefault(id(family), []).append((k, chain))
    return tuple([tuple(group) for group in groups.values() if len(group) > 1])


def are_unrelated(fixed: Container[int], others: Container[int]) -> bool:
    """Return whether no two tensors with these ids show elements of one root."""
    with lock:
        families = [*_shared.items()]
    for key, family in families:
        if not family.is_shared():  # until it has another view
            with lock:
                if not family.is_shared():
                    _shared.pop(key, None)
            continue
        root = family.root()
        members = [*family.alive().values()] if root is None else [root, *family.alive().values()]
        if sum(id(x) in fixed or id(x) in others for x in members) > 1:
            return False
    return True


def _name(at: Link) -> str:
    return "detach" if at[2].op is None else at[2].op.name


def _hashable(attrs: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(attrs.items()))


_gone: Final = ref(Tensor())


def path_between(x: Tensor, known: Container[int]) -> tuple[Tensor, list[Any]] | None:
    """Return the nearest tensor with an id in ``known`` that ``x`` is a view of, and the steps from it."""
    steps: list[Any] = []
    for at in chain_of(view_of(x)):
        key = at[2].key if type(at[2]) is KeyStep else None
        steps.insert(0, (_name(at) if key is None else "", at[1], attrs_of(at) if key is None else key))
        base = at[0]()
        if base is not None and id(base) in known:
            return base, steps
    return None


def link_along(x: Tensor, base: Tensor, steps: Sequence[Any], by_key: Callable[[Any], KeyStep]) -> None:
    """Make ``x`` a view of ``base`` by several steps: see ``path_between``."""
    parent, above = view_of(base), ref(base)
    if parent is None:
        base._view = None
    for name, shape, attrs in steps:
        kind = (base._vtype,)  # only that of the step from the root is asked for
        how = (
            by_key(attrs)
            if not name
            else DETACHED
            if name == "detach"
            else ViewStep(table[name], attrs, kind)
        )
        if parent is None and id(base) in lent:
            how = kept_by(how, base)
        parent = (above, shape, how, parent, None)
        above = _gone
    x._view = parent
    new_views.append(ref(x))


def paths_from_gone_root(xs: Sequence[Tensor]) -> list[tuple[list[Tensor], list[list[Any]]]] | None:
    """Return the views of each root that is gone, with the steps from it; None where no program takes them.

    A root's dtype is that of its views, so that steps which change it cannot be taken.
    """
    groups: dict[int, tuple[list[Tensor], list[list[Any]]]] = {}
    for x in xs:
        chain = [*chain_of(view_of(x))]
        if not chain:
            continue
        if any(type(at[2]) is KeyStep or _has_parts(at) for at in chain):
            return None
        views, paths = groups.setdefault(id(chain[-1][0]), ([], []))
        views.append(x)
        paths.append([(_name(at), at[1], attrs_of(at)) for at in reversed(chain)])
    return [group for group in groups.values() if len(group[0]) > 1]


def _has_parts(at: Link) -> bool:
    """Return whether a view is of another dtype than its base: the real part, say."""
    op = at[2].op
    if op is None:
        return False
    (base,) = at[2].operands
    view: Spec = op.infer((Spec(at[1], base.dtype),), **attrs_of(at))
    return view.dtype is not base.dtype


def link_side_by_side(xs: Sequence[Tensor], paths: Sequence[Sequence[Any]]) -> None:
    """Make ``xs`` views of one tensor that is gone, each by several steps: see ``paths_from_gone_root``."""
    root = ref(Tensor())
    for x, steps in zip(xs, paths, strict=True):
        parent: Link | None = None
        above = root
        for name, shape, attrs in steps:
            how = DETACHED if name == "detach" else ViewStep(table[name], attrs)
            parent = (above, shape, how, parent, None)
            above = _gone
        x._view = parent
        new_views.append(ref(x))


def overlapping(xs: Sequence[Tensor]) -> bool:
    """Return whether two of these views, none of them of another, may show one element of a root."""
    for k, x in enumerate(xs):
        for y in xs[:k]:
            if _may_overlap(x, y):
                return True
    return False


def _may_overlap(x: Tensor, y: Tensor) -> bool:
    one, two = list(chain_of(view_of(x)))[::-1], list(chain_of(view_of(y)))[::-1]
    if not one or not two or one[0][0] is not two[0][0]:
        return False
    for a, b in zip(one, two, strict=False):
        if a is b:
            continue
        rule = None if a[2].op is None or a[2].op is not b[2].op or a[3] is not b[3] else a[2].op.view
        apart = None if rule is None else rule.apart
        return apart is None or not apart(hints(attrs_of(a)), hints(attrs_of(b)))
    return True
