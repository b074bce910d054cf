"""Fusion groups: buffers of one domain that one kernel makes, as they read the same things, or each other.

A group is a domain, the axes of it that reductions go over, and roots. It grows root by root, as long as no
other kernel stands between, and no element is needed before it is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from math import prod
from typing import NamedTuple

from ...backend_interface.graph import Node
from ...errors import TensorbusError
from ...tracing.sym_int import always_same, near
from ..ir.layout import Shape
from ..op_sets import FINDS, INSIDE, REDUCTIONS, SCHEDULED
from ..target import Target
from .access_map import FREE, Access, Read, loop_axes, own_access, picked, reads
from .materialize import is_computed_stack, large_products


class StoredValue(NamedTuple):
    """A node that a kernel stores: which axes of the domain it follows, and what computing it reads.

    ``chosen`` are the lengths of the axes that indices choose one element of, ``behind`` the ids of what is
    read for that.
    """

    node: Node
    order: int
    access: Access
    reads: tuple[Read, ...]
    chosen: frozenset[int] = frozenset()
    behind: frozenset[int] = frozenset()


@dataclass(slots=True, kw_only=True)
class FusionGroup:
    """Roots that one kernel makes. ``reduced`` are axes of ``domain``; what is not ``open`` stays alone.

    ``before`` has a bit for each group that must have run before.
    """

    number: int
    domain: Shape
    reduced: tuple[int, ...]
    roots: dict[int, StoredValue]
    size: int
    open: bool
    needs: set[int] = field(default_factory=set)
    before: int = 0

    @property
    def multi_pass(self) -> bool:
        """True where something of the whole domain needs a reduction: its rows are read more than once."""
        after: set[int] = set()
        for root in self.roots.values():
            depends = any(id(node) in after for node, _ in root.reads)
            if root.node.op in REDUCTIONS:
                if depends:
                    return True
                after.add(id(root.node))
            elif depends:
                if set(root.access) & set(self.reduced):
                    return True
                after.add(id(root.node))
        return False


class GroupBuilder:
    """Puts the nodes that get a buffer into groups, in the order of the graph."""

    def __init__(self, nodes: Sequence[Node], stored: Collection[int], target: Target,
                 calls: Collection[Node]) -> None:  # fmt: skip
        """Group the ``nodes`` of a graph whose ids are in ``stored``; those of ``calls`` stay alone."""
        self.target = target
        self.calls = calls
        self._stored = stored
        self._stop = {n for n in nodes if id(n) in stored or n.op in ("input", "constant")}
        self._live: dict[int, FusionGroup] = {}
        self._of: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
        self._moved: dict[int, int] = {}
        self._count = 0
        self._users = Counter([x for n in nodes for x in {*n.inputs}])
        self._products = large_products(nodes, calls, self._users, target.heuristics)
        for place, node in enumerate(nodes):
            if node.op == "result" and id(node.inputs[0]) in self._of:  # who reads it waits for the call
                self._of[id(node)] = self._of[id(node.inputs[0])]
            elif id(node) in stored and node.op != "result":
                self._add(node, place)

    def ordered(self) -> Iterator[FusionGroup]:
        """Yield the groups, each after those that it reads from, else in the order of their last roots."""
        users: dict[int, list[int]] = {}
        left: dict[int, int] = {}
        for g in self._live.values():
            needs = self._needs(g)
            left[g.number] = len(needs)
            for k in needs:
                users.setdefault(k, []).append(g.number)
        ready = [(_last(self._live[k]), k) for k, n in left.items() if n == 0]
        heapify(ready)
        while ready:
            _, number = heappop(ready)
            yield self._live[number]
            for k in users.get(number, ()):
                left[k] -= 1
                if left[k] == 0:
                    heappush(ready, (_last(self._live[k]), k))
        if any(left.values()):
            waiting = ", ".join(r.node.op for k, n in left.items() if n for r in self._live[k].roots.values())
            raise TensorbusError(f"kernels wait for each other: {waiting}. Please report the program.")

    def _find(self, number: int) -> int:
        while number in self._moved:
            number = self._moved[number]
        return number

    def _needs(self, group: FusionGroup) -> set[int]:
        needs = {self._find(k) for k in group.needs}
        needs.discard(group.number)
        group.needs = needs
        return needs

    def _add(self, node: Node, place: int) -> None:
        group = self._alone(node, place)
        self._live[group.number] = group
        self._count += 1
        self._of[id(node)] = group.number
        operands = [n for n, _ in group.roots[id(node)].reads]
        group.needs = {self._find(self._of[id(n)]) for n in operands if id(n) in self._of}
        for k in group.needs:
            group.before |= self._live[k].before | 1 << k
        if group.open:
            for k in sorted(group.needs, reverse=True):
                other = self._live[self._find(k)]
                if not self._would_delay(other, group):
                    group = self._join(other, group)
            near = {
                self._find(k)
                for n in operands
                for k in self._readers.get(id(n), ())[-self.target.heuristics.fusion_recent_readers :]
            }
            for k in sorted(near - {group.number}, reverse=True):
                other = self._live[k]
                waits = self._would_delay(other, group) or self._would_delay(group, other)
                same = always_same(other.domain, group.domain)
                if not waits and same and self._shares(other, group):
                    group = self._join(other, group)
        for n in operands:
            if prod(n.spec.shape) > 1:
                self._readers.setdefault(id(n), []).append(group.number)

    def _would_delay(self, a: FusionGroup, b: FusionGroup) -> bool:
        """Return whether numbers that ``a`` makes of little would wait with ``b`` for what they do not need.

        Others that want them as well would then come after that, instead of into one kernel with it.
        """
        if near(prod(a.domain)) >= self.target.heuristics.fusion_small_domain or not b.before & ~(
            a.before | 1 << a.number
        ):
            return False
        return all(prod(r.node.spec.shape) == 1 and self._users[r.node] > 1 for r in a.roots.values())

    def _alone(self, node: Node, place: int) -> FusionGroup:
        """Return the group of one root."""
        shape = node.spec.shape
        reduced: tuple[int, ...] = ()
        access = own_access(shape)
        closed = node in self.calls or node.op in SCHEDULED - REDUCTIONS
        closed = closed or (node.op in FINDS and self.target.row_per_task)  # vectors search for one place
        closed = closed or INSIDE in node.attrs
        if node.op in REDUCTIONS and not closed:
            shape = node.inputs[0].spec.shape
            whole, over = own_access(shape), set(node.attrs["axis"])
            reduced = tuple(a for k, a in enumerate(whole) if k in over and a is not None)
            closed = not reduced
            remaining = [None if k in over else a for k, a in enumerate(whole)]
            access = tuple(
                remaining if node.attrs["keepdims"] else [a for k, a in enumerate(remaining) if k not in over]
            )
        body = reads(node, access, reduced, self._stop)
        stops = tuple([(n, None if closed else at) for n, at in body if n in self._stop and n is not node])
        stack = node.op == "concat" and is_computed_stack(node, self.target.heuristics)
        closed = closed or 0 in shape or stack
        domain = tuple(shape[k] for k in loop_axes(shape))
        picks = [
            (n, pick) for n, at in body
            if n.op == "gather" and at is not None and (pick := picked(n, at, reduced)) is not None
        ]  # fmt: skip
        chosen = frozenset(n.inputs[0].spec.shape[pick[0]] for n, pick in picks)
        behind = frozenset(
            id(x) for n, _ in picks for x, _ in reads(n, None, (), self._stop) if x in self._stop
        )
        root = StoredValue(node=node, order=place, access=access, reads=stops, chosen=chosen, behind=behind)
        return FusionGroup(number=self._count, domain=domain, reduced=reduced, roots={id(node): root},
                     size=len(body), open=not closed)  # fmt: skip

    def _shares(self, a: FusionGroup, b: FusionGroup) -> bool:
        """Return whether two groups read the same large thing, so that one of them need not."""
        least = max(prod(a.domain) // 2, 2)
        first = {id(n) for r in a.roots.values() for n, _ in r.reads}
        return any(
            id(n) in first and prod(n.spec.shape) >= least for r in b.roots.values() for n, _ in r.reads
        )

    def _join(self, other: FusionGroup, group: FusionGroup) -> FusionGroup:
        """Return ``group`` joined to another, or as it is where they do not fit."""
        a, b = (other, group) if other.number < group.number else (group, other)
        apart = not other.open or a is b or self._between(a, b) or self._keeps_products(a, b)
        joint = None if apart else join(a, b, self.target)
        if joint is None:
            return group
        self._moved[b.number] = a.number
        joint.needs = a.needs | b.needs
        mine = 1 << a.number | 1 << b.number
        joint.before = (a.before | b.before) & ~mine
        del self._live[b.number]
        self._live[a.number] = joint
        for root in b.roots:
            self._of[root] = a.number
        if b.number == self._count - 1 and not joint.before & ~a.before:
            return joint  # nobody needs the latest group yet, and what needs the other one waits for no more
        for g in self._live.values():  # earlier ones as well: what was joined to them may need either
            if g.before & mine:
                g.before = (g.before | joint.before | 1 << a.number) & ~(1 << b.number)
        return joint

    def _keeps_products(self, a: FusionGroup, b: FusionGroup) -> bool:
        """Return whether a kernel of both would wait for more large products than one is to add up."""
        most = self.target.heuristics.sum_max_products
        if len(self._products) <= most:
            return False
        one, two = ({n for r in g.roots.values() for n, _ in r.reads} & self._products for g in (a, b))
        return len(one | two) > max(most, len(one), len(two))

    def _between(self, a: FusionGroup, b: FusionGroup) -> bool:
        """Return whether a third group needs one of two, and is needed by the other."""
        return any(
            self._live[k].before >> x.number & 1
            for x, y in ((a, b), (b, a)) for k in self._needs(y) if k != x.number
        )  # fmt: skip


def _last(group: FusionGroup) -> int:
    return max(root.order for root in group.roots.values())


def join(a: FusionGroup, b: FusionGroup, target: Target) -> FusionGroup | None:
    """Return the group of the roots of both, ``b`` being the later; None where no kernel makes them."""
    if a.size + b.size > target.heuristics.kernel_max_ops or not _keeps_recompute_order(a, b):
        return None
    met = _pairs(a, b)
    common = _common(a, b, *met) if met is not None else None
    if common is None:
        return None
    domain, to_a, to_b = common
    for group, to in ((a, to_a), (b, to_b)):
        over = [to[k] for k in group.reduced]
        if over != sorted(over):  # what is summed has its axes in the order of the domain's
            return None
    reduced = {tuple(sorted(to[k] for k in g.reduced)) for g, to in ((a, to_a), (b, to_b)) if g.reduced}
    if len(reduced) > 1:
        return None
    joint = reduced.pop() if reduced else ()
    roots: dict[int, StoredValue] = {}
    for group, to in ((a, to_a), (b, to_b)):
        for key, root in group.roots.items():
            near = _chooses_in_rows(root, to, joint, domain)
            if not near and any(k in a.roots or k in b.roots for k in root.behind):
                return None
            roots[key] = _moved(root, to, joint[0] if near and joint else FREE)
    roots = dict(sorted(roots.items(), key=lambda item: item[1].order))
    joined = replace(a, domain=domain, reduced=joint, roots=roots, size=a.size + b.size)
    return joined if _holds(joined, target) and _fits(joined, target) else None


def _chooses_in_rows(root: StoredValue, to: Mapping[int, int], reduced: Sequence[int], domain: Shape) -> bool:
    """Return whether what indices choose for a root, if anything, lies in the rows that are reduced.

    The kernel that goes over a row has it at hand. Anything else is computed by itself, from what is stored.
    """
    if not root.chosen:
        return True
    own = {to[k] for k in root.access if k is not None}
    return len(reduced) == 1 and reduced[0] not in own and root.chosen == {domain[reduced[0]]}


def _keeps_recompute_order(a: FusionGroup, b: FusionGroup) -> bool:
    """Return whether nothing of ``b`` is computed again that ``a`` would then compute too early."""
    return {r.node.recompute_tag for r in b.roots.values()} - {0} <= {
        r.node.recompute_tag for r in a.roots.values()
    }


def _pairs(a: FusionGroup, b: FusionGroup) -> tuple[dict[int, int], bool] | None:
    """Return which axes of ``b`` are which of ``a``, as far as one reads the other, and whether it does.

    None where elements of one are read elsewhere by the other.
    """
    pairs: dict[int, int] = {}
    linked = False
    for x, y, reduced_axes_last in ((a, b, False), (b, a, True)):
        for root in y.roots.values():
            for node, at in root.reads:
                writer = x.roots.get(id(node))
                if writer is None:
                    continue
                if at is None:
                    return None
                linked = True
                for k, own in zip(at, writer.access, strict=True):
                    if (k is None) != (own is None):
                        return None
                    if k is None or own is None or k == FREE:
                        continue
                    one, other = (own, k) if reduced_axes_last else (k, own)
                    if pairs.setdefault(one, other) != other:
                        return None
    return (pairs, linked) if len(set(pairs.values())) == len(pairs) else None


def _common(
    a: FusionGroup, b: FusionGroup, pairs: Mapping[int, int], linked: bool
) -> tuple[Shape, dict[int, int], dict[int, int]] | None:
    """Return the domain of both, and where the axes of each are in it."""
    own_a, own_b = range(len(a.domain)), range(len(b.domain))
    same = {k: k for k in own_a}
    if a.domain == b.domain and all(k == v for k, v in pairs.items()):
        return a.domain, same, same
    if any(b.domain[k] != a.domain[v] for k, v in pairs.items()):
        return None
    if linked and len(pairs) == len(own_b):
        return a.domain, same, dict(pairs)
    if linked and len(pairs) == len(own_a):
        return b.domain, {v: k for k, v in pairs.items()}, {k: k for k in own_b}
    return None


def _moved(root: StoredValue, to: Mapping[int, int], free: int) -> StoredValue:
    """Return a root over other axes; what an index chooses in a row is then somewhere on axis ``free``."""

    def over(access: Access) -> Access:
        return tuple([None if k is None else free if k == FREE else to[k] for k in access])

    if all(k == v for k, v in to.items()) and not any(at is not None and FREE in at for _, at in root.reads):
        return root

    moved_reads = tuple([(n, None if at is None else over(at)) for n, at in root.reads])
    return root._replace(access=over(root.access), reads=moved_reads)


def _holds(group: FusionGroup, target: Target) -> bool:
    """Return whether each root is made once for each element, and read by others at that element."""
    over, outer = set(group.reduced), set(range(len(group.domain))) - set(group.reduced)
    leaves: set[int] = set()
    for root in group.roots.values():
        mine = {k for k in root.access if k is not None}
        if not outer <= mine or (mine & over) not in (set(), over):
            return False
        for node, at in root.reads:
            writer = group.roots.get(id(node))
            if writer is None:
                leaves.add(id(node))
            elif at != writer.access:
                return False
    return len(leaves) + len(group.roots) <= target.heuristics.fusion_max_buffers


def _fits(group: FusionGroup, target: Target) -> bool:
    """Return whether there is a schedule for a group on this device."""
    if not group.reduced:
        return True
    over, limits = group.reduced, target.heuristics
    if not group.multi_pass:
        return True
    length = near(prod(group.domain[k] for k in over))
    count = near(prod(group.domain)) // length
    if len(group.domain) - 1 in over:
        few = count < target.tasks_to_fill // limits.fusion_few_rows_share
        long = limits.fusion_small_domain
        if target.row_per_task:
            long = limits.row_per_task_max_length
        elif few:
            long = target.max_workgroup * limits.row_elements_per_work_item
        return length < long or count >= target.tasks_to_fill // limits.busy_share
    if not target.row_per_task:  # an item to a column
        return count >= target.work_items_to_fill // limits.busy_share or length < limits.row_min_length
    tail = len(group.domain) - 1 - max(over)
    joined = (*group.domain[: max(over) + 1], prod(group.domain[-tail:]))
    return column_panel_width(joined, over, target) > 0


def column_panel_width(domain: Shape, over: Sequence[int], target: Target) -> int:
    """Return how wide the panels of columns are that tasks go down several times; 0 where they do not pay.

    Long columns are read with large strides: several passes by all cores, each from end to end, are then
    faster.
    """
    limits, narrow = target.heuristics, target.heuristics.column_panel_min_width
    length, wide = prod(domain[k] for k in over), domain[-1]
    count = prod(domain) // length // wide
    tall = limits.column_panel_max_rows if target.vector_ops else 8 * limits.column_panel_max_rows
    if wide < narrow or (length > tall and prod(domain) > limits.fusion_small_domain):
        return 0
    width = min(wide, max(narrow, limits.column_panel_elements // length // narrow * narrow))
    while width > narrow and count * -(-wide // width) < target.tasks_to_fill // limits.busy_share:
        width = max(narrow, width // 2 // narrow * narrow)
    enough = (
        count * -(-wide // width) >= target.tasks_to_fill // limits.busy_share
        or prod(domain) <= limits.fusion_small_domain
    )
    return width if enough else 0


def reduced_axes_last(group: FusionGroup) -> FusionGroup:
    """Return the group with the axes that reductions go over behind all others."""
    order = sorted(range(len(group.domain)), key=lambda k: (k in group.reduced, k))
    if order == list(range(len(order))):
        return group
    to = {k: place for place, k in enumerate(order)}
    over = tuple(sorted(to[k] for k in group.reduced))
    roots = {k: _moved(root, to, over[0] if len(over) == 1 else FREE) for k, root in group.roots.items()}
    return replace(group, domain=tuple(group.domain[k] for k in order), reduced=over, roots=roots)
