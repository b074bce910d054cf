"""The sample calls of core's ops, family by family; imported when somebody tests, never before.

Most ops have a set of their own, in a table by the op's name. Those of a family whose ops are alike have a
function that makes the samples of any of them from what the op says of itself. In order: ``elementwise``,
``creation``, ``movement``, ``indexing``, ``sorting``, ``selection``, ``reduction``, ``matmul``, ``linalg``,
``convolution``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

from ...ops.definition import Op
from ..sample import Sample

Maker = Callable[[], Iterable[Sample]]


@cache
def by_name() -> Mapping[str, Maker]:
    """Return what makes the samples of each op that has a set of its own."""
    from . import convolution, creation, indexing, linalg, matmul, movement, reduction, selection, sorting

    families = (selection, movement, reduction, creation, indexing, sorting, linalg, matmul, convolution)
    return {name: make for family in families for name, make in family.SAMPLES.items()}


def maker_of(op: Op[...]) -> Maker | None:
    """Return what makes the samples of ``op``; None where nobody wrote any."""
    from . import elementwise, reduction

    families = {"elementwise": elementwise.of_op, "reduction": reduction.of_op}
    family = families.get(op.family)
    return by_name().get(op.name) or (None if family is None else partial(family, op))
