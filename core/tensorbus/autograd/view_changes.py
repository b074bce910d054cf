"""Writes to views and to their bases: what else shows the elements, and what it shows then.

A change of a tensor makes a new value of the root of its family by the inverses of the ops between
(``ViewRule.put``), and takes the views that are alive from it anew. Nothing is changed where that raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any
from weakref import ref

from ..dispatch.modes import detached_value, is_value_mode
from ..errors import ArgumentError, AutogradError
from ..ops.definition import Shape, ViewRule, table
from ..tensor.grad_mode import GradMode, grad_enabled
from ..tensor.leaf import Leaf
from ..tensor.tensor import LentMemory, Tensor, lent, unlent, wrap
from ..tracing.active_modes import active_modes
from ..tracing.lazy_value import LazyValue
from ..tracing.sym_int import is_open
from .saved_values import note_write
from .views import (
    KeyStep,
    Link,
    attrs_of,
    chain_of,
    family_of,
    kept_by,
    lock,
    members,
    new_views,
    root_of,
    separate_value,
    view_of,
)


def check_write(x: Tensor) -> None:
    """Raise where nothing may be written to ``x``: a view of a leaf that requires a gradient, say."""
    history, shape = grad_enabled.get(), x.shape
    for at in chain_of(view_of(x)):
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


def change(x: Tensor, new: Tensor, history: bool, number: int = 0, by: str = "") -> bool:
    """Make ``x`` hold ``new``, and all that show elements of it what they then are; say whether any may.

    With ``history`` they have that of ``new`` as well. Nothing is changed where it raises. ``number`` and
    ``by`` are what is noted of the change for derivatives that need what stood there; 0: it is no such one.
    """
    family = family_of(x)
    memory = lent_memory(x) if lent else None
    if family is None and memory is None:
        return False
    # A tensor that ranks share communicates here, in an order that is its program's, and so does what a
    # transform makes of one: no lock may be held.
    with nullcontext() if is_value_mode(x._vtype.device.type) else lock:
        cells = {} if family is None else family.alive()
        root = x if family is None else family.root()
        if memory is None and (not cells or (root is None and [*cells.values()] == [x])):
            if root is None and all(at[2].op is None for at in chain_of(view_of(x))):
                x._view = None  # a parameter, say: its next change is that of no view
            return False
        tensors = [*cells.values()] if root is None or root is x else [root, *cells.values()]
        tensors += [x] if root is x else []
        histories = [cell._node for cell in tensors]
        _Change(x, new, history, cells, root).run(memory)
        if number:
            for cell, history_before in zip(tensors, histories, strict=True):
                note_write(cell, history_before, number, by)
    return True


def is_writable(x: Tensor) -> bool:
    """Return whether no view in between shows an element of the root at several places."""
    return not any(at[2].op is not None and at[2].op.view.refuses for at in chain_of(view_of(x)))


def make_root(x: Tensor) -> Tensor | None:
    """Return the tensor that ``x`` is a view of at last; where that is gone, what all are views of now.

    That becomes a tensor of its own, which shows what it did. Where several views are left side by side, it
    is a new one that they keep alive. None where it would have a history.
    """
    root = root_of(x)
    if root is not None:
        return root
    family = family_of(x)
    if family is None:
        return None
    cells = family.alive()
    tops = _tops(cells)
    if len(tops) != 1:
        return None if any(top._node is not None for top in tops) else _new_root(tops, cells)
    top, above, renewed = tops[0], view_of(tops[0]), dict[int, Link]()
    for cell in cells.values():
        if cell is not top:
            cell._view = _below(cell._view, above, renewed)
            new_views.append(ref(cell))
    top._view = None
    return top


def _tops(cells: dict[int, Tensor]) -> list[Tensor]:
    """Return the views, by the id of their link, that are not views of others among them."""
    return [cell for cell in cells.values() if not any(id(at) in cells for at in chain_of(cell._view[3]))]


def _new_root(tops: Sequence[Tensor], cells: dict[int, Tensor]) -> Tensor:
    """Return a tensor that shows all that the views of a root that is gone do, and make them views of it."""
    joined = _joined(tops)
    root = wrap(joined._value, joined._vtype)  # a detached view shows all, and is what is joined
    root._view = None
    keep_alive(root, [*cells.values()])
    return root


def keep_alive(root: Tensor, xs: Sequence[Tensor]) -> None:
    """Make views of a root, or of one that is gone in whose place it is, keep it alive."""
    above, renewed = ref(root), dict[int, Link]()
    for x in xs:
        x._view = _rooted(x._view, root, above, renewed)
        new_views.append(ref(x))


def _rooted(at: Link, root: Tensor, above: ref[Tensor], renewed: dict[int, Link]) -> Link:
    """Return a link whose chain ends at ``root``, and keeps it alive."""
    if id(at) not in renewed:
        if at[3] is not None:
            renewed[id(at)] = (*at[:3], _rooted(at[3], root, above, renewed), at[4])
        else:
            renewed[id(at)] = (above, at[1], kept_by(at[2], root), None, at[4])
    return renewed[id(at)]


def _below(at: Link, above: Link | None, renewed: dict[int, Link]) -> Link:
    """Return a link whose chain ends where it came to ``above``."""
    if id(at) not in renewed:
        parent = None if at[3] is above else _below(at[3], above, renewed)
        renewed[id(at)] = (*at[:3], parent, at[4])
    return renewed[id(at)]


def lent_memory(x: Tensor) -> LentMemory | None:
    """Return the memory that ``x``, or what it is a view of, has lent out."""
    root = root_of(x)
    memory = None if root is None else lent.get(id(root))
    return memory if memory is not None and memory.reference() is root else None


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
        tops = _tops(self.cells)
        if len(tops) == 1:
            only = tops[0]
            self.top = id(only._view)
            del self.cells[self.top]
            return only
        with self._mode(not self.history):
            return _joined(tops)

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
        root, value = self.cells[0], self.new[0]
        if type(root._value) is not LazyValue:
            memory.value = root._value
        if type(value._value) is LazyValue:
            if value._value.wait is None:  # computed later, and written there then: see ``separate``
                return
            value._value.materialize()
        own, memory.value = memory.value, None
        memory.host.overwrite(own, value._value)
        self.new = {0: wrap(own, root._vtype.materialized, value._node)}
        self.path = {}

    def _up(self, at: Link) -> Link | None:
        """Work out the new value of the base, past views of the same op that lie in between."""
        key = self._key(at)
        value, far = self.new[key], self.far[key]
        far = far or at[2].op is None
        first, attrs, rule = at, attrs_of(at), None if at[2].op is None else at[2].op.view
        while (
            rule is not None
            and rule.compose is not None
            and (parent := first[3]) is not None
            and self._key(parent)
            and parent[2].op is at[2].op
        ):
            attrs = rule.compose(attrs_of(parent), attrs)
            first = parent
        base_key = self._key(first[3])
        self.path[base_key] = first
        with self._mode(far):
            if rule is None:
                base_value = wrap(detached_value(value) if active_modes else value._value, value._vtype)
            else:
                base = self._old(first[3], far) if rule.partial else None
                base_value = rule.put(base, value, first[1], **attrs)
        self.new[base_key], self.far[base_key] = base_value, far
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
        one, two = attrs_of(other), attrs_of(at)
        return rule.apart is not None and not (active_modes and is_open((one, two))) and rule.apart(one, two)


def _take(at: Link, base: Tensor) -> Tensor:
    """Return a view of ``base`` as a link says, by its op."""
    op = at[2].op
    if op is None:
        return wrap(detached_value(base) if active_modes else base._value, base._vtype)
    view: Tensor = (
        at[2].take(base) if isinstance(at[2], KeyStep) else table.run(op.name, (base,), attrs_of(at))
    )
    return view


def _joined(tops: Sequence[Tensor]) -> Tensor:
    """Return what stands for a root that is gone, made of what its views show."""
    root = _blank([*chain_of(tops[0]._view)], tops[0])
    for cell in tops:
        root = _put_all([*chain_of(cell._view)], root, cell)
    return root


def _put_all(chain: list[Link], root: Tensor, value: Tensor) -> Tensor:
    """Return the root with what a view shows replaced."""
    bases = [root]
    for at in reversed(chain[1:]):
        bases.append(_take(at, bases[-1]))
    for at, base in zip(chain, reversed(bases), strict=True):
        if at[2].op is not None:
            value = at[2].op.view.put(base, value, at[1], **attrs_of(at))
    return value


def _blank(chain: list[Link], like: Tensor) -> Tensor:
    """Return zeros for the root of a chain, which is gone."""
    dtype = like._vtype.dtype
    for at in chain:
        operands = getattr(at[2], "operands", None)
        dtype = operands[0].dtype if operands else dtype
    zeros: Tensor = table.function("full")(chain[-1][1], 0, dtype=dtype, device=like.device)
    return zeros


def assign(pairs: Sequence[tuple[Tensor, Any]], number: int, by: str) -> None:
    """Put values, computed by a program, into tensors, and what they then are into all that show them.

    ``number`` and ``by`` are what is noted of the change with the latter: see ``change``.
    """
    if lent:
        pairs = [(x, unlent(value)) for x, value in pairs]
    with GradMode(False):
        for x, value in pairs:
            alone = not lent and family_of(x) is None
            if alone or not change(x, wrap(value, x._vtype), False, number, by):
                x._value = value


def separate(xs: Sequence[Tensor]) -> None:
    """Give tensors that a program made memory that nobody else writes to; views are taken from their base.

    One that has lent its memory has its new value written there.
    """
    for x in xs:
        memory, at = lent_memory(x), view_of(x)
        if memory is None:
            separate_value(x)
        elif at is not None:
            root = root_of(x)
            if root is not None and type(root._value) is not LazyValue:
                x._value = _shown(at)._value
        elif memory.value is not None:
            own, memory.value = memory.value, None
            memory.host.overwrite(own, x._value)
            x._value = own
            separate([view for view in members(x) if type(view._value) is not LazyValue])


def _shown(at: Link) -> Tensor:
    """Return what a view shows, taken from the nearest base that is alive and computed."""
    base = at[0]()
    if base is None or (at[3] is not None and type(base._value) is LazyValue):
        return _take(at, _shown(at[3]))
    return _take(at, wrap(base._value, base._vtype))
