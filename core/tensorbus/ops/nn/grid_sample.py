"""Reading an image at given places, and the places of an affine map.

Names, arguments and values are PyTorch's (Jaderberg et al., "Spatial transformer networks", 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as choices
from math import prod
from typing import TYPE_CHECKING, Any

from ...dtypes.definition import int64
from ...errors import ArgumentError, ShapeError
from ..call_errors import with_form
from ..creation.creation import iota
from ..elementwise.arithmetic import abs, floor, maximum, minimum, remainder, round
from ..elementwise.comparison import equal, greater_equal, isfinite, less_equal, logical_and
from ..elementwise.where_cast import cast, narrowed, where, widened
from ..indexing.gather_scatter import gather
from ..matmul.matmul import matmul
from ..movement.movement import broadcast_to, concat, expand_dims, moveaxis, permute_dims, reshape
from .interpolate import cubic_weights

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


@with_form
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """Return ``(batch, channels, *places)``: ``input`` read at the places that ``grid`` names.

    ``input`` is ``(batch, channels, [depth,] height, width)`` and ``grid`` ``(batch, *places, 2 or 3)``, its
    last axis being x, y (and z) from -1 to 1. ``mode`` is ``"bilinear"``, ``"nearest"`` or (images only)
    ``"bicubic"``; ``padding_mode`` says what lies outside: ``"zeros"``, ``"border"`` or ``"reflection"``;
    ``align_corners`` whether -1 and 1 are the centres of the outermost elements, or their edges.
    Raises ``ShapeError`` and ``ArgumentError``.
    """
    rank = len(input.shape) - 2
    if rank not in (2, 3) or len(grid.shape) != rank + 2 or grid.shape[-1] != rank:
        raise ShapeError(
            f"grid_sample: (batch, channels, *space) of 4 or 5 dimensions and (batch, *places, 2 or 3) are"
            f" needed, got {input.shape} and {grid.shape}."
        )
    if input.shape[0] != grid.shape[0] or 0 in input.shape[2:]:
        raise ShapeError(
            f"grid_sample: one batch and a space that is not empty are needed, got {input.shape} and"
            f" {grid.shape}."
        )
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and rank == 3):
        raise ArgumentError(
            f"grid_sample: mode must be 'bilinear', 'nearest' or, for images, 'bicubic'; got {mode!r}."
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ArgumentError(
            f"grid_sample: padding_mode must be 'zeros', 'border' or 'reflection', got {padding_mode!r}."
        )
    corners = bool(align_corners)
    space = input.shape[2:]
    wide, places = widened(input), widened(grid)
    at = []
    for k, n in enumerate(space):
        coordinate = moveaxis(places, -1, 0)[rank - 1 - k]
        at.append((coordinate + 1) * ((n - 1) / 2) if corners else ((coordinate + 1) * n - 1) / 2)
    rows = permute_dims(wide, (0, *range(2, rank + 2), 1))
    if mode != "bicubic":
        at = [_inside(a, n, padding_mode, corners) for a, n in zip(at, space, strict=True)]
    total: Any = None
    for taps in choices(*[_taps(a, mode) for a in at]):
        spots = [place for place, _ in taps]
        if mode == "bicubic":
            spots = [_inside(a, n, padding_mode, corners) for a, n in zip(spots, space, strict=True)]
        values = _read(rows, spots, padding_mode)
        for _, weight in taps:
            values = values if weight is None else values * expand_dims(weight, -1)
        total = values if total is None else total + values
    out: Tensor = narrowed(moveaxis(total, -1, 1), input.dtype)
    return out


def _inside(at: Any, n: int, padding_mode: str, corners: bool) -> Any:
    """Move places outside to where they are read from; NaN is read at -1, as in PyTorch."""
    if padding_mode == "zeros":
        return at
    if padding_mode == "reflection":
        low, span = (0.0, n - 1.0) if corners else (-0.5, float(n))
        if span == 0:
            at = at * 0
        else:
            away = abs(at - low)
            part = remainder(away, span)
            odd = equal(remainder(floor(away / span), 2.0), 1.0)
            at = where(odd, span - part, part) + low
    return minimum(maximum(at, 0.0), n - 1.0)


def _taps(at: Any, mode: str) -> list[tuple[Any, Any]]:
    """Return the neighbours along one axis that an output is made from, and their weights."""
    if mode == "nearest":
        return [(round(at), None)]
    low = floor(at.detach())
    share = at - low
    if mode == "bilinear":
        return [(low, 1 - share), (low + 1, share)]
    return [(low + k, weight) for k, weight in zip((-1, 0, 1, 2), cubic_weights(share), strict=True)]


def _read(rows: Any, spots: Sequence[Any], padding_mode: str) -> Any:
    """Return ``rows`` of shape ``(batch, *space, channels)`` at whole places; 0 outside."""
    batch, *space, _ = rows.shape
    inside: Any = None
    indices = []
    for spot, n in zip(spots, space, strict=True):
        valid = logical_and(greater_equal(spot, 0.0), less_equal(spot, n - 1.0))
        inside = valid if inside is None else logical_and(inside, valid)
        indices.append(cast(minimum(maximum(where(isfinite(spot), spot, 0.0), 0.0), n - 1.0), int64))
    first = reshape(iota(batch, device=rows.device), (batch, *(1,) * len(space)))
    values = gather(rows, broadcast_to(first, indices[0].shape), *indices)
    return where(expand_dims(inside, -1), values, 0.0)


@with_form
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Return the places ``(batch, *space, 2 or 3)`` of affine maps, for ``grid_sample``.

    ``theta`` is ``(batch, 2, 3)`` for ``size`` ``(batch, channels, height, width)``, or ``(batch, 3, 4)``
    with a depth before them. Raises ``ShapeError`` otherwise.
    """
    rank = len(size) - 2
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1) or min(size) < 1:
        raise ShapeError(
            f"affine_grid: maps of shape (batch, 2, 3) for a size of 4, or (batch, 3, 4) of 5, are needed;"
            f" got {theta.shape} for {tuple(size)}."
        )
    space = tuple(size[2:])
    columns = []
    for k, n in reversed(list(enumerate(space))):
        numbers = iota(n, dtype=widened(theta).dtype, device=theta.device)
        if align_corners:
            line = numbers * (2 / (n - 1)) - 1 if n > 1 else numbers * 0
        else:
            line = (numbers * 2 + 1) * (1 / n) - 1
        shaped = reshape(line, tuple(n if j == k else 1 for j in range(rank)))
        columns.append(reshape(broadcast_to(shaped, space), (prod(space), 1)))
    base = concat([*columns, columns[0] * 0 + 1], axis=1)
    out = matmul(cast(base, theta.dtype), permute_dims(theta, (0, 2, 1)))
    return reshape(out, (size[0], *space, rank))
