"""Accesses from a kernel's domain to the nodes behind a root: at the same element, or anywhere.

A domain is a tuple of lengths above 1. An access says which axis of it each axis of a node follows; an axis
of length 1 follows none. Elementwise ops, broadcasts, permutations and reshapes that only add or drop axes of
length 1 keep it; whatever else stands between makes an element depend on others.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from ...backend_interface.graph import Node
from ..ir.inline import counts
from ..ir.layout import Shape
from ..op_sets import ELEMENTWISE, REDUCTIONS

Access = tuple[int | None, ...]
Read = tuple[Node, Access | None]
"""A node, and how its elements are reached; None: at other places than the domain's."""
FREE: Final = -1
"""Stands for the axis of a row that an index chooses an element of."""


def loop_axes(shape: Shape) -> tuple[int, ...]:
    """Return the axes that a domain of this shape has: those longer than 1."""
    return tuple(k for k, n in enumerate(shape) if n != 1)


def own_access(shape: Shape) -> Access:
    """Return the access of a node that is its own domain.

    >>> own_access((4, 1, 3))
    (0, None, 1)
    """
    numbers = iter(range(len(shape)))
    return tuple(None if n == 1 else next(numbers) for n in shape)


def operand_access(node: Node, x: Node, access: Access) -> Access | None:
    """Return the access of an operand of ``node``; None where its elements are not those of the domain.

    Reductions are not followed here: their operand has more axes than they.
    """
    shape = x.spec.shape
    if node.op in ELEMENTWISE or node.op == "broadcast_to":
        if len(shape) == len(access) and 1 not in shape:
            return access
        return tuple(
            [None if n == 1 else a for n, a in zip(shape, access[len(access) - len(shape) :], strict=True)]
        )
    if node.op == "permute_dims":
        axes = node.attrs["axes"]
        return tuple([access[axes.index(k)] for k in range(len(axes))])
    if node.op == "reshape":
        if [n for n in node.spec.shape if n != 1] != [n for n in shape if n != 1]:
            return None
        left = iter([a for n, a in zip(node.spec.shape, access, strict=True) if n != 1])
        return tuple([None if n == 1 else next(left) for n in shape])
    return None


def reduced_access(node: Node, access: Access, reduced: tuple[int, ...]) -> Access | None:
    """Return the access of the operand of a reduction over the domain's axes ``reduced``."""
    (x,) = node.inputs
    over = set(node.attrs["axis"])
    if node.attrs["keepdims"]:
        remaining = iter([a for k, a in enumerate(access) if k not in over])
    else:
        remaining = iter(access)
    inner = iter(reduced)
    result: list[int | None] = []
    for k, n in enumerate(x.spec.shape):
        result.append(next(inner, None) if k in over and n != 1 else None if k in over else next(remaining))
    walked_over = sum(1 for k in over if x.spec.shape[k] != 1)
    return tuple(result) if walked_over == len(reduced) else None


def picked(node: Node, access: Access, reduced: Sequence[int] = ()) -> tuple[int, Access] | None:
    """Return how a gather takes one element of each row; None for any other.

    That is ``x[0, 1, 2 ..., index]``: the number of the axis that ``index`` is for, and the access of ``x``,
    in which that axis is ``FREE``. Rows are read along ``reduced``: what has elements there takes many.
    """
    if node.op != "gather" or FREE in access or not set(access).isdisjoint(reduced):
        return None
    x, *indices = node.inputs
    shape = indices[0].spec.shape
    chosen = [k for k, i in enumerate(indices) if counts(i) is None]
    if len(chosen) != 1 or len(x.spec.shape) != len(indices) or any(i.spec.shape != shape for i in indices):
        return None
    axes: list[int | None] = []
    for k, i in enumerate(indices):
        along = counts(i)
        if along is None:
            axes.append(FREE)
        elif shape[along] != x.spec.shape[k] or access[along] in axes:
            return None
        else:
            axes.append(access[along])
    return chosen[0], tuple(axes)


def reads(root: Node, access: Access | None, reduced: tuple[int, ...], stop: Container[Node]) -> list[Read]:
    """Return every node that computing ``root`` comes to, once an access; ``stop`` nodes end the search.

    ``root`` itself is followed. Nodes behind others than elementwise ones have no access.
    """
    computed: dict[Read, None] = {}
    stack: list[Read] = [(root, access)]
    while stack:
        read = stack.pop()
        if read in computed:
            continue
        computed[read] = None
        node, at = read
        if node in stop and node is not root:
            continue
        if at is None:
            stack += [(x, None) for x in reversed(node.inputs)]
        elif node.op in REDUCTIONS:
            stack.append((node.inputs[0], reduced_access(node, at, reduced)))
        elif (pick := picked(node, at, reduced)) is not None:
            x, *indices = node.inputs
            stack += [*((i, at) for i in reversed(indices)), (x, pick[1])]  # what counts may lie in a buffer
        else:
            stack += [(x, operand_access(node, x, at)) for x in reversed(node.inputs)]
    return [*computed]
