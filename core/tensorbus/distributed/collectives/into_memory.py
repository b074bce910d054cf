"""Collectives that write into memory that is there already: what the devices of compiled programs record."""

from __future__ import annotations

from math import prod

from ...tensor.tensor import Tensor
from ..process_group.group import get_group
from .terms import expecting, listed, named, shapes_of, spec


def all_reduce_into(x: Tensor, reduction: str, group: str, label: str, out: Tensor) -> bool:
    """Combine into ``out``; False where that cannot be, here as below."""
    return get_group(group).run_into(
        "all_reduce", x, lambda c: expecting(c, label).all_reduce_into(x, reduction, out),
        named(f"{reduction} of {spec(x)}", label),
    )  # fmt: skip


def all_gather_into(
    x: Tensor, axis: int, lengths: tuple[int, ...], group: str, label: str, out: Tensor
) -> bool:
    """Join into ``out``."""
    if any(n != 1 for n in x.shape[:axis]):
        return False
    shapes = shapes_of(x.shape, axis, lengths)
    sizes = [prod(shape) for shape in shapes]
    return get_group(group).run_into(
        "all_gather", x, lambda c: expecting(c, label).all_gather_into(x, sizes, out),
        named(f"of {x.dtype} in shapes {listed(shapes)}", label),
    )  # fmt: skip


def reduce_scatter_into(
    x: Tensor, reduction: str, axis: int, lengths: tuple[int, ...], group: str, label: str, out: Tensor
) -> bool:
    """Combine this rank's part into ``out``."""
    if any(n != 1 for n in x.shape[:axis]):
        return False
    sizes = [length * prod(x.shape[axis + 1 :]) for length in lengths]
    return get_group(group).run_into(
        "reduce_scatter", x,
        lambda c: expecting(c, label).reduce_scatter_into(x, reduction, sizes, out),
        named(f"{reduction} of {spec(x)} along axis {axis} in lengths {listed(lengths)}", label),
    )  # fmt: skip


def broadcast_into(x: Tensor, root: int, group: str, label: str, out: Tensor) -> bool:
    """Take the root's into ``out``."""
    return get_group(group).run_into(
        "broadcast", x, lambda c: expecting(c, label).broadcast_into(x, root, out),
        named(f"of {spec(x)} from place {root}", label),
    )  # fmt: skip
