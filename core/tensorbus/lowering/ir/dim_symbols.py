"""Symbols of axes: those of a graph that have the same length by construction have one.

Each such class becomes one parameter of a kernel. Two axes that are of one length by chance stay apart, so
that the kernel serves other sizes as well.
"""

from __future__ import annotations

from ...backend_interface.graph import Graph, Node
from ..op_sets import SCANS, SORTS

_SAME = frozenset({"flip", "scatter", *SCANS, *SORTS})


class Symbols:
    """The names of the axes of every node of a graph; an axis of length 1 has none."""

    def __init__(self, graph: Graph) -> None:
        self._parent: list[int] = []
        self._axes: dict[int, list[int]] = {}
        self._names: dict[int, str] = {}
        self._nodes = list(graph)
        for node in self._nodes:
            self._axes[id(node)] = self._of(node)

    def name(self, node: Node, axis: int) -> str:
        """Return the name of the class that an axis belongs to, the same for equal graphs."""
        root = self._find(self._axes[id(node)][axis])
        return self._names.setdefault(root, f"n{len(self._names)}")

    def _new(self) -> int:
        self._parent.append(len(self._parent))
        return len(self._parent) - 1

    def _find(self, k: int) -> int:
        while self._parent[k] != k:
            k = self._parent[k]
        return k

    def _union(self, a: int, b: int) -> None:
        a, b = self._find(a), self._find(b)
        self._parent[max(a, b)] = min(a, b)

    def _of(self, node: Node) -> list[int]:
        shape, a = node.spec.shape, node.attrs
        operands = [(x.spec.shape, self._axes[id(x)]) for x in node.inputs]
        if not operands:
            return [self._new() for _ in shape]
        x_shape, x_axes = operands[0]
        match node.op:
            case "permute_dims":
                return [x_axes[k] for k in a["axes"]]
            case "reshape":
                return self._reshape(x_shape, x_axes, shape)
            case "slice":
                whole = [n == m and t == 1 for n, m, t in zip(x_shape, a["size"], a["step"], strict=True)]
                return [s if keep else self._new() for s, keep in zip(x_axes, whole, strict=True)]
            case "pad":
                grown = [low + high for low, high in zip(a["low"], a["high"], strict=True)]
                return [self._new() if g else s for s, g in zip(x_axes, grown, strict=True)]
            case "concat":
                for _, axes in operands[1:]:
                    for k, s in enumerate(axes):
                        if k != a["axis"]:
                            self._union(s, x_axes[k])
                return [self._new() if k == a["axis"] else s for k, s in enumerate(x_axes)]
            case "random_bits":
                return [self._new() for _ in shape]
            case "windows":
                lead = len(x_axes) - len(a["size"])
                return x_axes[:lead] + [self._new() for _ in shape[lead:]]
            case "sum" | "prod" | "max" | "min" | "any" | "all" | "argmax" | "argmin":
                if a["keepdims"]:
                    return [self._new() if k in a["axis"] else s for k, s in enumerate(x_axes)]
                return [s for k, s in enumerate(x_axes) if k not in a["axis"]]
            case "matmul":
                return [*self._batch(operands, shape[:-2], 2), x_axes[-2], operands[1][1][-1]]
            case "gather":
                return self._batch(operands[1:], operands[1][0], 0) + x_axes[len(operands) - 1 :]
            case "slice_update":
                for k, s in enumerate(operands[1][1]):
                    if operands[1][0][k] == x_shape[k]:
                        self._union(s, x_axes[k])
                return x_axes
            case op if op in _SAME:
                return x_axes
            case _:
                return self._batch(operands, shape, 0)

    def _batch(
        self, operands: list[tuple[tuple[int, ...], list[int]]], shape: tuple[int, ...], drop: int
    ) -> list[int]:
        """Unite axes that broadcast together: those of length 1 apart."""
        result = []
        for k in range(-len(shape), 0):
            symbol = None
            for x_shape, axes in operands:
                at = k - drop
                if len(axes) >= -at and x_shape[at] == shape[k] and (shape[k] != 1 or len(operands) == 1):
                    if symbol is None:
                        symbol = axes[at]
                    else:
                        self._union(axes[at], symbol)
            result.append(self._new() if symbol is None else symbol)
        return result

    def _reshape(self, old: tuple[int, ...], axes: list[int], new: tuple[int, ...]) -> list[int]:
        old_at = [(n, s) for n, s in zip(old, axes, strict=True) if n != 1]
        new_at = [k for k, n in enumerate(new) if n != 1]
        result: dict[int, int] = {}
        front = 0
        while front < min(len(old_at), len(new_at)) and old_at[front][0] == new[new_at[front]]:
            result[new_at[front]] = old_at[front][1]
            front += 1
        back = 1
        while back <= min(len(old_at), len(new_at)) - front and old_at[-back][0] == new[new_at[-back]]:
            result[new_at[-back]] = old_at[-back][1]
            back += 1
        return [result[k] if k in result else self._new() for k in range(len(new))]
