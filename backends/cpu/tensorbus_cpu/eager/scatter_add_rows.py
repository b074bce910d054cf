"""Scatters that add whole rows, as gradients of embeddings do: steps of a program, without Python."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tensorbus.backend_api import Layout, LibraryCall, Node, dtypes

_MOVES: Final = frozenset({"permute_dims", "broadcast_to", "slice", "flip", "windows", "pick"})


def adds_rows(layouts: Sequence[Layout | None], node: Node) -> bool:
    """Return whether ``row_words`` takes a node: float32 rows, added by an input of int64 along axis 0.

    ``layouts`` are those of the program's inputs, of which it takes packed ones.
    What an input says is known before the first step: it is checked there, and nothing fails later.
    """
    if node.op != "scatter" or node.attrs["mode"] != "add" or len(node.inputs) != 3:
        return False
    x, value, index = node.inputs
    if {x.spec.dtype, value.spec.dtype} != {dtypes.float32} or index.spec.dtype is not dtypes.int64:
        return False
    if value.spec.shape != (*index.spec.shape, *x.spec.shape[1:]) or 0 in value.spec.shape:
        return False
    while value.op == "reshape":
        value = value.inputs[0]
    while index.op == "reshape":
        index = index.inputs[0]
    operands = [layouts[n.attrs["index"]] for n in (value, index) if n.op == "input"]
    packed = all(x is not None and x.is_contiguous for x in operands)
    return packed and index.op == "input" and value.op not in _MOVES


def row_words(call: LibraryCall, inputs: int) -> list[int] | None:
    """Return the numbers of such a scatter for ``csource/driver.c``; None for another one.

    ``inputs`` is how many slots are inputs of the program.
    """
    if call.op != "scatter" or call.attrs["mode"] != "add" or len(call.inputs) != 3:
        return None
    (x, value, index), (whole, rows, places) = call.inputs, call.specs
    if not (isinstance(x, Layout) and isinstance(value, Layout) and isinstance(index, Layout)):
        return None
    if {whole.dtype, rows.dtype} != {dtypes.float32} or places.dtype is not dtypes.int64:
        return None
    if rows.shape != (*places.shape, *whole.shape[1:]) or 0 in rows.shape or index.slot >= inputs:
        return None
    if not (x.is_contiguous and value.is_contiguous and index.is_contiguous):
        return None
    return [
        x.slot, 4 * x.offset, call.outputs[0], value.slot, 4 * value.offset, index.slot, 8 * index.offset,
        prod(places.shape), whole.shape[0], prod(whole.shape[1:]),
    ]  # fmt: skip
