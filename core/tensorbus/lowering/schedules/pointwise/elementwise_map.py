"""A map as its schedules see it: one result of a task, or several of a group, over one domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ....backend_interface.graph import Graph, Node
from ....dtypes.definition import DType
from ...fusion.canonicalize import DomainKernel
from ...heuristics import Heuristics
from ...ir.builder import Builder
from ...ir.inline import Index
from ...ir.kernel_task import KernelTask, LaunchList, Loops, element_offset
from ...ir.layout import Layout, Shape, packed
from ...ir.loop_ir import Expr
from .stores import domain_lengths, is_nontemporal, store_offset
from .transpose_tile import transposed_inputs

_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class MapKernel:
    """The kernel of a map while it is written: ``emit`` writes the element at an index of the domain.

    ``slots`` are those of its buffers, and ``fills`` as in ``Builder.finish`` where one loop fills it.
    """

    b: Builder
    lengths: Sequence[Expr]
    slots: Mapping[str, int]
    fills: Mapping[str, int]
    emit: Callable[[Index], None]

    def finish(
        self, steps: LaunchList, loops: Loops, task: bool = False, tiled: bool = False,
        fills: Mapping[str, int] = _NOTHING,
    ) -> None:  # fmt: skip
        """Append the launch."""
        steps.add(self.b.finish(loops, task=task, tiled=tiled, fills=fills), self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseMap:
    """Results over one domain, each element of which could be computed alone.

    ``dtypes`` are those of the results, ``wide`` of those that have an element for each of the domain.
    ``transposed`` is the axis along which some operands of a ``task`` lie packed, with these operands.
    ``open(name)`` begins a kernel, called ``name`` or, in vectors, ``vector_name``.
    """

    name: str
    vector_name: str
    graph: Graph
    domain: Shape
    dtypes: Sequence[DType]
    wide: Sequence[DType]
    open: Callable[[str], MapKernel]
    task: KernelTask | None = None
    transposed: tuple[int, list[Node]] | None = None


def map_of_task(task: KernelTask, limits: Heuristics) -> ElementwiseMap:
    """Return the map that a task of elementwise and movement ops is."""
    root, domain, dtype = task.root, task.root.spec.shape, task.root.spec.dtype
    layout = packed(task.out, domain) if task.strides is None else Layout(task.out, domain, task.strides)

    def open_(name: str) -> MapKernel:
        b = Builder(name)
        inliner, slots = task.inliner(b)
        lengths = inliner.lengths(root)
        out = b.buffer("out", dtype, writes=True)

        def emit(index: Index) -> None:
            with inliner.scope():
                value = inliner.value(root, index)
                at = element_offset(b, out, index, lengths, layout)
                b.store(out, at, value, nontemporal=is_nontemporal(domain, dtype, limits))

        fills = {out: 1} if layout.is_contiguous else {}
        return MapKernel(b=b, lengths=lengths, slots={**slots, out: task.out}, fills=fills, emit=emit)

    return ElementwiseMap(
        name=f"tb_{root.op}", vector_name=f"tb_{root.op}_wide", graph=task.graph, domain=domain,
        dtypes=(dtype,), wide=(dtype,), open=open_, task=task, transposed=transposed_inputs(task, limits),
    )  # fmt: skip


def map_of_group(fused: DomainKernel, limits: Heuristics) -> ElementwiseMap:
    """Return the map that a group without reductions is, whose results lie anywhere."""
    domain, outputs = fused.domain, fused.outputs

    def open_(name: str) -> MapKernel:
        b = Builder(name)
        inliner, slots = fused.inliner(b)
        lengths = domain_lengths(b, inliner, fused)
        names = [
            b.buffer(f"out{k}" if k else "out", o.node.spec.dtype, writes=True) for k, o in enumerate(outputs)
        ]

        def emit(index: Index) -> None:
            with inliner.scope():
                # All values first: an output may take the place of an operand.
                values = b.all([inliner.at(o.node, index) for o in outputs])
                for out, o, e in zip(names, outputs, values, strict=True):
                    at = store_offset(b, out, o, index, lengths, fused)
                    past = is_nontemporal(domain, o.node.spec.dtype, limits)
                    b.store(out, at, e, nontemporal=past)

        fills = {
            out: 1 for out, o in zip(names, outputs, strict=True)
            if Layout(o.slot, o.node.spec.shape, o.strides).is_contiguous and fused.spans_domain(o.node)
        }  # fmt: skip
        named = {**slots, **{out: o.slot for out, o in zip(names, outputs, strict=True)}}
        return MapKernel(b=b, lengths=lengths, slots=named, fills=fills, emit=emit)

    name = f"tb_{outputs[-1].node.op}_{len(outputs)}"
    return ElementwiseMap(
        name=name, vector_name=name, graph=fused.graph, domain=domain,
        dtypes=tuple(o.node.spec.dtype for o in outputs),
        wide=tuple(o.node.spec.dtype for o in outputs if fused.spans_domain(o.node)), open=open_,
    )  # fmt: skip
