"""Products summed over windows: which tiles they are cut into, and the launches of ``csource/products.c``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from tensorbus.backend_api import DType

from .compiler import pieces
from .memory import empty
from .tiles import COLUMNS, DEEP, ROOM, Tiles, tiles

_SHAPES: Final = {(6, 2): 1.0, (4, 3): 1.0, (4, 2): 1.04, (12, 1): 1.2, (2, 4): 1.12, (1, 8): 2.2}
"""Rows by vectors of columns that registers hold, and what a product costs in each, as measured."""
WORTH: Final = 1 << 17
"""Multiplications that are worth a thread's while."""
MOVED: Final = 1 << 15
"""Elements whose move is worth a thread's while."""
WANTED: Final = 16
"""Pieces that keep all threads busy."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Along one axis output ``n`` takes the inputs ``n * step + first + t * apart``, for each tap ``t``."""

    length: int
    count: int
    step: int
    taps: int
    first: int
    apart: int
    out: int = 0

    @property
    def phases(self) -> int:
        """Return how many inputs of each step are read."""
        return min(self.step, (self.taps - 1) * abs(self.apart) + 1)

    @property
    def reach(self) -> int:
        """Return how many steps the last tap is from the first."""
        return (self.taps - 1) * abs(self.apart) // self.step


Axes = tuple[Axis, Axis, Axis]


@dataclass(frozen=True, slots=True)
class Tile:
    """Outputs computed at a time, and the channels that are read for them at a time."""

    block: int
    high: int
    wide: int
    flat: bool = False
    """Whether vectors run over the ends of rows."""


def tile_of(axes: Axes, channels: int, lanes: int, deep: int = DEEP) -> Tile | None:
    """Return what to compute at a time; None where the windows of a few outputs are too large."""
    _, y, x = axes
    taps = y.taps * x.taps
    block = max(min(deep // taps, channels), 1) if taps <= DEEP else 0
    while block:
        block = -(-channels // -(-channels // block))
        line = ROOM // block // y.phases // x.phases // lanes * lanes
        wide = min(x.count, 256 if y.count > 1 else 128)
        wide = min(wide, line // (1 + y.reach) // lanes * lanes - x.reach)
        if wide >= min(x.count, 2 * lanes):
            if wide < x.count:
                wide = -(-x.count // -(-x.count // (wide // lanes * lanes)))
                wide = min(-(-wide // lanes) * lanes, x.count)
            most = min(COLUMNS // (-(-wide // lanes) * lanes), y.count)
            high = min(line // (-(-(wide + x.reach) // lanes) * lanes) - y.reach, most)
            if high >= min(most, 4) or block == 1:
                return Tile(block, -(-y.count // -(-y.count // high)), wide)
        block //= 2
    return None


def _best(dtype: DType, rows: int, axes: Axes, channels: int) -> tuple[Tiles, Tile]:
    """Return the shape in registers, and how vectors lie over rows of outputs, that cost least."""
    lanes = tiles(dtype, *next(iter(_SHAPES))).lanes
    tile = tile_of(axes, channels, lanes)
    assert tile is not None
    high, wide = tile.high, tile.wide

    def cost(choice: tuple[tuple[int, int], bool]) -> float:
        (tall, vectors), flat = choice
        columns = -(-high * wide // lanes) if flat else high * -(-wide // lanes)
        put_together = 0 if not flat else 2.5 if wide >= lanes else lanes
        return (
            (-(-rows // tall) * tall * _SHAPES[tall, vectors] + put_together)
            * -(-columns // vectors)
            * vectors
        )

    shape, flat = min(((shape, flat) for shape in _SHAPES for flat in (False, True)), key=cost)
    return tiles(dtype, *shape), replace(tile, flat=flat)


def params_of(rows: int, channels: int, tile: Tile, axes: Axes, *rest: int) -> list[int]:
    """Return the parameters as ``products.c`` knows them."""
    found = [rows, channels, tile.block, tile.high, tile.wide, int(tile.flat), *rest]
    for a in axes:
        found += [a.length, a.count, a.step, a.taps, a.first, a.apart, a.out]
    return found


def covering_of(tile: Tile, axes: Axes) -> int:
    """Return how many tiles cover a plane of outputs."""
    return -(-axes[1].count // tile.high) * -(-axes[2].count // tile.wide)


@dataclass(frozen=True, slots=True)
class Weights:
    """Where an element of the weights is, by group, row, channel and taps of three axes."""

    group: int
    row: int
    steps: tuple[int, int, int, int]
    first: int = 0


def windows(
    dtype: DType, batch: int, groups: int, rows: int, channels: int, axes: Axes, weights: Weights,
    out_channel: int, out_first: int,
) -> Callable[[Any, Any, Any], None]:  # fmt: skip
    """Return what computes ``out`` of ``x`` and weights, all packed: products summed over windows."""
    z, y, x = axes
    made, tile = _best(dtype, rows, axes, channels * z.taps)
    strips, depth = -(-rows // made.tall), channels * z.taps * y.taps * x.taps
    covering = covering_of(tile, axes)
    count = covering * z.count * batch * groups
    parts = max(min(strips, WANTED // count), 1)
    image = channels * z.length * y.length * x.length
    params = params_of(
        rows, channels * z.taps, tile, axes,
        parts, groups, image, rows * out_channel, out_channel, out_first, 0,
    )  # fmt: skip
    work = rows * depth * z.count * y.count * x.count * batch * groups // (count * parts) + 1
    grid = (covering, z.count * parts, batch * groups)
    go = made.launch("convolve", params, grid, pieces(grid, WORTH // work + 1))
    shape = (channels, z.taps, y.taps, x.taps)
    taken = (rows, *shape, weights.group, weights.row, *weights.steps, weights.first)
    line_up = made.launch(
        "strips", taken, (strips, groups), pieces((strips, groups), MOVED // (depth * made.tall) + 1)
    )
    kept = (groups, strips, depth, made.tall)

    def go_on(x: Any, weight: Any, out: Any) -> None:
        lined = empty(kept, x.dtype)
        line_up(weight, lined)
        go(lined, x, out)

    return go_on
