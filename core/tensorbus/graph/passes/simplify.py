"""Making a graph smaller without changing what it means: constants, equal nodes, ops that do nothing.

Only what is exact is done: results keep every bit, the sign of zero and NaN.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from ...backend_interface.graph import Graph, Node
from ...dtypes.definition import DType, Scalar, float32, float64, integer_range
from ...ops.definition import Spec, table
from ...tracing.sym_int import always_same
from ..pipeline import Pass, run_passes
from ..rewrite import Rule, owned, rewrite_owned
from .scatter_patterns import flat_products, one_copy, reshaped, scatter_onto, single_scatter
from .slice_updates_to_concat import joined_updates


def simplify(graph: Graph) -> Graph:
    """Return an equal graph, of as few nodes as the passes of ``SIMPLIFY`` know."""
    return _sorted(run_passes(owned(graph), SIMPLIFY, None))


def _sorted(graph: Graph) -> Graph:
    """Return the graph with its nodes in the order in which its outputs need them."""
    return Graph(inputs=graph.inputs, outputs=graph.outputs)


def frozen(value: Any) -> Any:
    """Return attributes in a form that hashes, and in which 1, 1.0, True and -0.0 differ from each other."""
    if isinstance(value, Mapping):
        return tuple(sorted((key, frozen(v)) for key, v in value.items()))
    if isinstance(value, (tuple, list)):
        return tuple(frozen(v) for v in value)
    if isinstance(value, (float, complex)):
        return type(value).__name__, repr(value)
    return type(value).__name__, value


def _equal_nodes(graph: Graph) -> Rule:
    """Return the rule that makes nodes of one op, operands and attributes the same node."""
    known: dict[Any, Node] = {}
    named: dict[int, Any] = {}

    def rule(node: Node) -> Node:
        try:
            attrs = named.get(id(node.attrs)) if node.attrs else ()
            if attrs is None:
                attrs = named[id(node.attrs)] = _key(node.attrs)
            key = node.op, node.inputs, attrs, node.spec.shape, node.spec.dtype, node.recompute_tag
            return known.setdefault(key, node)
        except TypeError:  # an attribute that does not hash: a node of its own
            return node

    return rule


def _key(attrs: Mapping[str, Any]) -> Any:
    return tuple((key, frozen(attrs[key])) for key in sorted(attrs))


def _nothing_moved(graph: Graph) -> Rule:
    return lambda node: node.inputs[0] if _is_still(node) else node


def _is_still(node: Node) -> bool:
    """Return whether a node moves or casts its operand to what it is already."""
    if node.op not in _MOVES:
        return False
    spec, own = node.inputs[0].spec, node.spec
    return own.dtype is spec.dtype and always_same(own.shape, spec.shape) and _stays(node)


def _nothing_done(graph: Graph) -> Rule:
    return _plain


def _plain(node: Node) -> Node:
    """Return what a node that does nothing stands for."""
    if not node.inputs:
        return _scalar(node)
    x = node.inputs[0]
    if _is_still(node):
        return x
    if node.op == "reshape" and x.op == "reshape":
        return _plain(replace(node, inputs=x.inputs))
    if node.op == "broadcast_to" and x.op == "broadcast_to":
        return _plain(replace(node, inputs=x.inputs))
    if node.op == "permute_dims" and x.op == "permute_dims":
        axes = tuple(x.attrs["axes"][k] for k in node.attrs["axes"])
        return _plain(replace(node, inputs=x.inputs, attrs={"axes": axes}))
    if node.op == "permute_dims" and _only_units(node):
        return _plain(reshaped(x, node.spec.shape))
    if (permuted := _permuted_after(node)) is not None:
        return permuted
    if node.op in _REDUCTIONS and all(x.spec.shape[k] == 1 for k in node.attrs["axis"]):
        d = node.spec.dtype
        same = replace(node, op="cast", attrs={"dtype": d}, spec=Spec(x.spec.shape, d))
        return _plain(reshaped(_plain(same), node.spec.shape))
    neutral = _NEUTRAL.get(node.op)
    if neutral is not None and len(node.inputs) == 2:
        for side, value in neutral:
            if _is(node.inputs[side], value, node.spec.dtype) and node.inputs[1 - side].spec == node.spec:
                return node.inputs[1 - side]
    if node.op == "negative" and x.op == "negative":
        return x.inputs[0]
    return _folded(node)


def _permuted_after(node: Node) -> Node | None:
    """Return an elementwise op of permuted operands as a permutation of it: a view of what it makes."""
    if node.op not in table or table[node.op].family not in ("elementwise", "cast"):
        return None
    axes = next((x.attrs["axes"] for x in node.inputs if x.op == "permute_dims"), None)
    if axes is None:
        return None
    fixed = next((k for k in range(len(axes)) if axes[-1 - k] != len(axes) - 1 - k), len(axes))
    large = [x for x in node.inputs if len(x.spec.shape) > fixed or x.spec.shape == node.spec.shape]
    if not large or any(x.op != "permute_dims" or x.spec.shape != node.spec.shape for x in large):
        return None
    if any(x.attrs["axes"] != axes for x in large):
        return None
    inputs = tuple(x.inputs[0] if x in large else x for x in node.inputs)
    shape = large[0].inputs[0].spec.shape
    unpermuted = _plain(replace(node, inputs=inputs, spec=Spec(shape, node.spec.dtype)))
    return replace(node, op="permute_dims", inputs=(unpermuted,), attrs={"axes": axes})


def _only_units(node: Node) -> bool:
    """Return whether a permutation moves axes of length 1 only: it is a reshape then."""
    shape = node.inputs[0].spec.shape
    long = [k for k in node.attrs["axes"] if shape[k] != 1]
    return long == sorted(long)


def _stays(node: Node) -> bool:
    match node.op:
        case "permute_dims":
            return list(node.attrs["axes"]) == sorted(node.attrs["axes"])
        case "slice":
            return all(step == 1 for step in node.attrs["step"])
        case "flip":
            return all(node.spec.shape[k] <= 1 for k in node.attrs["axis"])
        case _:
            return True


_MOVES: Final = frozenset({"cast", "broadcast_to", "reshape", "permute_dims", "slice", "flip", "pad"})
_REDUCTIONS: Final = frozenset({"sum", "prod", "max", "min", "any", "all"})
_NEUTRAL: Final[dict[str, tuple[tuple[int, float], ...]]] = {
    "multiply": ((0, 1.0), (1, 1.0)), "divide": ((1, 1.0),), "subtract": ((1, 0.0),),
    "add": ((0, -0.0), (1, -0.0)), "power": ((1, 1.0),), "floor_divide": (),
}  # fmt: skip
"""Operands that change nothing, by side. Adding +0 makes +0 of -0: only integers stay."""


def _is(node: Node, value: float, dtype: DType) -> bool:
    """Return whether a node is the constant ``value``; the sign of zero counts for floats."""
    if node.op in ("broadcast_to", "reshape"):
        return _is(node.inputs[0], value, dtype)
    if node.op not in ("constant", "full") or isinstance(node.attrs["value"], complex):
        return False
    constant = node.attrs["value"]
    if constant != value:
        return False
    return (not dtype.is_floating and not dtype.is_complex) or math.copysign(1, constant) == math.copysign(
        1, value
    )


def _scalar(node: Node) -> Node:
    """Return a full array of one element as the constant that it is, and whole floats as floats."""
    if node.op not in ("full", "constant") or node.spec.shape != ():
        return node
    value = node.attrs["value"]
    whole = type(value) is int and node.spec.dtype.is_floating and abs(value) < 1 << 53
    if node.op == "constant" and not whole:
        return node
    return replace(node, op="constant", attrs={"value": float(value) if whole else value})


_FOLDED: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "negative": operator.neg,
    "divide": operator.truediv, "sqrt": math.sqrt,
}  # fmt: skip
"""Ops whose result in float64, rounded once more to float32, is that of float32."""


def _folded(node: Node) -> Node:
    """Return a node of constants as a constant."""
    fold = _FOLDED.get(node.op)
    dtype = node.spec.dtype
    if node.op in ("broadcast_to", "reshape") and node.spec.shape == ():
        return node.inputs[0] if node.inputs[0].spec == node.spec else node
    if fold is None or node.spec.shape != () or any(x.op != "constant" for x in node.inputs):
        return node
    if dtype not in (float32, float64) and not (dtype.is_integer and node.op not in ("divide", "sqrt")):
        return node
    try:
        values = [_rounded(x.attrs["value"], dtype) for x in node.inputs]
        value = _rounded(fold(*values), dtype)
    except (ArithmeticError, ValueError):
        return node
    if isinstance(value, float) and not math.isfinite(value):
        return node
    return replace(node, op="constant", inputs=(), attrs={"value": value})


def _rounded(value: Scalar, dtype: DType) -> Any:
    if dtype.is_integer:
        low, high = integer_range(dtype)
        return (int(value.real) - low) % (high - low + 1) + low
    real = float(value.real)
    return struct.unpack("f", struct.pack("f", real))[0] if dtype is float32 else real


def _pass(name: str, rule: Callable[[Graph], Rule], ops: str = "") -> Pass[None]:
    """Return the pass of a rule for some ops, or for all; it has the graph's nodes for its own."""
    of = frozenset(ops.split())
    return Pass(name=name, run=lambda graph, _: rewrite_owned(graph, rule(graph), of))


def _one_copy(graph: Graph, _: None) -> Graph:
    graph = _sorted(graph)  # of several copies it takes the first
    return rewrite_owned(graph, one_copy(graph), ("reshape",))


SIMPLIFY: Final[tuple[Pass[None], ...]] = (
    _pass("drop identities", _nothing_moved, " ".join(_MOVES)),
    _pass("common subexpressions", _equal_nodes),
    _pass("flatten products", flat_products, "sum permute_dims matmul"),
    _pass("fold", _nothing_done),
    _pass("common subexpressions", _equal_nodes),
    _pass("single scatters to where", single_scatter, "scatter sum"),
    _pass("scatter onto sums", scatter_onto, "scatter add"),
    _pass("slice updates to concat", joined_updates, "add"),
    _pass("flatten products", flat_products, "sum permute_dims matmul"),
    _pass("fold", _nothing_done),
    _pass("common subexpressions", _equal_nodes),
    Pass(name="share copies", run=_one_copy),
)
"""The passes of ``simplify``: products are flattened before permutations behind them move."""
