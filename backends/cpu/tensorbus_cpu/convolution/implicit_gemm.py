"""Products summed over windows: their tiles, and the launches of ``csource/implicit_gemm.c``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tensorbus.backend_api import DType

from ..eager.eager_launch import Launches
from ..native.kernel_entry import pieces
from .tiled_functions import MAX_COLUMNS, MAX_DEPTH, MAX_READ, GemmFunctions, tiles

_REGISTER_TILES: Final = {(6, 2): 1.0, (4, 3): 1.0, (4, 2): 1.04, (12, 1): 1.2, (2, 4): 1.12, (1, 8): 2.2}
"""Rows by vectors of columns that registers hold, and what a product costs in each, as measured."""
MIN_PART_WORK: Final = 1 << 17
"""Multiplications that are worth a thread's while."""
MIN_CONTIGUOUS_MOVES: Final = 1 << 15
MIN_STRIDED_MOVES: Final = 1 << 13
"""Elements whose move is worth a thread's while: those that lie side by side, and others."""
_MOVE_COST: Final = 16
"""Multiplications that take as long as to read or write an element, where it does not lie beside others."""
_MAX_UNPACKED_ROWS: Final = 6
"""Rows of weights that may be read as they lie."""
MIN_PIECES: Final = 16
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


def tile_of(axes: Axes, channels: int, lanes: int, deep: int = MAX_DEPTH) -> Tile | None:
    """Return what to compute at a time; None where the windows of a few outputs are too large."""
    _, y, x = axes
    taps = y.taps * x.taps
    block = max(min(deep // taps, channels), 1) if taps <= MAX_DEPTH else 0
    while block:
        block = -(-channels // -(-channels // block))
        line = MAX_READ // block // y.phases // x.phases // lanes * lanes
        wide = min(x.count, 256 if y.count > 1 else 128)
        wide = min(wide, line // (1 + y.reach) // lanes * lanes - x.reach)
        if wide >= min(x.count, 2 * lanes):
            if wide < x.count:
                wide = -(-x.count // -(-x.count // (wide // lanes * lanes)))
                wide = min(-(-wide // lanes) * lanes, x.count)
            most = min(MAX_COLUMNS // (-(-wide // lanes) * lanes), y.count)
            high = min(line // (-(-(wide + x.reach) // lanes) * lanes) - y.reach, most)
            if high >= min(most, 4) or block == 1:
                return Tile(block, -(-y.count // -(-y.count // high)), wide)
        block //= 2
    return None


def _cheapest_tile(dtype: DType, rows: int, axes: Axes, channels: int) -> tuple[GemmFunctions, Tile]:
    """Return the shape in registers, and how vectors lie over rows of outputs, that cost least."""
    lanes = tiles(dtype, *next(iter(_REGISTER_TILES))).lanes
    tile = tile_of(axes, channels, lanes)
    assert tile is not None
    high, wide = tile.high, tile.wide

    def cost(choice: tuple[tuple[int, int], bool]) -> float:
        (tall, vectors), flat = choice
        columns = -(-high * wide // lanes) if flat else high * -(-wide // lanes)
        put_together = 0 if not flat else 2.5 if wide >= lanes else lanes
        return (
            (-(-rows // tall) * tall * _REGISTER_TILES[tall, vectors] + put_together)
            * -(-columns // vectors)
            * vectors
        )

    shape, flat = min(((shape, flat) for shape in _REGISTER_TILES for flat in (False, True)), key=cost)
    return tiles(dtype, *shape), replace(tile, flat=flat)


def params_of(rows: int, channels: int, tile: Tile, axes: Axes, *rest: int) -> list[int]:
    """Return the parameters as ``implicit_gemm.c`` knows them."""
    params = [rows, channels, tile.block, tile.high, tile.wide, int(tile.flat), *rest]
    for a in axes:
        params += [a.length, a.count, a.step, a.taps, a.first, a.apart, a.out]
    return params


def covering_of(tile: Tile, axes: Axes) -> int:
    """Return how many tiles cover a plane of outputs."""
    return -(-axes[1].count // tile.high) * -(-axes[2].count // tile.wide)


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """The place of an element of the weights, by group, row, channel and taps of three axes."""

    group: int
    row: int
    steps: tuple[int, int, int, int]
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplicitGemm:
    """Products summed over windows: what is computed of images and weights, and where it stands.

    Each of ``batch`` images has ``groups``, each of ``rows`` results, computed from ``channels``.
    """

    dtype: DType
    batch: int
    groups: int
    rows: int
    channels: int
    axes: Axes
    weights: WeightLayout
    out_channel: int
    out_first: int

    @property
    def lead(self) -> int:
        """Return how far rows of the weights are apart that lie as they are multiplied; 0 for others."""
        z, y, x = (a.taps for a in self.axes)
        depth = self.channels * z * y * x
        lying = WeightLayout(self.rows * depth, depth, (z * y * x, y * x, x, 1))
        return depth if self.weights == lying else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGradient:
    """The gradient of weights: products summed over places, of ``channels`` for each of ``rows``."""

    dtype: DType
    batch: int
    groups: int
    rows: int
    channels: int
    axes: Axes


def windows(launches: Launches, problem: ImplicitGemm) -> None:
    """Add what computes buffer 2 of buffers 0 and 1, images and weights, in stage 1 after stage 0."""
    z, y, x = problem.axes
    batch, groups, rows = problem.batch, problem.groups, problem.rows
    functions, tile = _cheapest_tile(problem.dtype, rows, problem.axes, problem.channels * z.taps)
    row_panels, depth = -(-rows // functions.tall), problem.channels * z.taps * y.taps * x.taps
    covering = covering_of(tile, problem.axes)
    count = covering * z.count * batch * groups
    parts = max(min(row_panels, MIN_PIECES // count), 1)
    image = problem.channels * z.length * y.length * x.length
    lead = problem.lead if functions.tall <= _MAX_UNPACKED_ROWS else 0
    params = params_of(
        rows, problem.channels * z.taps, tile, problem.axes,
        parts, groups, image, rows * problem.out_channel, problem.out_channel, problem.out_first, lead, 0,
    )  # fmt: skip
    if not lead:
        lined = launches.scratch(groups * row_panels * depth * functions.tall * problem.dtype.itemsize)
        w, grid = problem.weights, (row_panels, groups)
        strides = (rows, problem.channels, z.taps, y.taps, x.taps, w.group, w.row, *w.steps, w.first)
        piece = pieces(grid, MIN_STRIDED_MOVES // (depth * functions.tall) + 1)
        launches.add(functions.launch("pack_rows", (1, lined), strides, grid, piece), 0)
    places = z.count * y.count * x.count * batch * groups // count
    moved = rows // parts + problem.channels * z.taps * y.phases * x.phases
    work = places * (rows * depth // parts + _MOVE_COST * moved) + 1
    tiling = (covering, z.count * parts, batch * groups)
    piece = pieces(tiling, MIN_PART_WORK // work + 1)
    launches.add(functions.launch("convolve", (1 if lead else lined, 0, 2), params, tiling, piece), 1)
