"""The entry of a kernel from C: the function that takes its arguments as arrays, and the pieces of a grid.

Each thread takes a piece after another; results never depend on how a grid is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Final

from tensorbus.backend_api import DType

if TYPE_CHECKING:  # the code generator is imported when the first array is large enough
    from tensorbus.backend_api import Launch

_MAX_PIECES: Final = 64
_TILE_SIDE: Final = 64


def pieces(grid: Sequence[int], least: int, *, tiled: bool = False) -> tuple[int, ...]:
    """Return how much of each axis of a grid a thread takes at a time; outer axes are cut first.

    Results never depend on it. ``least``: how many work-items are worth a thread's while. ``tiled``: squares,
    where both of two axes should stay in cache.
    """
    if tiled:
        return (min(grid[0], _TILE_SIDE), min(grid[1], _TILE_SIDE), *(1,) * (len(grid) - 2))
    remaining = max(min(_MAX_PIECES, prod(grid) // least), 1)
    piece = list(grid)
    for axis in reversed(range(len(grid))):
        cut = min(remaining, grid[axis])
        piece[axis] = -(-grid[axis] // cut)
        remaining //= cut
        if remaining <= 1:
            break
    return tuple(piece)


def slot(dtype: DType) -> str:
    """Return how a parameter of ``dtype`` is passed: the code that ``struct`` has for it."""
    return "d" if dtype.is_floating else "Q" if dtype.kind == "uint" else "q"


def entry_source(launch: Launch, name: str = "tb_entry") -> str:
    """Return the function that takes buffers and parameters as arrays."""
    field = {"d": "f", "Q": "u", "q": "i"}
    kernel = launch.kernel
    arguments = [f"b[{k}]" for k in range(len(kernel.buffers))]
    arguments += [f"p[{k}].{field[slot(v.dtype)]}" for k, v in enumerate(kernel.params)]
    return (
        f"void {name}(void *const *b, const tb_slot *p, const int64_t *range) {{\n"
        f"  {kernel.name}({', '.join(['range', *arguments])});\n}}\n"
    )
