"""What a schedule needs to know of the hardware. Numbers, no names."""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes.definition import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The shape of a device's parallelism.

    ``groups``: how many solo items keep every core busy. ``items``: how many light items do. ``lanes``: how
    many elements a solo item walks side by side, in its vector unit. ``solo_rows``: whether a row of a
    reduction is best walked by one item (cores with vector units) or split among items (many thin cores).
    ``chunk``: how many elements of a reduction that is cut into pieces a light item takes at least.
    ``tile``: how many rows of a product an item makes at once, in vectors of at most ``register`` bytes.
    ``wide_ops``: the ops that the language applies to whole vectors of float32 and float64, ``load_`` and
    ``store_`` of a narrow dtype among them.
    ``map_ops``: where compilers make the vectors (``wide_ops`` is empty), the ops of float32 that are written
    in vectors of ``map_lanes`` all the same: in what goes past the caches or calls functions of elements.
    ``load_``, ``store_`` and ``round_`` of a narrow dtype among them say that its vectors are ones of float32
    whose results are rounded.
    ``packet``: the bytes of the widest access of a light item; 0: it makes one element at a time.
    ``swap``: how many light items side by side, a power of two, can read each other's registers by the ops
    ``swap_1``, ``swap_2`` ..., which give the value of the item whose number differs in that bit; 0: none.
    ``scan_lanes``: of how many float32 in a vector the language gives the running sums; 0: of none. Beside
    them a scan needs no more than ``scan_ops`` then.
    ``buffers``: how many buffers a kernel may have, beside that of errors; 0: any number.
    ``combined``: the ops, with the dtype, by which items may all add to one place, in whatever order.
    ``team``: the most light items that share arrays, ``shared`` the bytes of these at most.
    ``ends``: whether the last of solo items sees what the others stored, and may go on with that. ``counts``:
    at how many places groups of light items can be counted, so that the last of them may do so; 0: at none.
    """

    groups: int = 16
    items: int = 1024
    lanes: int = 16
    solo_rows: bool = True
    tile: int = 8
    register: int = 64
    wide_ops: frozenset[str] = frozenset()
    map_ops: frozenset[str] = frozenset()
    map_lanes: int = 0
    packet: int = 0
    swap: int = 0
    scan_lanes: int = 0
    scan_ops: frozenset[str] = frozenset()
    buffers: int = 0
    combined: frozenset[tuple[str, DType]] = frozenset()
    team: int = 256
    shared: int = 1 << 15
    ends: bool = False
    counts: int = 0
    chunk: int = 64
