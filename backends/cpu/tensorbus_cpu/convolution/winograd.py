"""Convolutions by windows of 3x3 with fewer multiplications: the launches of ``csource/winograd.c``."""

from __future__ import annotations

from functools import cache

from tensorbus.backend_api import DType, dtypes

from ..eager.eager_launch import Launches
from ..native.kernel_entry import pieces
from .implicit_gemm import (
    MIN_CONTIGUOUS_MOVES,
    MIN_PART_WORK,
    MIN_PIECES,
    MIN_STRIDED_MOVES,
    Axes,
    Axis,
    ImplicitGemm,
    WeightGradient,
)
from .tiled_functions import SourceFunctions, tiles

_BLOCK_INPUTS, _BLOCK_TILES = (1 << 13) + 128, 128
"""Inputs of a block of tiles at each place, and tiles of a block."""
_SIDE, _TALL, _VECTORS, _PLACES = 4, 6, 2, 16
"""Panels of rows that are worked on side by side, rows of a panel by vectors in registers, and products of
a tile."""
_TRANSFORM_COST, _FILTER_COST = 160, 500
"""What a tile costs for each row and channel, and weights for each row and channel, in multiplications."""
_MIN_CHANNELS = 32
_BLOCK, _TILES, _SUM_COST = 64, 112, 8
"""Of the gradient of weights: channels and tiles that are worked on at a time, and what a sum costs that is
kept for each unit of tiles, in multiplications."""
_MAX_LANES = 16
"""Elements of the widest vector."""


@cache
def _functions() -> SourceFunctions:
    macros = {
        "ROOM": _BLOCK_INPUTS,
        "COLUMNS": _BLOCK_TILES,
        "SIDE": _SIDE,
        "TALL": _TALL,
        "VECTORS": _VECTORS,
    }
    return SourceFunctions(macros, "winograd")


def is_quicker(problem: ImplicitGemm) -> bool:
    """Return whether ``winograd`` serves a convolution and saves time."""
    (_, y, x), rows, channels = problem.axes, problem.rows, problem.channels
    images = problem.batch * problem.groups
    if not _serves(problem.dtype, problem.axes) or x.out != 1 or _max_tiles(channels) < _MIN_CHANNELS:
        return False
    tiles, own = images * _half(y.count) * _half(x.count), rows * channels
    direct = images * y.count * x.count * 9 * own
    return tiles * (_PLACES * own + _TRANSFORM_COST * (rows + channels)) + _FILTER_COST * own < direct


def winograd(launches: Launches, problem: ImplicitGemm) -> None:
    """Add what computes buffer 2 of buffers 0 and 1, images and weights, in stage 1 after stage 0.

    What is not finite spreads over a tile: where a result is such, buffer 3, one integer, becomes 1.
    """
    _, y, x = problem.axes
    functions, rows, channels, groups = _functions(), problem.rows, problem.channels, problem.groups
    row_panels, matrices = -(-rows // _TALL), problem.batch * groups
    high, wide = _block(problem.axes, channels, matrices, functions.lanes)
    blocks = -(-_half(y.count) // high) * -(-_half(x.count) // wide)
    parts = max(min(row_panels // _SIDE, MIN_PIECES // (blocks * matrices)), 1)
    weights = problem.weights
    by_channel, _, by_y, by_x = weights.steps
    first = weights.first + sum(2 * s for s, a in ((by_y, y), (by_x, x)) if a.apart < 0)
    by_y, by_x = (s if a.apart > 0 else -s for s, a in ((by_y, y), (by_x, x)))
    strides = [rows, channels, weights.group, weights.row, by_channel, by_y, by_x, first]
    each = (row_panels, groups)
    turned = launches.scratch(groups * row_panels * _PLACES * channels * _TALL * problem.dtype.itemsize)
    piece = pieces(each, MIN_STRIDED_MOVES // (channels * _TALL * _PLACES) + 1)
    launches.add(functions.launch("filters", (1, turned), strides, each, piece), 0)
    grid = (blocks, parts, matrices)
    params = [
        rows, channels, high, wide, parts, groups, channels * y.length * x.length,
        rows * problem.out_channel, problem.out_channel, y.out, problem.out_first, *_span(y), *_span(x),
    ]  # fmt: skip
    work = high * wide * (_PLACES * channels * rows // parts + _TRANSFORM_COST * channels)
    piece = pieces(grid, MIN_PART_WORK // work + 1)
    launches.add(functions.launch("winograd", (turned, 0, 2, 3), params, grid, piece), 1)


def weights_are_quicker(problem: WeightGradient) -> bool:
    """Return whether ``winograd_weights`` serves the gradient of weights and saves time."""
    if not _serves(problem.dtype, problem.axes):
        return False
    _, y, x = problem.axes
    images, channels, lanes = problem.batch * problem.groups, problem.channels, _functions().lanes
    own = _row_panels(problem.rows) * _row_lanes() * channels  # what fills up a panel is multiplied too
    count = images * _half(y.count) * _half(x.count)
    cost = (
        count * (_PLACES * own + _TRANSFORM_COST * (problem.rows + channels))
        + images * _units(problem) * _PLACES * _SUM_COST * own
    )
    direct = own if problem.rows > lanes else lanes * channels
    return cost < images * y.count * x.count * 9 * direct


def winograd_weights(launches: Launches, problem: WeightGradient) -> None:
    """Add what computes buffer 2, the gradient of weights, of buffers 0 and 1, images and gradients.

    As for ``winograd``: where a result is not finite, buffer 3 becomes 1.
    """
    (_, y, x), rows, channels = problem.axes, problem.rows, problem.channels
    groups, matrices = problem.groups, problem.batch * problem.groups
    functions, row_panels, places = _functions(), _row_panels(rows), y.count * x.count
    block, (high, wide) = _channels(channels), _unit(problem)
    blocks, units = -(-channels // block), problem.batch * _units(problem)
    work = high * wide * (_PLACES * block * row_panels * _row_lanes() + _TRANSFORM_COST * (block + rows))
    chunk = min(max(-(-units // max(-(-MIN_PIECES // (blocks * groups)), 1)), MIN_PART_WORK // work), units)
    chunks = -(-units // chunk)
    part = _PLACES * row_panels * -(-block // _TALL) * _TALL * _row_lanes()
    itemsize = problem.dtype.itemsize
    turned = launches.scratch(matrices * row_panels * places * _row_lanes() * itemsize)
    parts = launches.scratch(chunks * groups * blocks * part * itemsize)
    grid: tuple[int, ...] = (row_panels, matrices)
    piece = pieces(grid, MIN_CONTIGUOUS_MOVES // (places * _row_lanes()) + 1)
    turning = tiles(problem.dtype, _TALL, _VECTORS)
    launches.add(turning.launch("turn", (1, turned), (rows, places), grid, piece), 0)
    params = [
        rows, channels, high, wide, 1, groups, channels * y.length * x.length, 0, 0, 0, 0,
        *_span(y), *_span(x), problem.batch, block, chunk, chunks,
    ]  # fmt: skip
    grid = (blocks, chunks, groups)
    piece = pieces(grid, MIN_PART_WORK // (work * chunk) + 1)
    launches.add(functions.launch("correlate", (turned, 0, parts), params, grid, piece), 1)
    grid = (row_panels, groups)
    piece = pieces(grid, MIN_CONTIGUOUS_MOVES // (chunks * channels * _PLACES * _row_lanes()) + 1)
    launches.add(functions.launch("collect", (parts, 2, 3), params, grid, piece), 2)


def _serves(dtype: DType, axes: Axes) -> bool:
    z, y, x = axes
    flat = z.length == z.count == z.taps == 1 and z.first == 0
    windows = all(a.taps == 3 and a.step == abs(a.apart) == 1 for a in (y, x))
    return dtype is dtypes.float32 and flat and windows


def _row_lanes() -> int:
    """Return how many rows lie side by side."""
    return _VECTORS * _functions().lanes


def _row_panels(rows: int) -> int:
    return -(-rows // _row_lanes())


def _channels(channels: int) -> int:
    """Return how many channels are worked on at a time."""
    return -(-channels // -(-channels // _BLOCK))


def _unit(problem: WeightGradient) -> tuple[int, int]:
    """Return the tiles of a unit along both axes: all of a row where that is possible."""
    most = min((_BLOCK_INPUTS - _MAX_LANES) // _channels(problem.channels) - _MAX_LANES, _TILES)
    tall, across = _half(problem.axes[1].count), _half(problem.axes[2].count)
    wide = -(-across // -(-across // most))
    return -(-tall // -(-tall // min(most // wide, tall))), wide


def _units(problem: WeightGradient) -> int:
    high, wide = _unit(problem)
    return -(-_half(problem.axes[1].count) // high) * -(-_half(problem.axes[2].count) // wide)


def _half(n: int) -> int:
    return -(-n // 2)


def _max_tiles(channels: int) -> int:
    """Return how many tiles fit into a block."""
    return min(_BLOCK_INPUTS // (channels + 1), _BLOCK_TILES) // _MIN_CHANNELS * _MIN_CHANNELS


def _span(a: Axis) -> tuple[int, int, int]:
    """Return the length, the count of outputs, and the first input of the first one."""
    return a.length, a.count, a.first - (2 if a.apart < 0 else 0)


def _block(axes: Axes, channels: int, matrices: int, lanes: int) -> tuple[int, int]:
    """Return the tiles of a block along both axes: most vectors full, and blocks for all threads."""
    tall, across, most = _half(axes[1].count), _half(axes[2].count), _max_tiles(channels)
    wide = -(-across // -(-across // most))
    columns = -(-across // wide)

    def cost(high: int) -> tuple[bool, float]:
        vectors = -(-high * wide // lanes)
        lost = 0.6 if vectors % 2 else 0.0
        blocks = -(-tall // high)
        return blocks * columns * matrices < MIN_PIECES and high > 1, blocks * (vectors + lost + 1)

    return min(range(1, min(tall, most // wide) + 1), key=cost), wide
