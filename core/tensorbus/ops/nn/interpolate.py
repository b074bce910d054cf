"""Resizing along the last one, two or three axes.

Names, arguments and values are PyTorch's. Every mode but ``"area"`` goes axis by axis: each output is a
weighted sum of a few inputs, and places and weights are computed on the device from its number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...dtypes import definition as dt
from ...errors import ArgumentError, ShapeError
from ..call_errors import with_form
from ..creation.creation import iota
from ..elementwise.arithmetic import abs, floor, maximum, minimum
from ..elementwise.comparison import less
from ..elementwise.where_cast import cast, narrowed, where, widened
from ..indexing.gather_scatter import gather
from ..movement.movement import moveaxis, reshape
from .adaptive_pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

_RANKS: Final = {
    "nearest": (1, 2, 3), "nearest-exact": (1, 2, 3), "area": (1, 2, 3), "linear": (1,), "bilinear": (2,),
    "trilinear": (3,), "bicubic": (2,),
}  # fmt: skip
_AREA: Final = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}


@with_form
def interpolate(
    input: Tensor, size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``(batch, channels, *space)`` resized to ``size``, or by ``scale_factor``.

    ``mode`` is ``"nearest"``, ``"nearest-exact"``, ``"area"``, ``"linear"``, ``"bilinear"``, ``"bicubic"`` or
    ``"trilinear"``. ``align_corners`` (the last four) puts the outermost elements on each other;
    ``antialias`` (``"bilinear"``, ``"bicubic"``) widens the filter when it shrinks. A ``scale_factor`` is
    taken as it is, unless ``recompute_scale_factor`` asks for the ratio of the lengths. Raises
    ``ArgumentError`` for settings that do not go together, ``ShapeError`` for a wrong rank or no result.

    >>> import tensorbus as tb
    >>> tb.nn.functional.interpolate(tb.asarray([[[1.0, 3.0]]]), size=3, mode="linear").tolist()
    [[[1.0, 2.0, 3.0]]]
    """
    rank = len(input.shape) - 2
    if mode not in _RANKS:
        raise ArgumentError(f"interpolate: mode must be one of {', '.join(_RANKS)}, got {mode!r}.")
    if rank not in _RANKS[mode]:
        ranks = " or ".join(str(r + 2) for r in _RANKS[mode])
        raise ShapeError(f"interpolate: mode {mode!r} needs {ranks} dimensions, got shape {input.shape}.")
    if mode in ("nearest", "nearest-exact", "area") and align_corners is not None:
        raise ArgumentError(f"interpolate: mode {mode!r} has no align_corners, got {align_corners!r}.")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError(f"interpolate: mode {mode!r} has no antialias; 'bilinear' and 'bicubic' do.")
    lengths, scales = _lengths(input, rank, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return _AREA[rank](input, lengths)
    if mode in ("nearest", "nearest-exact"):
        out = input
        for k, (m, scale) in enumerate(zip(lengths, scales, strict=True)):
            at = _nearest(input.shape[2 + k], m, scale, mode == "nearest-exact", input)
            out = moveaxis(gather(moveaxis(out, 2 + k, 0), at), 0, 2 + k)
        return out
    cubic = mode == "bicubic"
    out = widened(input)
    # A length that a scale leaves as it is keeps its elements, as in PyTorch: a cubic one with all others.
    keeps = not antialias and (not cubic or tuple(input.shape[2:]) == tuple(lengths))
    for k, (m, scale) in enumerate(zip(lengths, scales, strict=True)):
        n = input.shape[2 + k]
        if n == m and (keeps or scale in (None, 1.0)):
            continue
        if antialias:
            at, weights = _filtered(n, m, scale, bool(align_corners), cubic, out)
        else:
            at, weights = (_four if cubic else _two)(n, m, scale, bool(align_corners), out)
        out = _weighted(out, 2 + k, at, weights)
    result: Tensor = input.clone() if out is input else narrowed(out, input.dtype)
    return result


def _lengths(
    x: Tensor, rank: int, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Return the lengths of the result, and for each axis the scale that was asked for, if one counts."""
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate: one of size and scale_factor is needed, and not both.")
    value = size if size is not None else scale_factor
    every = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(every) != rank:
        raise ShapeError(f"interpolate: one number or {rank} are needed for shape {x.shape}, got {value!r}.")
    if size is not None:
        if recompute:
            raise ArgumentError("interpolate: recompute_scale_factor needs a scale_factor, not a size.")
        lengths: tuple[int, ...] = tuple(n if isinstance(n, int) else int(n) for n in every)
        scales: tuple[float | None, ...] = (None,) * rank
    else:
        lengths = tuple(math.floor(n * s) for n, s in zip(x.shape[2:], every, strict=True))
        scales = (None,) * rank if recompute else tuple(float(s) for s in every)
    if any(n < 1 for n in lengths) or 0 in x.shape[1:]:
        raise ShapeError(f"interpolate: shape {x.shape} cannot be resized to {lengths}; lengths are >= 1.")
    return lengths, scales


def _numbers(m: int, x: Tensor) -> Any:
    return iota(m, dtype=dt.float64 if x.dtype is dt.float64 else dt.float32, device=x.device)


def _ratio(n: int, m: int, scale: float | None) -> float:
    return 1 / scale if scale else n / m


def _nearest(n: int, m: int, scale: float | None, exact: bool, x: Tensor) -> Any:
    """Return which input each output is. Rounded to float32, ``13 / 1.3`` is 10 in float64 as well."""
    at = _source(n, m, scale, False, x) + 0.5 if exact else _numbers(m, x) * _ratio(n, m, scale)
    return cast(minimum(floor(cast(at, dt.float32)), n - 1), dt.int64)


def _source(n: int, m: int, scale: float | None, align_corners: bool, x: Tensor) -> Any:
    """Return where each output lies among the inputs."""
    if align_corners:
        return _numbers(m, x) * ((n - 1) / (m - 1) if m > 1 else 0.0)
    return (_numbers(m, x) + 0.5) * _ratio(n, m, scale) - 0.5


def _two(n: int, m: int, scale: float | None, align_corners: bool, x: Tensor) -> tuple[list[Any], list[Any]]:
    at = maximum(_source(n, m, scale, align_corners, x), 0.0)
    low = minimum(floor(at), n - 1)
    share = minimum(at - low, 1.0)
    return [cast(low, dt.int64), cast(minimum(low + 1, n - 1), dt.int64)], [1 - share, share]


def cubic_weights(share: Any, a: float = -0.75) -> list[Any]:
    """Return the weights of four neighbours for a place ``share`` of the way between the middle two.

    Keys: "Cubic convolution interpolation for digital image processing", 1981; ``a`` is its free parameter.
    """
    near, far = _near_cubic(a), _far_cubic(a)
    return [far(share + 1), near(share), near(1 - share), far(2 - share)]


def _near_cubic(a: float) -> Callable[[Any], Any]:
    return lambda t: ((a + 2) * t - (a + 3)) * t * t + 1


def _far_cubic(a: float) -> Callable[[Any], Any]:
    return lambda t: ((a * t - 5 * a) * t + 8 * a) * t - 4 * a


def _four(n: int, m: int, scale: float | None, align_corners: bool, x: Tensor) -> tuple[list[Any], list[Any]]:
    at = _source(n, m, scale, align_corners, x)
    low = floor(at)
    places = [cast(minimum(maximum(low + k, 0), n - 1), dt.int64) for k in (-1, 0, 1, 2)]
    return places, cubic_weights(at - low)


def _filtered(
    n: int, m: int, scale: float | None, align_corners: bool, cubic: bool, x: Tensor
) -> tuple[list[Any], list[Any]]:
    """Widen the filter by the ratio when shrinking; the cubic one has ``a = -0.5`` here, as in Pillow."""
    ratio = ((n - 1) / (m - 1) if m > 1 else 0.0) if align_corners else _ratio(n, m, scale)
    stretch = max(ratio, 1.0)
    reach = (2.0 if cubic else 1.0) * stretch
    centre = (_numbers(m, x) + 0.5) * ratio
    first = maximum(floor(centre - reach + 0.5), 0.0)
    count = minimum(floor(centre + reach + 0.5), float(n)) - first
    places, weights = [], []
    for j in range(math.ceil(reach) * 2 + 1):
        far = abs((first + (j + 0.5) - centre) * (1 / stretch))
        if cubic:
            outer = where(less(far, 2.0), _far_cubic(-0.5)(far), 0.0)
            weight = where(less(far, 1.0), _near_cubic(-0.5)(far), outer)
        else:
            weight = maximum(1 - far, 0.0)
        weights.append(where(less(count, j + 0.5), 0.0, weight))
        places.append(cast(minimum(first + j, n - 1), dt.int64))
    total = weights[0]
    for weight in weights[1:]:
        total = total + weight
    return places, [weight / total for weight in weights]


def _weighted(x: Tensor, axis: int, places: list[Any], weights: list[Any]) -> Tensor:
    moved = moveaxis(x, axis, 0)
    tail = (1,) * (len(x.shape) - 1)
    total: Any = None
    for at, weight in zip(places, weights, strict=True):
        part = gather(moved, at) * reshape(weight, (*weight.shape, *tail))
        total = part if total is None else total + part
    out: Tensor = moveaxis(total, 0, axis)
    return out
