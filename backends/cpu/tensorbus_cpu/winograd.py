"""Convolutions by windows of 3x3 with fewer multiplications: the launches of ``csource/winograd.c``."""

from __future__ import annotations

from functools import cache

from tensorbus.backend_api import dtypes

from .compiler import pieces
from .launches import Launches
from .tiles import Functions
from .windows import LINED, WANTED, WORTH, Axes, Axis, Windows

_ROOM, _COLUMNS = (1 << 13) + 128, 128
"""Inputs of a block of tiles at each place, and tiles of a block."""
_SIDE, _TALL, _PLACES = 4, 6, 16
"""Strips of rows that are worked on side by side, rows of a strip, and products for a tile of 2x2 outputs."""
_TURN, _FILTER = 160, 500
"""What a tile costs for each row and channel, and weights for each row and channel, in multiplications."""
_LEAST = 32


@cache
def _functions() -> Functions:
    given = {"ROOM": _ROOM, "COLUMNS": _COLUMNS, "SIDE": _SIDE, "TALL": _TALL}
    return Functions("winograd", given)


def is_quicker(given: Windows) -> bool:
    """Return whether ``winograd`` serves a convolution and saves time."""
    (z, y, x), rows, channels = given.axes, given.rows, given.channels
    images = given.batch * given.groups
    flat = z.length == z.count == z.taps == 1 and z.first == 0
    windows = all(a.taps == 3 and a.step == abs(a.apart) == 1 for a in (y, x))
    wrong = given.dtype is not dtypes.float32 or not flat or not windows or x.out != 1
    if wrong or _most(channels) < _LEAST:
        return False
    tiles, own = images * _half(y.count) * _half(x.count), rows * channels
    direct = images * y.count * x.count * 9 * own
    return tiles * (_PLACES * own + _TURN * (rows + channels)) + _FILTER * own < direct


def winograd(launches: Launches, given: Windows) -> None:
    """Add what computes buffer 2 of buffers 0 and 1, images and weights, in stage 1 after stage 0.

    What is not finite spreads over a tile: where a result is such, buffer 3, one integer, becomes 1.
    """
    _, y, x = given.axes
    functions, rows, channels, groups = _functions(), given.rows, given.channels, given.groups
    strips, matrices = -(-rows // _TALL), given.batch * groups
    high, wide = _block(given.axes, channels, matrices, functions.lanes)
    blocks = -(-_half(y.count) // high) * -(-_half(x.count) // wide)
    parts = max(min(strips // _SIDE, WANTED // (blocks * matrices)), 1)
    weights = given.weights
    by_channel, _, by_y, by_x = weights.steps
    first = weights.first + sum(2 * s for s, a in ((by_y, y), (by_x, x)) if a.apart < 0)
    by_y, by_x = (s if a.apart > 0 else -s for s, a in ((by_y, y), (by_x, x)))
    taken = [rows, channels, weights.group, weights.row, by_channel, by_y, by_x, first]
    each = (strips, groups)
    turned = launches.scratch(groups * strips * _PLACES * channels * _TALL * given.dtype.itemsize)
    piece = pieces(each, LINED // (channels * _TALL * _PLACES) + 1)
    launches.add(functions.launch("filters", (1, turned), taken, each, piece), 0)
    grid = (blocks, parts, matrices)
    params = [
        rows, channels, high, wide, parts, groups, channels * y.length * x.length,
        rows * given.out_channel, given.out_channel, y.out, given.out_first, *_span(y), *_span(x),
    ]  # fmt: skip
    work = high * wide * (_PLACES * channels * rows // parts + _TURN * channels)
    piece = pieces(grid, WORTH // work + 1)
    launches.add(functions.launch("winograd", (turned, 0, 2, 3), params, grid, piece), 1)


def _half(n: int) -> int:
    return -(-n // 2)


def _most(channels: int) -> int:
    """Return how many tiles fit into a block."""
    return min(_ROOM // (channels + 1), _COLUMNS) // _LEAST * _LEAST


def _span(a: Axis) -> tuple[int, int, int]:
    """Return the length, the count of outputs, and the first input of the first one."""
    return a.length, a.count, a.first - (2 if a.apart < 0 else 0)


def _block(axes: Axes, channels: int, matrices: int, lanes: int) -> tuple[int, int]:
    """Return the tiles of a block along both axes: most vectors full, and blocks for all threads."""
    tall, across, most = _half(axes[1].count), _half(axes[2].count), _most(channels)
    wide = -(-across // -(-across // most))
    columns = -(-across // wide)

    def cost(high: int) -> tuple[bool, float]:
        vectors = -(-high * wide // lanes)
        lost = 0.6 if vectors % 2 else 0.0
        blocks = -(-tall // high)
        return blocks * columns * matrices < WANTED and high > 1, blocks * (vectors + lost + 1)

    return min(range(1, min(tall, most // wide) + 1), key=cost), wide
