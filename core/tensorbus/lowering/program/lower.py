"""From a graph to launches: which nodes get a buffer, which of those one kernel makes, and in which order.

A kernel pulls everything elementwise, moved or gathered that stands before it. A buffer is made for outputs,
for reductions, scans, products and scatters, and where computing twice would cost more than storing once;
what is then read in one kernel only needs none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

from ...backend_interface.graph import Graph, Node
from ...backend_interface.strided_array import row_major
from ...dtypes.definition import float32
from ...errors import UnsupportedOpError
from ...graph.pipeline import run_passes
from ...ops.definition import table
from ...system.env import verifying
from ..fusion.concat_in_place import Join, joins
from ..fusion.foreach_update import bundles_of, opened, over
from ..fusion.fusion_groups import (
    FusionGroup,
    GroupBuilder,
    StoredValue,
)
from ..fusion.kernel_cache import KernelKeys, insert, lookup
from ..fusion.materialize import choose_buffers, fused_operands
from ..fusion.rematerialize import rematerialized
from ..ir.builder import RuntimeArg
from ..ir.kernel_task import LaunchList, LibraryCall
from ..ir.layout import Layout, ordered, packed, view
from ..library import Calls, Library, is_call
from ..op_sets import ELEMENTWISE, INLINED, SCHEDULED
from ..passes.pass_list import LOWERING_PASSES, LoweringContext
from ..schedules.choose import build
from ..schedules.pointwise.pointwise import lower_map
from ..schedules.schedule import ScheduleRequest, carve
from ..target import Target
from .program import Program
from .step_order import Begin, arranged
from .verify import verify_program


def lower(
    graph: Graph, inputs: Sequence[Layout | None], target: Target, sized: bool = False,
    library: Calls = None, replaces: Mapping[int, int] | None = None, begin: Begin | None = None,
) -> Program:  # fmt: skip
    """Return the program of ``graph``. An input that is None is a Python scalar, given at each call.

    ``sized`` says that float constants may come from lengths: they are parameters then, and the code serves
    other lengths. ``library`` names the ops that the device runs by calls of its own; ops that nobody can
    generate become calls as well. None: there are no calls, and every step is a launch. ``replaces`` says of
    outputs which input they take the place of; ``Program.replaceable`` then has those that may be written
    over it. ``begin`` is given the launches as soon as their kernels are what they will be: compiling may
    begin. Raises ``UnsupportedOpError`` for an op that is no call and has no schedule.
    """
    context = LoweringContext(
        target=target, library=library, packed=all(x is None or x.is_contiguous for x in inputs),
        scatters_rows=lambda node: _scatters_rows(node, target),
    )  # fmt: skip
    graph = run_passes(graph, LOWERING_PASSES, context)
    program = _Lowering(graph, inputs, target, sized, library, replaces or {}).program(begin)
    return verify_program(program, inputs) if verifying() else program


def _scatters_rows(node: Node, target: Target) -> bool:
    from ..schedules.scatter.scatter_row_gpu import serves

    return serves(node, target) is True


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
        library: Calls, replaces: Mapping[int, int],
    ) -> None:  # fmt: skip
        self.graph = graph
        self.sized = sized
        self.library = library
        self.asked = library is not None or bool(replaces)
        """Whether it matters which buffers may become one."""
        self.replaces = replaces
        self.nodes = list(graph)
        self.calls = {node for node in self.nodes if is_call(node, library)}
        self.read_by: dict[Node, list[Node]] = {}
        """The calls that read each node."""
        for call in self.calls:
            for x in {*call.inputs}:
                self.read_by.setdefault(x, []).append(call)
        self.bundles = bundles_of([node for node in self.nodes if node not in self.calls])
        self.count = len(inputs)
        self.where: dict[int, Layout] = {}
        self.left: dict[int, tuple[int, int]] = {}
        """The slots, and their lengths, of what calls leave for others, by the ids of their nodes."""
        self.opened: list[StoredValue] = []
        """What bundles were opened to: their ids are in ``where``, and must not become those of others."""
        self.scalars: dict[int, int] = {}
        for k, node in enumerate(graph.inputs):
            found = inputs[k]
            if found is None:
                self.scalars[id(node)] = k
            else:
                self.where[id(node)] = found
        self.steps = LaunchList(target=target, next_slot=len(inputs))
        self.made = self._places()
        self.signatures = KernelKeys(self.where, self.scalars, (target, sized, library is None, self.asked))

    def _places(self) -> set[int]:
        """Say where every node lies that gets a buffer or is a view of one; return the former."""
        within = set[Node]()
        if self.library is not None:
            within = fused_operands(self.graph, self.nodes, self.calls, packs=self.steps.target.row_per_task)
        wanted = choose_buffers(
            self.graph, self.nodes, self.calls, whole=self.library is not None,
            buffers=self.steps.target.max_buffers, within=within,
        )  # fmt: skip
        made: set[int] = set()
        whole = [n for n in self.nodes if n.op == "matmul" or n in self.calls]
        wanted |= {id(x) for n in whole for x in n.inputs if x not in within}
        wanted |= {id(n) for n in self.graph.outputs}
        read = _read(self.calls)
        joined = joins(self.nodes, self.calls, self.graph.outputs)
        for node in self.nodes:
            if id(node) in self.where or id(node) in self.scalars:
                continue
            seen = self.where.get(id(node.inputs[0])) if node.inputs else None
            if seen is not None and node not in self.calls and (moved := view(node, seen)) is not None:
                self.where[id(node)] = moved
            elif id(node) in wanted:
                made.add(id(node))
                if id(node) in joined and self._joined(node, joined[id(node)]):
                    continue
                if self._is_over(node, made):
                    self.where[id(node)] = self.where[id(node.inputs[0])]
                    continue
                self.where[id(node)] = self._new(node, read)
        return made

    def _new(self, node: Node, read: Collection[int]) -> Layout:
        """Return where a node's buffer has it: packed, unless a call would rather have its rows apart."""
        shape, dtype, rows = node.spec.shape, node.spec.dtype, 0
        order = self._order(node)
        if order:
            return ordered(self.steps.temporary(prod(shape), dtype), shape, order)
        if type(self.library) is Library and shape:
            if node in self.calls and not (node.op in table and table[node.op].results):
                rows = self.library.apart(node, [self.where.get(id(x)) for x in node.inputs])
            elif id(node) in read and node.op in _APART:
                rows = self.library.apart(node, ())
        if not rows:
            return packed(self.steps.temporary(prod(shape), dtype), shape)
        slot = self.steps.temporary(prod(shape[:-1]) * rows, dtype)
        return Layout(slot, shape, row_major((*shape[:-1], rows)))

    def _joined(self, node: Node, join: Join) -> bool:
        """Put the results of a call where their concatenation has them, if the call can."""
        if any(self._orders(x.inputs[0]) is None for x in join.parts):
            return False
        slot = self.steps.temporary(prod(join.whole.spec.shape), node.spec.dtype)
        found = join.layouts(slot)
        if found is None:
            self.steps.forget(slot)
            return False
        self.where |= found
        return True

    def _orders(self, call: Node) -> Sequence[tuple[int, ...]] | None:
        """Return in which order the axes of a call's results lie best; None where they must be in C order."""
        library = self.library
        if type(library) is not Library or call not in self.calls:
            return None
        return library.orders(call, [self.where.get(id(x)) for x in call.inputs])

    def _order(self, node: Node) -> tuple[int, ...]:
        """Return in which order the axes of a call's result lie; nothing: in C order."""
        call = node.inputs[0] if node.op == "result" else node
        orders = self._orders(call)
        if not orders or (node is call and node.op in table and table[node.op].results):
            return ()
        return orders[node.attrs["index"] if node.op == "result" else 0]

    def _is_over(self, node: Node, made: Collection[int]) -> bool:
        """Return whether a node's result takes the place of its first operand, which nobody else reads."""
        library = self.library
        if type(library) is not Library or node not in self.calls or not library.over(node):
            return False
        x = node.inputs[0]
        uses = sum(n is x for n in (*self.graph.outputs, *(i for n in self.nodes for i in n.inputs)))
        return id(x) in made and uses == 1 and x.spec == node.spec

    def program(self, begin: Begin | None) -> Program:
        groups = self._groups()
        read = self._read_elsewhere(groups)
        for group in groups:
            self._lower(group, read)
        outputs = []
        for node in self.graph.outputs:
            if id(node) in self.scalars:
                slot = self.steps.temporary(1, node.spec.dtype)
                lower_map(carve(node, slot, {}, self.scalars, self.sized), self.steps)
                outputs.append(packed(slot, ()))
            else:
                outputs.append(self.where[id(node)])
        whole = self.library is not None
        return arranged(self.steps, outputs, self.count, self.graph, self.replaces, whole=whole, begin=begin)

    def _groups(self) -> list[FusionGroup]:
        """Return the kernels to be, in order; what they had better compute again has no buffer any more."""
        groups = list(GroupBuilder(self.nodes, self.made, self.steps.target, self.calls).ordered())
        if self.library is None or len(groups) < 2:
            return groups
        shown = self._shown() | _read(self.calls)
        left = rematerialized(groups, self.made, self.where, self.nodes, shown, self.steps.target)
        if not left:
            return groups
        self.made -= left
        for key in left:
            self.steps.sizes.pop(self.where.pop(key).slot)
        return list(GroupBuilder(self.nodes, self.made, self.steps.target, self.calls).ordered())

    def _shown(self) -> set[int]:
        """Return the ids of the nodes whose buffers are those of the outputs."""
        found: set[int] = set()
        for node in self.graph.outputs:
            while id(node) not in self.made and node.inputs and id(node) in self.where:
                node = node.inputs[0]
            found.add(id(node))
        return found

    def _read_elsewhere(self, groups: Sequence[FusionGroup]) -> set[int]:
        """Return the ids of the nodes whose buffers are read outside the kernel that makes them."""
        found = self._shown()
        for group in groups:
            for root in group.roots.values():
                found |= {id(n) for n, _ in root.reads if id(n) not in group.roots}
        return found

    def _lower(self, group: FusionGroup, read: Collection[int]) -> None:
        node = next(iter(group.roots.values())).node
        if node in self.calls:
            self._call(node)
            return
        if node.op == "result":
            return
        if id(node) in self.bundles:
            self._bundle(group, node)
            return
        if not (node.op in INLINED or node.op in SCHEDULED):
            raise UnsupportedOpError(f"{node.op}: no schedule is written for it, and it is no call here.")
        stored = {k: self.where[k].slot for k in group.roots if k in read}
        for k in group.roots:
            if k not in stored:
                self.steps.sizes.pop(self.where[k].slot)
        signature = self.signatures.of(group, stored)
        if lookup(signature, self.steps):
            return
        before, first = len(self.steps.items), self.steps.next_slot
        self._schedule(group, stored)
        insert(signature, self.steps, before, first)

    def _bundle(self, group: FusionGroup, node: Node) -> None:
        """Append the launches of a bundle; it is opened where none like it was before."""
        parts = self.bundles[id(node)]
        self.steps.sizes.pop(self.where[id(node)].slot)
        signature = self.signatures.of(group, {}, parts)
        if lookup(signature, self.steps):
            return
        roots = opened(group, parts)
        before, first = len(self.steps.items), self.steps.next_slot
        self.where |= {id(root.node): self.where[id(part)] for part, root in roots.items()}
        stored = {id(root.node): self.where[id(part)].slot for part, root in roots.items()}
        self.opened += roots.values()
        self._schedule(over(group, [*roots.values()]), stored)
        insert(signature, self.steps, before, first)

    def _schedule(self, group: FusionGroup, stored: Mapping[int, int]) -> None:
        """Append the launches of a group whose roots in ``stored`` go to these slots."""
        request = ScheduleRequest(
            group=group, where=self.where, scalars=self.scalars, stored=stored, sized=self.sized,
            whole=self.library is not None, reuses=self.asked,
        )  # fmt: skip
        build(request, self.steps)

    def _call(self, node: Node) -> None:
        """Append the call that runs an op of the device's."""
        given: list[Layout | RuntimeArg] = []
        for x in node.inputs:
            if id(x) in self.scalars:
                given.append(RuntimeArg("scalar", self.scalars[id(x)]))
            else:
                given.append(self.where[id(x)])
        specs = table[node.op].specs(tuple(x.spec for x in node.inputs), node.attrs)
        lies = [self.where[id(node)]]
        if table[node.op].results:
            parts = {n.attrs["index"]: n for n in self.nodes if n.op == "result" and n.inputs[0] is node}
            lies = [
                self.where[id(parts[k])] if k in parts and id(parts[k]) in self.where
                else packed(self.steps.temporary(prod(s.shape), s.dtype), s.shape)
                for k, s in enumerate(specs)
            ]  # fmt: skip
            self.steps.sizes.pop(self.where[id(node)].slot, None)
        free = self._orders(node) is not None and not all(x.is_contiguous and not x.offset for x in lies)
        filled, taken = self._side_slots(node)
        call = LibraryCall(
            op=node.op, attrs=node.attrs, inputs=tuple(given), specs=tuple(x.spec for x in node.inputs),
            outputs=tuple([x.slot for x in lies]), out_specs=specs, layouts=tuple(lies) if free else (),
            row_stride=0 if free or lies[0].is_contiguous else lies[0].strides[-2],
            side_output=filled and filled[0], side_input=taken and taken[0],
            side_size=(filled or taken or (0, 0))[1],
        )  # fmt: skip
        self.steps.items.append(call)

    def _side_slots(self, node: Node) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Return the slot that a call leaves something in for others, and the one that it takes it from."""
        library = self.library
        if type(library) is not Library:
            return None, None
        many = max([library.leaves(node, n) for n in self.read_by.get(node, ())], default=0)
        if many:
            self.left[id(node)] = self.steps.temporary(many, float32), many
        found = [self.left[id(x)] for x in node.inputs if id(x) in self.left and library.leaves(x, node)]
        return self.left.get(id(node)), next(iter(found), None)
