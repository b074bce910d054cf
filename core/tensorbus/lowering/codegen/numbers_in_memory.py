"""A launch whose kernel reads the numbers of each run from memory, instead of being told them.

A device that records launches, and runs them all by one call, would have to change each of them whose
numbers are others at the next run: the steps of an optimizer, say, of which a model has hundreds. Memory that
they are read from is written once for all.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from ..ir.builder import Launch, RuntimeArg
from ..ir.index_expr import ZERO
from ..ir.loop_ir import INDEX, Buffer, Let, Load, Var
from .dialect import Dialect
from .render import render


def numbers_in_memory(
    launch: Launch, dialect: Dialect
) -> tuple[Launch, str, tuple[tuple[RuntimeArg, Var], ...]] | None:
    """Return such a launch, its source, and what its last buffers are to hold: one number each, in order.

    Offsets into operands stay arguments. None where there is no number, or the source is a schedule's own.
    """
    kernel = launch.kernel
    pairs = [*zip(kernel.params, launch.values, strict=True)]
    numbers = [(v, p) for p, v in pairs if isinstance(v, RuntimeArg) and p.dtype is not INDEX]
    if kernel.code or not numbers:
        return None
    taken = {b.name for b in kernel.buffers} | {p.name for p in kernel.params}
    names = (name for k in count() if (name := f"n{k}") not in taken)
    buffers = [Buffer(name, p.dtype) for name, (_, p) in zip(names, numbers, strict=False)]
    reads = [Let(p, Load(b.name, ZERO, p.dtype)) for b, (_, p) in zip(buffers, numbers, strict=True)]
    moved = {p for _, p in numbers}
    reading = replace(
        kernel, buffers=(*kernel.buffers, *buffers), params=tuple(p for p in kernel.params if p not in moved),
        body=(*reads, *kernel.body),
    )  # fmt: skip
    fills = (*launch.fills, *[0] * len(buffers)) if launch.fills else ()
    values = tuple(v for p, v in pairs if p not in moved)
    changed = replace(launch, kernel=reading, values=values, fills=fills)
    return changed, render(reading, dialect), tuple(numbers)
