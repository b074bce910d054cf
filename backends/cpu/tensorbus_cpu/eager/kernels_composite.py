"""Elementwise composites in one go.

Many elements take a generated kernel; few of them, or a machine without a compiler, NumPy's functions in a
row, with no tensors in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, Kernel, Node, Spec, elementwise_composites, trace

from ..memory import DTYPES
from .kernels_elementwise import by_size
from .kernels_native import COMPUTE_BOUND_SIZE, SLOW_IN_NUMPY_SIZE, GeneratedKernel, is_covered

NAMES: Final = tuple(name for name in elementwise_composites() if name != "log10")
"""The ops that take these kernels: all elementwise composites but one, which NumPy has."""
Run = Callable[..., Any]


def composite_kernels(
    numpy: Mapping[str, Kernel], elementwise: Mapping[str, Kernel]
) -> dict[str, Sequence[Kernel]]:
    """Return the candidates of each: NumPy's function where it has one, then the generated kernel.

    ``elementwise`` are the kernels of the prims that composites call.
    """
    generated = _generated({**numpy, **elementwise})
    return {name: (*_own(name, numpy), generated) for name in NAMES}


def _own(name: str, numpy: Mapping[str, Kernel]) -> tuple[Kernel, ...]:
    """Return NumPy's kernel of a composite; it knows the dtypes that NumPy's function has."""
    if name not in numpy:
        return ()
    return (replace(by_size(numpy[name], COMPUTE_BOUND_SIZE), name="numpy", dtypes=numpy[name].dtypes),)


def _generated(table: Mapping[str, Kernel]) -> Kernel:
    """Return the kernel of any composite; ``table`` has those of the ops that they call."""

    def prepare(call: Call) -> Run:
        few: Run | None = None

        def in_a_row(*values: Any) -> Any:
            nonlocal few
            if few is None:
                few = _in_a_row(call, table)
            return few(*values)

        many = GeneratedKernel(call, in_a_row)

        def run(*values: Any) -> Any:
            for x in values:
                if type(x) is np.ndarray and x.size >= SLOW_IN_NUMPY_SIZE:
                    return many(*values)
            return few(*values) if few is not None else in_a_row(*values)

        return run

    return Kernel(name="generated", prepare=prepare, supports=_supports)


def _supports(call: Call) -> bool | str:
    return is_covered(call) or "of the dtypes that the generated kernels have only"


def _in_a_row(call: Call, table: Mapping[str, Kernel]) -> Run:
    """Return a function of one call for each op of the decomposition, which serves every shape."""
    graph = trace(call.op, [Spec((), d) for d in call.dtypes], call.attrs)
    inputs = {id(x): k for k, x in enumerate(graph.inputs)}
    numbers = [(k, DTYPES[d]) for k, d in enumerate(call.dtypes) if call.weak[k]]
    fixed = [node for node in graph if node.op == "constant"]
    computed = [node for node in graph if node.op != "constant" and id(node) not in inputs]
    constants = [node.attrs["value"] for node in fixed]
    places = {**inputs, **{id(node): len(inputs) + k for k, node in enumerate((*fixed, *computed))}}
    (out,) = (places[id(x)] for x in graph.outputs)
    last = {places[id(x)]: node for node in computed for x in node.inputs}
    steps = []
    for node in computed:
        operands = [places[id(x)] for x in node.inputs]
        ended = [k for k in dict.fromkeys(operands) if last[k] is node and k != out]
        steps.append((_step(node, table), operands, ended))

    def run(*values: Any) -> Any:
        slots = [*values, *constants]
        for k, dtype in numbers:
            slots[k] = np.asarray(slots[k], dtype)
        for function, operands, ended in steps:
            slots.append(function(*[slots[k] for k in operands]))
            for k in ended:
                slots[k] = None
        return slots[out]

    return run


def _step(node: Node, table: Mapping[str, Kernel]) -> Run:
    """Return what runs a node on its operands. Numbers are for the kernel, unless there is nothing else."""
    kernel, operands, attrs = table[node.op], node.inputs, node.attrs
    if kernel.function is not None:
        return partial(kernel.function, **attrs)
    weak = tuple(x.op == "constant" for x in operands)
    bare = bool(operands) and all(weak)
    call = Call(
        op=node.op, dtypes=tuple(x.spec.dtype for x in operands), shapes=None, attrs=attrs,
        out_dtype=node.spec.dtype, out_shape=None, index=0, weak=(False,) * len(operands) if bare else weak,
    )  # fmt: skip
    assert kernel.prepare is not None
    run = kernel.prepare(call)
    if not bare:
        return run
    own = [DTYPES[x.spec.dtype] for x in operands]
    return lambda *xs: run(*[np.asarray(x, d) for x, d in zip(xs, own, strict=True)])
