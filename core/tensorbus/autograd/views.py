"""Views: tensors that show elements of others, and how a change of one reaches all that show the same.

The result of a view op has a link: a weak reference to its base, the op, and the base's own link. A change of
any of them makes a new value of the root by the ops' inverses (``ViewRule.put``), and takes the views that
are alive from it anew. Reads know nothing of all this. Making a view costs its link and an entry in
``new_views``; which views a root has is worked out at a change.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Final
from weakref import getweakrefcount, ref

from ..errors import ArgumentError, AutogradError
from ..ops.definition import Op, Shape, Strides, ViewRule, table
from ..system import fork_safe_locks
from ..tensor.grad_mode import GradMode, grad_enabled
from ..tensor.leaf import Leaf
from ..tensor.tensor import LentMemory, Tensor, lent, wrap
from ..tracing.active_modes import active_modes
from ..tracing.lazy_value import LazyValue
from ..tracing.sym_int import hints, is_open

Link = tuple[Any, Shape, Any, Any, Any]
"""A weak reference to the base, its shape, the op (``op``, ``attrs``), the base's link, a ``start``."""
MANY: Final = 256
new_views: Final[list[ref[Tensor]]] = []
"""Views that were made since they were last sorted into families."""
_families: Final[dict[int, Family]] = {}
"""The roots that have views, by the id of their weak reference."""
_limit: Final = [MANY]
lock: Final = fork_safe_locks.reentrant()
"""Held while a change reaches the tensors that show it: two of different parts are both kept."""


class Step:
    """How a view was taken, where there is no plan that says it."""

    __slots__ = ("attrs", "op")

    def __init__(self, op: Op[...] | None, attrs: dict[str, Any]) -> None:
        self.op, self.attrs = op, attrs


class FunctionStep(Step):
    """How a view was taken by a function of the base, and is put back by another."""

    __slots__ = ("name", "take", "view")

    def __init__(
        self, name: str, take: Callable[[Any], Any], put: Callable[[Any, Any], Any], partial: bool
    ) -> None:
        super().__init__(None, {})
        self.op: Any = self
        self.name, self.take = name, take
        self.view = ViewRule(put=lambda base, value, _: put(base, value), partial=partial)


class KeyStep(FunctionStep):
    """How ``base[key]`` was taken by a key whose numbers vary from run to run of a captured program."""

    __slots__ = ("key",)

    def __init__(self, key: Any, get: Callable[[Any, Any], Any], put: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__(
            "indexing", lambda base: get(base, key), lambda base, value: put(base, key, value), True
        )
        self.key = key


DETACHED: Final = Step(None, {})
"""How ``detach`` takes its result: the same value, and another history."""


class Family:
    """A root and its views; both may be gone."""

    __slots__ = ("root", "views")

    def __init__(self, root: ref[Tensor]) -> None:
        self.root = root
        self.views: list[ref[Tensor]] = []

    def alive(self) -> dict[int, Tensor]:
        """Return the views that are alive, by the id of their link."""
        found: dict[int, Tensor] = {}
        for reference in self.views:
            x = reference()
            if x is not None and x._view is not None and _root(x._view) is self.root:
                found[id(x._view)] = x
        if not found:
            _families.pop(id(self.root), None)
        return found


def link(x: Tensor, base: Tensor, how: Any, start: Any = None) -> Tensor:
    """Make ``x`` a view of ``base``, taken by a plan or ``Step``, unless it can only be a copy; return it."""
    if getweakrefcount(base):
        try:
            parent = base._view
        except AttributeError:
            parent = base._view = None
        if parent is not None and how.op is not None and how.op.view.copies is not None:
            key = (how, parent[2]) if parent[3] is None else (how, *[at[2] for at in _chain(parent)])
            copies = _layouts.get(key)
            if copies is None:
                copies = _copies(key, parent, base._value.shape)
            if copies:
                return x
    else:
        parent = base._view = None
    x._view = (ref(base), base._value.shape, how, parent, start)
    new_views.append(ref(x))
    if len(new_views) >= MANY:
        _sort()
    return x


def link_by(x: Tensor, base: Tensor, name: str, **attrs: Any) -> Tensor:
    """Make ``x`` a view of ``base`` as if the op ``name`` had taken it; return it."""
    op = table[name]
    if op.normalize is not None:
        attrs = op.normalize((base,), **attrs)
    parent = view_of(base)
    if parent is None:
        base._view = None
    x._view = (ref(base), base._value.shape, Step(op, attrs), parent, None)
    new_views.append(ref(x))
    return x


def link_by_key(
    x: Tensor, base: Tensor, key: Any, get: Callable[[Any, Any], Any], put: Callable[[Any, Any, Any], Any]
) -> Tensor:
    """Make ``x`` the view ``base[key]`` by a key of numbers that vary; return it."""
    return link(x, base, KeyStep(key, get, put)) if isinstance(x, Tensor) else x


def link_as(x: Any, base: Any, name: str, take: Callable[[Any], Any], back: Callable[[Any], Any]) -> Any:
    """Make ``x`` the view ``take(base)`` of all elements, which ``back`` brings into its form; return it."""
    if not (isinstance(x, Tensor) and isinstance(base, Tensor)):
        return x
    return link(x, base, FunctionStep(name, take, lambda _, value: back(value), False))


def unlink(x: Any) -> Any:
    """Make a tensor no view of another; return it."""
    if isinstance(x, Tensor) and getweakrefcount(x):
        x._view = None
    return x


def view_of(x: Tensor) -> Link | None:
    """Return the link of a view, None of another tensor."""
    if not getweakrefcount(x):
        return None
    found: Link | None = getattr(x, "_view", None)
    return found


_layouts: Final[dict[Any, bool]] = {}
"""Whether an op on a view copies, by its plan and those of the chain: they know all shapes."""


def _copies(key: tuple[Any, ...], base: Link, shape: Shape) -> bool:
    """Return whether an op on a view copies: a reshape of what does not lie in order, say."""
    how = key[0]
    found: bool = how.op.view.copies(_strides(base), hints(shape), **hints(dict(how.attrs)))
    if not any(isinstance(step, Step) for step in key):
        if len(_layouts) >= 4096:
            _layouts.clear()
        _layouts[key] = found
    return found


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
    found: Strides | None = rule.strides(strides, shape, **hints(_attrs(at)))
    return found


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


def _root(at: Link) -> ref[Tensor]:
    while at[3] is not None:
        at = at[3]
    root: ref[Tensor] = at[0]
    return root


def _chain(at: Link | None) -> Iterator[Link]:
    while at is not None:
        yield at
        at = at[3]


def _attrs(at: Link) -> dict[str, Any]:
    how, start = at[2], at[4]
    return dict(how.attrs) if start is None else {**how.attrs, "start": start}


def _sort() -> None:
    """Sort new views into families; those that are gone already are most of them."""
    with lock:
        new = new_views[:]
        del new_views[: len(new)]
        for reference in new:
            x = reference()
            at = None if x is None else x._view
            if at is not None:
                root = _root(at)
                family = _families.get(id(root))
                if family is None:
                    family = _families[id(root)] = Family(root)
                family.views.append(reference)
        if sum(len(family.views) for family in _families.values()) > _limit[0]:
            for key, family in list(_families.items()):
                family.views = [r for r in family.views if r() is not None]
                if not family.views:
                    del _families[key]
            _limit[0] = max(MANY, 2 * sum(len(family.views) for family in _families.values()))


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
    return _families.get(id(ref(x) if at is None else _root(at)))


def members(x: Tensor) -> list[Tensor]:
    """Return the other tensors that are alive and show elements of the same root."""
    family = family_of(x)
    if family is None:
        return []
    with lock:
        root = family.root()
        found = [*family.alive().values()]
    if root is not None:
        found.append(root)
    return [m for m in found if m is not x]


def check_write(x: Tensor) -> None:
    """Raise where nothing may be written to ``x``: a view of a leaf that requires a gradient, say."""
    history, shape = grad_enabled.get(), x.shape
    for at in _chain(view_of(x)):
        op = at[2].op
        if op is None:
            history = False
        elif op.view.refuses and (op.view.refuses_all or _size(at[1]) != _size(shape)):
            raise ArgumentError(
                f"this tensor is a view by {op.name}, and cannot be changed in place: {op.view.refuses}."
                f" Change a copy: x.clone()."
            )
        shape = at[1]
        base = at[0]()
        if history and base is not None and isinstance(base._node, Leaf):
            raise AutogradError(
                f"a view of a leaf that requires a gradient, taken by {'detach' if op is None else op.name},"
                f" cannot be changed in place while history is recorded; do it under tensorbus.no_grad()."
            )


def _size(shape: Shape) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def change(x: Tensor, new: Tensor, history: bool) -> bool:
    """Make ``x`` hold ``new``, and all that show elements of it what they then are; say whether any may.

    With ``history`` they have that of ``new`` as well. Nothing is changed where it raises.
    """
    family = family_of(x)
    memory = lent_memory(x) if lent else None
    if family is None and memory is None:
        return False
    with lock:
        cells = {} if family is None else family.alive()
        root = x if family is None else family.root()
        if memory is None and (not cells or (root is None and [*cells.values()] == [x])):
            return False
        _Change(x, new, history, cells, root).run(memory)
    return True


def is_writable(x: Tensor) -> bool:
    """Return whether no view in between shows an element of the root at several places."""
    return not any(at[2].op is not None and at[2].op.view.refuses for at in _chain(view_of(x)))


def root_of(x: Tensor) -> Tensor | None:
    """Return the tensor that ``x`` is a view of at last, ``x`` if it is none; None where that is gone."""
    at = view_of(x)
    return x if at is None else _root(at)()


def make_root(x: Tensor) -> Tensor | None:
    """Return the tensor that ``x`` is a view of at last; where that is gone, what all are views of now.

    That becomes a tensor of its own, which shows what it did. None where several views are left side by side.
    """
    root = root_of(x)
    if root is not None:
        return root
    family = family_of(x)
    if family is None:
        return None
    cells = family.alive()
    tops = [cell for cell in cells.values() if not any(id(at) in cells for at in _chain(cell._view[3]))]
    if len(tops) != 1:
        return None
    top, above, renewed = tops[0], view_of(tops[0]), dict[int, Link]()
    for cell in cells.values():
        if cell is not top:
            cell._view = _below(cell._view, above, renewed)
            new_views.append(ref(cell))
    top._view = None
    return top


def _below(at: Link, above: Link | None, renewed: dict[int, Link]) -> Link:
    """Return a link whose chain ends where it came to ``above``."""
    if id(at) not in renewed:
        parent = None if at[3] is above else _below(at[3], above, renewed)
        renewed[id(at)] = (*at[:3], parent, at[4])
    return renewed[id(at)]


def lent_memory(x: Tensor) -> LentMemory | None:
    """Return the memory that ``x``, or what it is a view of, has lent out."""
    root = root_of(x)
    found = None if root is None else lent.get(id(root))
    return found if found is not None and found.reference() is root else None


def replace(x: Tensor, new: Tensor) -> bool:
    """Make ``x`` and all that show elements of it hold ``new``, without history; say whether any may show it.

    One of another shape, dtype or device is no more of what they show: they part from ``x``, which is not
    changed.
    """
    others = members(x)
    if not others:
        return False
    if x._vtype.materialized is new._vtype.materialized and x.shape == new.shape:
        return change(x, new, False)
    for each in (*others, x):
        each._view = None
    return False


class _Change:
    """One change: what is new at the places of the tree of views, by the id of the link; 0 is the root."""

    def __init__(
        self, x: Tensor, new: Tensor, history: bool, cells: dict[int, Tensor], root: Tensor | None
    ) -> None:
        self.x, self.history, self.cells = x, history, cells
        self.at: Link | None = view_of(x)
        self.top = 0
        self.cells[0] = root if root is not None else self._stand_in()
        self.new: dict[int, Tensor] = {self._key(self.at): new}
        self.far: dict[int, bool] = {self._key(self.at): not history}
        self.path: dict[int, Link] = {}
        """The links between the tensor that changes and the root, by the key of their base."""

    def _key(self, at: Link | None) -> int:
        return 0 if at is None or id(at) == self.top else id(at)

    def _stand_in(self) -> Any:
        """Return what stands for a root that is gone: the only view of it, or one made of all there are."""
        tops = [
            cell
            for cell in self.cells.values()
            if not any(id(at) in self.cells for at in _chain(cell._view[3]))
        ]
        if len(tops) == 1:
            only = tops[0]
            self.top = id(only._view)
            del self.cells[self.top]
            return only
        made: Any = None
        with self._mode(not self.history):
            for cell in tops:
                chain = [*_chain(cell._view)]
                made = _blank(chain, cell) if made is None else made
                made = _put_all(chain, made, cell)
        return made

    def run(self, memory: LentMemory | None = None) -> None:
        """Work all out, then assign it; what was lent out is written over instead."""
        at = self.at
        while self._key(at):
            assert at is not None
            at = self._up(at)
        if memory is not None:
            self._write(memory)
        for key, cell in self.cells.items():
            if key and not self._is_apart(cell._view):
                self._down(cell._view)
        for key, value in self.new.items():
            if key not in self.cells:
                continue
            cell = self.cells[key]
            node = cell._node
            if cell is not value:
                cell._set_value(value)
            if not self.far[key] and not isinstance(node, Leaf):
                cell._node = value._node

    def _write(self, memory: LentMemory) -> None:
        """Write the new value of the root over the memory that it has lent; views are taken from there."""
        root, made = self.cells[0], self.new[0]
        if type(made._value) is LazyValue:  # computed later: nobody is shown it any more
            lent.pop(id(root), None)
            return
        memory.write(root._value, made._value)
        self.new = {0: wrap(root._value, root._vtype, made._node)}
        self.path = {}

    def _up(self, at: Link) -> Link | None:
        """Work out the new value of the base, past views of the same op that lie in between."""
        key = self._key(at)
        value, far = self.new[key], self.far[key]
        far = far or at[2].op is None
        first, attrs, rule = at, _attrs(at), None if at[2].op is None else at[2].op.view
        while (
            rule is not None
            and rule.compose is not None
            and (parent := first[3]) is not None
            and self._key(parent)
            and parent[2].op is at[2].op
        ):
            attrs = rule.compose(_attrs(parent), attrs)
            first = parent
        base_key = self._key(first[3])
        self.path[base_key] = first
        with self._mode(far):
            if rule is None:
                made = wrap(value._value, value._vtype)
            else:
                base = self._old(first[3], far) if rule.partial else None
                made = rule.put(base, value, first[1], **attrs)
        self.new[base_key], self.far[base_key] = made, far
        above: Link | None = first[3]
        return above

    def _mode(self, far: bool) -> Any:
        return GradMode(False) if far and grad_enabled.get() else nullcontext()

    def _old(self, at: Link | None, far: bool) -> Tensor:
        """Return what stood at a place before the change."""
        cell = self.cells.get(self._key(at))
        if cell is not None:
            return wrap(cell._value, cell._vtype) if far else cell
        assert at is not None
        return _take(at, self._old(at[3], far))

    def _down(self, at: Link | None) -> Tensor:
        """Return what stands at a place after the change."""
        key = self._key(at)
        if key not in self.new:
            assert at is not None
            base = self._down(at[3])
            far = self.far[key] = self.far[self._key(at[3])] or at[2].op is None
            with self._mode(far):
                self.new[key] = _take(at, base)
        return self.new[key]

    def _is_apart(self, at: Link) -> bool:
        """Return whether a view shows none of the elements that are changed."""
        while self._key(at) and self._key(at[3]) not in self.path:
            if at[3] is None or self._key(at[3]) == 0:
                return False
            at = at[3]
        other = self.path.get(self._key(at[3]))
        if other is None or other is at or other[2].op is not at[2].op or other[2].op is None:
            return False
        rule: ViewRule = other[2].op.view
        one, two = _attrs(other), _attrs(at)
        return rule.apart is not None and not (active_modes and is_open((one, two))) and rule.apart(one, two)


def _take(at: Link, base: Tensor) -> Tensor:
    """Return a view of ``base`` as a link says, by its op."""
    op = at[2].op
    if op is None:
        return wrap(base._value, base._vtype)
    made: Tensor = (
        at[2].take(base) if isinstance(at[2], FunctionStep) else table.run(op.name, (base,), _attrs(at))
    )
    return made


def _put_all(chain: list[Link], root: Tensor, value: Tensor) -> Tensor:
    """Return the root with what a view shows replaced."""
    bases = [root]
    for at in reversed(chain[1:]):
        bases.append(_take(at, bases[-1]))
    for at, base in zip(chain, reversed(bases), strict=True):
        if at[2].op is not None:
            value = at[2].op.view.put(base, value, at[1], **_attrs(at))
    return value


def _blank(chain: list[Link], like: Tensor) -> Tensor:
    """Return zeros for the root of a chain, which is gone."""
    dtype = like._vtype.dtype
    for at in chain:
        operands = getattr(at[2], "operands", None)
        dtype = operands[0].dtype if operands else dtype
    return table.function("full")(chain[-1][1], 0, dtype=dtype, device=like.device)  # type: ignore[no-any-return]


def no_views() -> bool:
    """Return whether no tensor is known to be a view of another that is alive, or to have lent its memory."""
    if new_views:
        _sort()
    return not _families and not lent


def relations(xs: Sequence[Tensor]) -> tuple[Any, ...]:
    """Return which of ``xs`` show elements of one root, and how: equal for what a change treats alike."""
    groups: dict[int, list[Any]] = {}
    for k, x in enumerate(xs):
        family = family_of(x)
        if family is not None:
            chain = tuple([(_name(at), at[1], _hashable(_attrs(at))) for at in _chain(view_of(x))])
            groups.setdefault(id(family), []).append((k, chain))
    return tuple([tuple(group) for group in groups.values() if len(group) > 1])


def _name(at: Link) -> str:
    return "detach" if at[2].op is None else at[2].op.name


def _hashable(attrs: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(attrs.items()))


def assign(pairs: Sequence[tuple[Tensor, Any]]) -> None:
    """Put values, computed by a program, into tensors, and what they then are into all that show them."""
    with GradMode(False):
        for x, value in pairs:
            if not change(x, wrap(value, x._vtype), False):
                x._value = value


_gone: Final = ref(Tensor())


def path_between(x: Tensor, known: Container[int]) -> tuple[Tensor, list[Any]] | None:
    """Return the nearest tensor with an id in ``known`` that ``x`` is a view of, and the steps from it."""
    steps: list[Any] = []
    for at in _chain(view_of(x)):
        key = at[2].key if type(at[2]) is KeyStep else None
        if type(at[2]) is FunctionStep:
            return None
        steps.insert(0, (_name(at) if key is None else "", at[1], _attrs(at) if key is None else key))
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
        how = by_key(attrs) if not name else DETACHED if name == "detach" else Step(table[name], attrs)
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
        chain = [*_chain(view_of(x))]
        if not chain:
            continue
        if any(type(at[2]) in (KeyStep, FunctionStep) or _name(at) in _CHANGE_DTYPE for at in chain):
            return None
        views, paths = groups.setdefault(id(chain[-1][0]), ([], []))
        views.append(x)
        paths.append([(_name(at), at[1], _attrs(at)) for at in reversed(chain)])
    return [group for group in groups.values() if len(group[0]) > 1]


_CHANGE_DTYPE: Final = frozenset(("real", "imag", "view_as_real", "view_as_complex"))


def link_side_by_side(xs: Sequence[Tensor], paths: Sequence[Sequence[Any]]) -> None:
    """Make ``xs`` views of one tensor that is gone, each by several steps: see ``paths_from_gone_root``."""
    root = ref(Tensor())
    for x, steps in zip(xs, paths, strict=True):
        parent: Link | None = None
        above = root
        for name, shape, attrs in steps:
            how = DETACHED if name == "detach" else Step(table[name], attrs)
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
    one, two = list(_chain(view_of(x)))[::-1], list(_chain(view_of(y)))[::-1]
    if not one or not two or one[0][0] is not two[0][0]:
        return False
    for a, b in zip(one, two, strict=False):
        if a is b:
            continue
        rule = None if a[2].op is None or a[2].op is not b[2].op or a[3] is not b[3] else a[2].op.view
        apart = None if rule is None else rule.apart
        return apart is None or not apart(hints(_attrs(a)), hints(_attrs(b)))
    return True


def is_taken_by_function(x: Tensor) -> bool:
    """Return whether a view was taken by what no program can name, from a base that is alive."""
    chain = list(_chain(view_of(x)))
    gone = all(at[0]() is None for at in chain)
    return not gone and any(type(at[2]) is FunctionStep for at in chain)
