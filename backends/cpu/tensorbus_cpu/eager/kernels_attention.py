"""Attention by score programs: large calls by the kernels that compiled programs have of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

from tensorbus.backend_api import Call, CompileRequest, Kernel, Spec, graph_of_op, takes_products

from ..compiler import NATIVE

_FEWEST_SCORES: Final = 1 << 18
"""Of fewer scores NumPy has made the blocks before a compiler is done."""
_QUERY: Final = {"flex_attention": 0, "flex_attention_gradients": 4}
"""Which operand the query is, of each op."""


def _supports(call: Call) -> bool | str:
    if call.shapes is None or len(call.shapes) < 3:
        return "its shapes are not known"
    place = _QUERY[call.op]
    scores = prod(call.shapes[place][:3]) * call.shapes[place + 1][2]
    if call.op == "flex_attention" and takes_products(call.shapes[place], call.attrs):
        return "queries are few: products make it"
    if scores < _FEWEST_SCORES:
        return f"{scores} scores are too few to compile for"
    return NATIVE.compiler() is not None or "there is no C compiler"


def _prepare(call: Call) -> Callable[..., Any]:
    """Return what runs the op as a program of its own."""
    from ..lowering import CpuLowering

    assert call.shapes is not None
    specs = [Spec(s, d) for s, d in zip(call.shapes, call.dtypes, strict=True)]
    graph = graph_of_op(call.op, specs, call.attrs)
    run = CpuLowering().compile(CompileRequest(graph=graph, index=call.index))
    return lambda *values: tuple(run(values))


def attention_kernels() -> Mapping[str, Kernel]:
    """Return the kernels of attention and of its derivative."""
    return {op: Kernel(name="generated", prepare=_prepare, supports=_supports) for op in _QUERY}
