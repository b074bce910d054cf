"""The sample calls of core's ops, family by family; imported when somebody tests, never before.

A family whose ops are alike has a function that makes the samples of any of them, which its constructor hands
to the op. The others have a table by the op's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from ..sample import Sample

Maker = Callable[[], Iterable[Sample]]


@cache
def by_name() -> Mapping[str, Maker]:
    """Return what makes the samples of each op that has a set of its own."""
    from . import convolution, creation, indexing, linalg, matmul, movement, reduction, selection, sorting

    families = (selection, movement, reduction, creation, indexing, sorting, linalg, matmul, convolution)
    return {name: make for family in families for name, make in family.SAMPLES.items()}
