"""Steps of a compiled program that are calls of the device's eager kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..backend_interface.graph import Graph, Node
from ..backend_interface.protocols import Call as Request
from ..devices.device import Device
from ..dispatch.candidates import judge
from ..dispatch.kernel_preference import preferred
from ..dispatch.kernel_tables import has_others, owner_of
from ..dispatch.selection import choose
from ..lowering.ir.builder import RuntimeArg
from ..ops.definition import CONTROL_FLOW, USER, Spec, table
from .kernel_interpreter import Interpreted

if TYPE_CHECKING:
    from ..lowering.ir.kernel_task import LibraryCall


def library_call(call: LibraryCall, device: Device) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return what runs a program's call: it takes the operands in order and returns the results.

    Operands that are ``RuntimeArg`` are Python numbers. An op that has no kernel runs as its decomposition. A
    constant is made at the first run, and is the same value in all others.
    """
    inputs = tuple(
        Node(
            op="input",
            attrs={"index": k, **({"scalar": True} if isinstance(x, RuntimeArg) else {})},
            spec=spec,
        )
        for k, (x, spec) in enumerate(zip(call.inputs, call.specs, strict=True))
    )
    whole = Node(op=call.op, inputs=inputs, attrs=call.attrs, spec=call.out_specs[0])
    outputs: tuple[Node, ...] = (whole,)
    if table[call.op].results:
        outputs = tuple(
            Node(op="result", inputs=(whole,), attrs={"index": k}, spec=spec)
            for k, spec in enumerate(call.out_specs)
        )
    run = Interpreted(Graph(inputs=inputs, outputs=outputs), device)
    if call.op != "full":
        return run
    known: list[Sequence[Any]] = []

    def once(values: Sequence[Any]) -> Sequence[Any]:
        if not known:
            known.append(run(values))
        return known[0]

    return once


def into_kernel(
    call: LibraryCall, device: Device, way: int = 0
) -> Callable[[Sequence[Any], Sequence[Any]], bool] | None:
    """Return what writes the results of a program's call into buffers that are there; None without a way.

    It takes the operands and the buffers, and says whether it could: of other layouts it may not. ``way``
    is what was measured to be the fastest of the kernel's ways.
    """
    if any(isinstance(x, RuntimeArg) for x in call.inputs):
        return None
    request = _request(call.op, call.specs, call.attrs, call.out_specs[0], device)
    chosen = choose(call.op, judge(call.op, request, device), device)
    if chosen is None or chosen.kernel.out is None:
        return None
    return chosen.kernel.out(
        replace(
            request,
            row_stride=call.row_stride,
            layouts=tuple([(x.strides, x.offset) for x in call.layouts]),
            side_size=call.side_size if call.side_output is not None else 0,
            side_input=call.side_input is not None,
            variant=way,
        )
    )


def has_kernel(node: Node, device: Device) -> bool:
    """Return whether the device has a kernel that serves a node of a graph."""
    request = _request(node.op, [x.spec for x in node.inputs], node.attrs, node.spec, device)
    return choose(node.op, judge(node.op, request, device), device) is not None


def called(graph: Graph, device: Device) -> frozenset[str]:
    """Return the ops of a graph that are left to kernels, whatever code a device would generate for them.

    They are those for which the user prefers a kernel, or that one of another package's serves.
    """
    ops: set[str] = set()
    for node in graph:
        if node.op in ops or node.op not in table or not node.inputs:
            continue
        if table[node.op].family in (USER, CONTROL_FLOW):
            continue
        if preferred(node.op) is not None or (has_others(node.op, device) and _is_others(node, device)):
            ops.add(node.op)
    return frozenset(ops)


def _is_others(node: Node, device: Device) -> bool:
    request = _request(node.op, [x.spec for x in node.inputs], node.attrs, node.spec, device)
    chosen = choose(node.op, judge(node.op, request, device), device)
    return chosen is not None and chosen.owner != owner_of(device)


def _request(op: str, specs: Sequence[Spec], attrs: Mapping[str, Any], out: Spec, device: Device) -> Request:
    return Request(
        op=op, dtypes=tuple(s.dtype for s in specs), shapes=tuple(s.shape for s in specs), attrs=attrs,
        out_dtype=out.dtype, out_shape=out.shape, index=device.index,
    )  # fmt: skip
