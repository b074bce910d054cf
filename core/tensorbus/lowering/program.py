"""From a graph to launches: which nodes get a buffer, which of those one kernel makes, and in which order.

A kernel pulls everything elementwise, moved or gathered that stands before it. A buffer is made for outputs,
for reductions, scans, products and scatters, and where computing twice would cost more than storing once;
what is then read in one kernel only needs none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from ..errors import UnsupportedOpError
from ..graph.graph import Graph, Node
from ..ops.op import table
from ..settings import verifying
from ..strided import row_major
from .builder import Late
from .canonical import canonical
from .collapse import collapse
from .families import REDUCTIONS, SCANS, SORTS, Library
from .groups import FIRST, SHORT, Group, Groups, turned
from .job import Job, Step, Steps
from .layout import Layout, Shape, packed, view
from .matmul import lower_matmul
from .outputs import same_slots
from .plan import CALL, ROOTS, Calls, cost_of, is_call, is_stack, materialized
from .pointwise import lower_map, lower_maps, lower_stack
from .pull import ELEMENTWISE, PULLED
from .reduce import lower_reduction
from .repeated import Signatures, again, remember
from .rows import lower_rows
from .scan import lower_scan
from .scatter import lower_scatter
from .schedule import arranged
from .several import lower_several
from .sort import lower_sort
from .stacks import is_stack_of_rows, lower_stack_of_rows
from .staged import staged
from .steps import Batch, Call, Program
from .strips import lower_strips
from .target import Target
from .teams import lower_teams
from .verify_program import verify_program

__all__ = ["ROOTS", "Batch", "Call", "Program", "lower"]


def lower(
    graph: Graph, inputs: Sequence[Layout | None], target: Target, sized: bool = False,
    library: Calls = None, replaces: Mapping[int, int] | None = None,
) -> Program:  # fmt: skip
    """Return the program of ``graph``. An input that is None is a Python scalar, given at each call.

    ``sized`` says that float constants may come from lengths: they are parameters then, and the code serves
    other lengths. ``library`` names the ops that the device runs by calls of its own; ops that nobody can
    generate become calls as well. None: there are no calls, and every step is a launch. ``replaces`` says of
    outputs which input they take the place of; ``Program.replaceable`` then has those that may be written
    over it. Raises ``UnsupportedOpError`` for an op that is no call and has no schedule.
    """
    if library is not None:
        graph = staged(graph, target)
    program = _Lowering(graph, inputs, target, sized, library).program(replaces or {})
    return verify_program(program, len(inputs)) if verifying() else program


ALONE = 1 << 15
"""The longest rows that are left to a group of light items each, however few there are."""
_APART = ELEMENTWISE | {"broadcast_to", "reshape"}
"""The ops whose results any schedule of theirs stores with rows apart."""


def _read(calls: Collection[Node]) -> set[int]:
    """Return the ids of what calls read, also behind views of it."""
    found: set[int] = set()
    for call in calls:
        for node in call.inputs:
            found.add(id(node))
            while node.op in ("reshape", "permute_dims"):
                node = node.inputs[0]
                found.add(id(node))
    return found


class _Lowering:
    def __init__(
        self, graph: Graph, inputs: Sequence[Layout | None], target: Target, sized: bool,
        library: Calls,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.sized = sized
        self.library = library
        self.nodes = list(graph)
        self.calls = {node for node in self.nodes if is_call(node, library)}
        self.count = len(inputs)
        self.where: dict[int, Layout] = {}
        self.scalars: dict[int, int] = {}
        for k, node in enumerate(graph.inputs):
            found = inputs[k]
            if found is None:
                self.scalars[id(node)] = k
            else:
                self.where[id(node)] = found
        self.steps = Steps(target=target, next_slot=len(inputs))
        self.made = self._places()
        self.signatures = Signatures(self.where, self.scalars, (target, sized, library is None))

    def _places(self) -> set[int]:
        """Say where every node lies that gets a buffer or is a view of one; return the former."""
        wanted = materialized(self.graph, self.nodes, self.calls, whole=self.library is not None)
        made: set[int] = set()
        whole = [n for n in self.nodes if n.op == "matmul" or n in self.calls]
        wanted |= {id(x) for n in whole for x in n.inputs} | {id(n) for n in self.graph.outputs}
        read = _read(self.calls)
        for node in self.nodes:
            if id(node) in self.where or id(node) in self.scalars:
                continue
            seen = self.where.get(id(node.inputs[0])) if node.inputs else None
            if seen is not None and node not in self.calls and (moved := view(node, seen)) is not None:
                self.where[id(node)] = moved
            elif id(node) in wanted:
                made.add(id(node))
                if self._is_over(node, made):
                    self.where[id(node)] = self.where[id(node.inputs[0])]
                    continue
                self.where[id(node)] = self._new(node, read)
        return made

    def _new(self, node: Node, read: Collection[int]) -> Layout:
        """Return where a node's buffer has it: packed, unless a call would rather have its rows apart."""
        shape, dtype, rows = node.spec.shape, node.spec.dtype, 0
        if type(self.library) is Library and shape:
            if node in self.calls and not (node.op in table and table[node.op].results):
                rows = self.library.apart(node, [self.where.get(id(x)) for x in node.inputs])
            elif id(node) in read and node.op in _APART:
                rows = self.library.apart(node, ())
        if not rows:
            return packed(self.steps.temporary(prod(shape), dtype), shape)
        slot = self.steps.temporary(prod(shape[:-1]) * rows, dtype)
        return Layout(slot, shape, row_major((*shape[:-1], rows)))

    def _is_over(self, node: Node, made: Collection[int]) -> bool:
        """Return whether a node's result takes the place of its first operand, which nobody else reads."""
        library = self.library
        if type(library) is not Library or node not in self.calls or not library.over(node):
            return False
        x = node.inputs[0]
        uses = sum(n is x for n in (*self.graph.outputs, *(i for n in self.nodes for i in n.inputs)))
        return id(x) in made and uses == 1 and x.spec == node.spec

    def program(self, replaces: Mapping[int, int]) -> Program:
        groups = list(Groups(self.nodes, self.made, self.steps.target, self.calls).ordered())
        read = self._read_elsewhere(groups)
        for group in groups:
            self._lower(group, read)
        outputs = []
        for node in self.graph.outputs:
            if id(node) in self.scalars:
                slot = self.steps.temporary(1, node.spec.dtype)
                lower_map(self._carve(node, slot, {}), self.steps)
                outputs.append(packed(slot, ()))
            else:
                outputs.append(self.where[id(node)])
        return arranged(self.steps, outputs, self.count, self.graph, replaces, whole=self.library is not None)

    def _read_elsewhere(self, groups: Sequence[Group]) -> set[int]:
        """Return the ids of the nodes whose buffers are read outside the kernel that makes them."""
        found: set[int] = set()
        for node in self.graph.outputs:
            while id(node) not in self.made and node.inputs and id(node) in self.where:
                node = node.inputs[0]
            found.add(id(node))
        for group in groups:
            for root in group.roots.values():
                found |= {id(n) for n, _ in root.reads if id(n) not in group.roots}
        return found

    def _lower(self, group: Group, read: Collection[int]) -> None:
        node = next(iter(group.roots.values())).node
        if node in self.calls:
            self._call(node)
            return
        if node.op == "result":
            return
        if not (node.op in PULLED or node.op in ROOTS):
            raise UnsupportedOpError(f"{node.op}: no schedule is written for it, and it is no call here.")
        stored = {k: self.where[k].slot for k in group.roots if k in read}
        for k in group.roots:
            if k not in stored:
                self.steps.sizes.pop(self.where[k].slot)
        signature = self.signatures.of(group, stored)
        if again(signature, self.steps):
            return
        before, first = len(self.steps.steps), self.steps.next_slot
        self._schedule(group, stored)
        remember(signature, self.steps, before, first)

    def _schedule(self, group: Group, stored: Mapping[int, int]) -> None:
        """Append the launches of a group whose roots in ``stored`` go to these slots."""
        across = (
            bool(group.reduced) and len(group.domain) - 1 not in group.reduced and self.library is not None
            and self.steps.target.solo_rows and not self.steps.target.wide_ops and group.domain[-1] >= SHORT
        )  # fmt: skip
        node = next(iter(group.roots.values())).node
        even = all(self.where[k].is_contiguous for k in stored)
        if self.library is not None and self.steps.target.swap and group.reduced and not group.deep:
            fused = canonical(group, self.where, self.scalars, stored, self.sized)
            if is_stack_of_rows(fused, self.steps.target):
                lower_stack_of_rows(fused, self.steps)
                return
        if len(group.roots) == 1 and even and not across and not self._by_teams(group):
            self._lower_one(self._carve(node, stored[id(node)], self.where), group)
            return
        strip = group.deep and len(group.domain) - 1 not in group.reduced and self.steps.target.solo_rows
        columns = group.deep and len(group.domain) - 1 not in group.reduced
        if group.deep and not strip:
            group = turned(group)
        fused = canonical(group, self.where, self.scalars, stored, self.sized)
        if strip:
            lower_strips(fused, self.steps)
        elif not group.reduced:
            lower_maps(fused, self.steps)
        elif group.deep or self._by_rows(fused.domain, fused.reduced):
            long = prod(fused.domain[k] for k in fused.reduced) >= SHORT and not columns
            (lower_teams if long and not self.steps.target.solo_rows else lower_rows)(fused, self.steps)
        else:
            lower_several(fused, self.steps)

    def _by_teams(self, group: Group) -> bool:
        """Return whether a reduction alone is one of long enough rows for several light items each."""
        if self.library is None or self.steps.target.solo_rows or not group.reduced:
            return False
        return prod(group.domain[k] for k in group.reduced) >= SHORT and self._by_rows(
            group.domain, group.reduced
        )

    def _by_rows(self, domain: Shape, over: tuple[int, ...]) -> bool:
        """Return whether reductions are over the last axes, and there are rows enough for all cores."""
        first, target = len(domain) - len(over), self.steps.target
        short = bool(target.swap) and prod(domain[first:]) <= ALONE
        return over == tuple(range(first, len(domain))) and (
            short or prod(domain[:first]) >= target.groups // FIRST
        )

    def _lower_one(self, job: Job, group: Group) -> None:
        steps, op = self.steps, job.root.op
        if op == "matmul":
            lower_matmul(job, steps)
        elif op == "scatter":
            lower_scatter(job, steps)
        elif op in SORTS:
            lower_sort(job, steps)
        elif op in SCANS:
            lower_scan(collapse(job), steps)
        elif op in REDUCTIONS:
            costly = self.library is None and cost_of(job.graph) >= CALL
            lower_reduction(collapse(job), steps, costly=costly)
        elif op == "concat" and is_stack(job.root, cost_of(job.graph)):
            lower_stack(job, steps)
        elif prod(job.root.spec.shape):
            before = len(steps.steps)
            lower_map(collapse(job), steps)
            if self.library is not None and len(steps.steps) == before + 1:
                stored = {k: self.where[k].slot for k in group.roots}
                same = same_slots(canonical(group, self.where, self.scalars, stored))
                made = steps.steps[-1]
                assert isinstance(made, Step)
                steps.steps[-1] = replace(made, same=same, plain=True)

    def _call(self, node: Node) -> None:
        """Append the call that runs an op of the device's."""
        given: list[Layout | Late] = []
        for x in node.inputs:
            if id(x) in self.scalars:
                given.append(Late("scalar", self.scalars[id(x)]))
            else:
                given.append(self.where[id(x)])
        specs = table[node.op].specs(tuple(x.spec for x in node.inputs), node.attrs)
        slots = [self.where[id(node)].slot]
        if table[node.op].results:
            parts = {n.attrs["index"]: n for n in self.nodes if n.op == "result" and n.inputs[0] is node}
            slots = [
                self.where[id(parts[k])].slot if k in parts and id(parts[k]) in self.where
                else self.steps.temporary(prod(s.shape), s.dtype)
                for k, s in enumerate(specs)
            ]  # fmt: skip
            self.steps.sizes.pop(self.where[id(node)].slot, None)
        call = Call(
            op=node.op, attrs=node.attrs, inputs=tuple(given), specs=tuple(x.spec for x in node.inputs),
            outputs=tuple(slots), out_specs=specs,
            apart=0 if self.where[id(node)].is_contiguous else self.where[id(node)].strides[-2],
        )  # fmt: skip
        self.steps.steps.append(call)

    def _carve(self, root: Node, out: int, where: Mapping[int, Layout]) -> Job:
        """Return the job of one root: a graph of its own whose leaves are what already lies in buffers."""
        leaves: dict[int, Layout] = {}
        numbers: dict[int, int] = {}
        done: dict[int, Node] = {}
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in done:
                continue
            found = where.get(id(node)) if node is not root else None
            if found is not None or id(node) in self.scalars:
                made = Node(op="input", spec=node.spec)
                if found is not None:
                    leaves[id(made)] = found
                else:
                    numbers[id(made)] = self.scalars[id(node)]
            elif ready:
                made = replace(node, inputs=tuple(done[id(x)] for x in node.inputs))
            else:
                stack.append((node, True))
                stack.extend((x, False) for x in reversed(node.inputs))
                continue
            done[id(node)] = made
        return Job(root=done[id(root)], leaves=leaves, scalars=numbers, out=out, sized=self.sized)
