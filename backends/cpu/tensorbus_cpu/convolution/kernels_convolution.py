"""Convolutions and their gradients by tiles of ``csource/implicit_gemm.c``: what they read stays in cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import gcd, prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, DType, Kernel, dtypes

from ..compiler import NATIVE
from ..eager.eager_launch import Launch, Launches
from ..eager.kernels_native import packed
from ..gemm.kernels_matmul import cast
from ..memory import DTYPES
from ..native.kernel_entry import pieces
from .implicit_gemm import (
    MIN_CONTIGUOUS_MOVES,
    MIN_PART_WORK,
    MIN_PIECES,
    Axes,
    Axis,
    ImplicitGemm,
    WeightGradient,
    WeightLayout,
    covering_of,
    params_of,
    tile_of,
    windows,
)
from .tiled_functions import MAX_DEPTH, MAX_READ, tiles
from .winograd import is_quicker, weights_are_quicker, winograd, winograd_weights

_FLOATS: Final = (dtypes.float32, dtypes.float64)
_NARROW: Final = (dtypes.float16, dtypes.bfloat16)
_MAX_PHASES: Final = 16
_PLANE_TILE: Final = (1, 8)
"""Rows and vectors in registers that kernels of ``plane_convolution.c`` have."""
_MIN_BAND_ROWS: Final = 4
"""Rows of a plane that are worth reading again those around them."""


def _three(lengths: Sequence[int], fill: int) -> tuple[int, int, int]:
    first, second, third = (fill,) * (3 - len(lengths)) + tuple(lengths)
    return first, second, third


def _strides(lengths: Sequence[int]) -> tuple[int, int, int]:
    return lengths[1] * lengths[2], lengths[2], 1


def _axes(space: Sequence[int], kernel: Sequence[int], out: Sequence[int], attrs: Any) -> Axes:
    """Return the axes of a convolution; those of one without windows become one."""
    stride, padding, dilation = (attrs[key] for key in ("stride", "padding", "dilation"))
    if all(k == s == 1 and p == 0 for k, s, p in zip(kernel, stride, padding, strict=True)):
        n = prod(space)
        flat = Axis(1, 1, 1, 1, 0, 1)
        return flat, flat, Axis(n, n, 1, 1, 0, 1, 1)
    counts = _three(out, 1)
    rest = (_three(space, 1), counts, _three(stride, 1), _three(kernel, 1), _three(padding, 0))
    axes = [
        Axis(n, c, s, k, -p, d, o)
        for n, c, s, k, p, d, o in zip(*rest, _three(dilation, 1), _strides(counts), strict=True)
    ]
    return axes[0], axes[1], axes[2]


def _conv_axes(call: Call, kernel: Sequence[int]) -> Axes:
    assert call.shapes is not None
    assert call.out_shape is not None
    gradient = call.op == "conv_weight"
    out = call.shapes[1] if gradient else call.out_shape
    return _axes(call.shapes[0][2:], kernel, out[2:], call.attrs)


def _phases(length: int, count: int, step: int, taps: int, padding: int, apart: int, out: int) -> list[Any]:
    """Return an axis of a transposed convolution for each phase of its outputs, with the taps that meet it.

    Each comes with its first output, and with its first tap and the distance of its taps.
    """
    phases = []
    for phase in range(min(step, count)):
        own = [t for t in range(taps) if (phase + padding - t * apart) % step == 0]
        every = step // gcd(step, apart)
        first = (phase + padding - own[0] * apart) // step if own else 0
        axis = Axis(
            length, -(-(count - phase) // step), 1, len(own), first, -every * apart // step, step * out
        )
        phases.append((axis, phase * out, own[0] if own else 0, every))
    return phases


def convolve(call: Call) -> Callable[..., Any]:
    """Return the kernel of ``conv``."""
    assert call.shapes is not None
    assert call.out_shape is not None
    (x_shape, w_shape), groups = call.shapes, call.attrs["groups"]
    planes = _planes(call)
    if planes is not None:
        return _single_launch(call, planes)
    channels, taps = w_shape[1], prod(w_shape[2:])
    rows = w_shape[0] // groups
    _, high, wide = _three(w_shape[2:], 1)
    whole = ImplicitGemm(
        dtype=_computed(call.dtypes[0]), batch=x_shape[0], groups=groups, rows=rows, channels=channels,
        axes=_conv_axes(call, w_shape[2:]), out_channel=prod(call.out_shape[2:]), out_first=0,
        weights=WeightLayout(rows * channels * taps, channels * taps, (taps, high * wide, wide, 1)),
    )  # fmt: skip
    return _windowed(call, [whole], set_first=False)


def _windowed(call: Call, parts: Sequence[ImplicitGemm], set_first: bool) -> Callable[..., Any]:
    """Return the kernel of parts of a result, each in the way that takes least time.

    ``set_first``: what no part computes is 0.
    """
    quick = [is_quicker(part) for part in parts]
    exact = cache(lambda: _implicit_gemm(call, parts, [False] * len(parts), set_first))
    if not any(quick):
        return _widened(call, exact())
    return _widened(call, _repacking(_implicit_gemm(call, parts, quick, set_first), exact))


def _repacking(computed: Callable[..., Any], exact: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Return what gives the result as computed; the exact one where what is not finite spread in it."""

    def run_it(x: Any, y: Any) -> Any:
        out, spread = computed(x, y)
        return exact()(x, y) if spread else out

    return run_it


def _implicit_gemm(
    call: Call, parts: Sequence[ImplicitGemm], quick: Sequence[bool], set_first: bool
) -> Callable[..., Any]:
    """Return what gives the result, and with quick parts whether a number that is not finite spread in it."""
    assert call.out_shape is not None
    native = DTYPES[_computed(call.dtypes[0])]
    spread = [(np.dtype(np.int64), ())] if any(quick) else []
    launches = Launches(2, (native, call.out_shape), *spread)
    if spread:
        launches.clear(3, 8, 0)
    if set_first:
        launches.clear(2, prod(call.out_shape) * native.itemsize, 0)
    for part, is_quick in zip(parts, quick, strict=True):
        (winograd if is_quick else windows)(launches, part)
    return launches.repacking(packed)


def transpose(call: Call) -> Callable[..., Any]:
    """Return the kernel of ``conv_transpose``: a convolution for each phase of the outputs."""
    assert call.shapes is not None
    assert call.out_shape is not None
    (x_shape, w_shape), groups = call.shapes, call.attrs["groups"]
    channels, rows, taps = w_shape[0] // groups, w_shape[1], prod(w_shape[2:])
    _, high, wide = _three(w_shape[2:], 1)
    steps, parts = (high * wide, wide, 1), []
    planes = _planes(call)
    if planes is not None:
        return _single_launch(call, planes)
    all_phases = _all_phases(call)
    for phases in all_phases:
        axes = (phases[0][0], phases[1][0], phases[2][0])
        if any(a.taps == 0 for a in axes):
            continue
        own = [rows * taps, *(s * p[3] for s, p in zip(steps, phases, strict=True))]
        weights = WeightLayout(
            channels * rows * taps, taps, (own[0], own[1], own[2], own[3]),
            sum(s * p[2] for s, p in zip(steps, phases, strict=True)),
        )  # fmt: skip
        parts.append(
            ImplicitGemm(
                dtype=_computed(call.dtypes[0]), batch=x_shape[0], groups=groups, rows=rows,
                channels=channels, axes=axes, weights=weights, out_channel=prod(call.out_shape[2:]),
                out_first=sum(p[1] for p in phases),
            )
        )  # fmt: skip
    return _windowed(call, parts, set_first=len(parts) < len(all_phases))


def _planes(call: Call) -> Launch | None:
    """Return the launch of a convolution of planes by themselves, or transposed; None where others serve.

    The transposed one takes steps of 2 along rows only: without steps it is a convolution like others.
    """
    assert call.shapes is not None
    assert call.out_shape is not None
    (x_shape, w_shape), out_shape, rank = call.shapes, call.out_shape, len(call.out_shape) - 2
    transposed = call.op == "conv_transpose"
    if rank > 2 or call.attrs["groups"] != w_shape[0] or w_shape[1] != 1:
        return None
    functions, lead = tiles(_computed(call.dtypes[0]), *_PLANE_TILE), 2 - rank
    (rows, columns), (high, wide), taps = ((1,) * lead + tuple(s[2:]) for s in (x_shape, out_shape, w_shape))
    stride, padding, apart = (
        (fill,) * lead + tuple(call.attrs[key])
        for key, fill in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    reach = [(k - 1) * d for k, d in zip(taps, apart, strict=True)]
    width, (step, along) = (wide // 2 if transposed else wide), stride
    if prod(taps) > MAX_DEPTH or (transposed and (along != 2 or 2 * step > _MAX_PHASES)):
        return None
    pitch = width + (reach[1] + padding[1]) // along + 2 * functions.lanes + 2
    if transposed:
        band = MAX_READ // pitch - (reach[0] + padding[0]) // step - 2
    else:
        band = (MAX_READ // (pitch * along) - reach[0] - 1) // step + 1
    if band < min(_MIN_BAND_ROWS, high):
        return None
    planes = x_shape[0] * x_shape[1]
    params = (x_shape[1], high, wide, rows, columns, *taps, *stride, *padding, *apart, band)
    piece = pieces((planes,), MIN_CONTIGUOUS_MOVES // (high * wide) + 1)
    name = "planes_transposed" if transposed else "planes_each"
    return functions.launch(name, (1, 0, 2), params, (planes,), piece)


def _single_launch(call: Call, launch: Launch) -> Callable[..., Any]:
    """Return the kernel of a call that is one launch."""
    assert call.out_shape is not None
    launches = Launches(2, (DTYPES[_computed(call.dtypes[0])], call.out_shape))
    launches.add(launch)
    return _widened(call, launches.repacking(packed))


def _all_phases(call: Call) -> list[tuple[Any, Any, Any]]:
    """Return the phases of a transposed convolution as those of its three axes."""
    assert call.shapes is not None
    assert call.out_shape is not None
    (x_shape, w_shape), counts = call.shapes, call.out_shape[2:]
    stride, padding, dilation = (call.attrs[key] for key in ("stride", "padding", "dilation"))
    kernel, space = w_shape[2:], x_shape[2:]
    if counts == space and all(
        k == s == 1 and p == 0 for k, s, p in zip(kernel, stride, padding, strict=True)
    ):
        n, alone = prod(space), _phases(1, 1, 1, 1, 0, 1, 0)[0]
        return [(alone, alone, _phases(n, n, 1, 1, 0, 1, 1)[0])]
    outs = _three(counts, 1)
    rest = (_three(stride, 1), _three(kernel, 1), _three(padding, 0), _three(dilation, 1), _strides(outs))
    z, y, x = (_phases(*sizes) for sizes in zip(_three(space, 1), outs, *rest, strict=True))
    return [(a, b, c) for a in z for b in y for c in x]


def weight_gradient(call: Call) -> Callable[..., Any]:
    """Return the kernel of ``conv_weight``, in the way that takes least time."""
    assert call.shapes is not None
    assert call.out_shape is not None
    shape, groups = call.out_shape, call.attrs["groups"]
    problem = WeightGradient(
        dtype=_computed(call.dtypes[0]), batch=call.shapes[0][0], groups=groups, rows=shape[0] // groups,
        channels=shape[1], axes=_conv_axes(call, shape[2:]),
    )  # fmt: skip
    exact = cache(lambda: _correlated(call, problem))
    if not weights_are_quicker(problem):
        return _widened(call, exact())
    launches = Launches(2, (DTYPES[problem.dtype], shape), (np.dtype(np.int64), ()))
    launches.clear(3, 8, 0)
    winograd_weights(launches, problem)
    return _widened(call, _repacking(launches.repacking(packed), exact))


def _correlated(call: Call, problem: WeightGradient) -> Callable[..., Any]:
    """Return what gives the gradient: channels of what it is of moved to lie side by side, then summed."""
    assert call.shapes is not None
    assert call.out_shape is not None
    (x_shape, g_shape), w_shape, dtype, axes = call.shapes, call.out_shape, problem.dtype, problem.axes
    batch, groups, rows, channels = problem.batch, problem.groups, problem.rows, problem.channels
    z, y, x = axes
    functions = tiles(dtype, 6, 2)
    if rows <= functions.lanes:
        functions = tiles(dtype, 12, 1)
    tile = tile_of(axes, channels * z.taps, functions.lanes, MAX_DEPTH // 2)
    assert tile is not None
    blocks, units = -(-channels * z.taps // tile.block), batch * z.count * covering_of(tile, axes)
    chunk = -(-units // max(-(-MIN_PIECES // (blocks * groups)), 1))
    wide, places = functions.lanes * functions.vectors, prod(g_shape[2:])
    lanes = 1 if rows == 1 else -(-rows // wide) * wide
    work = places // covering_of(tile, axes) * lanes * tile.block * y.taps * x.taps + 1
    chunk = min(max(chunk, MIN_PART_WORK // work), units)
    chunks = -(-units // chunk)
    row_panels, down = -(-rows // wide), -(-tile.block * y.taps * x.taps // functions.tall) * functions.tall
    image = channels * prod(x_shape[2:])
    params = params_of(rows, channels * z.taps, tile, axes, batch, groups, image, 0, 0, 0, 0, chunk)
    launches = Launches(2, (DTYPES[dtype], w_shape))
    g, parts = 1, launches.scratch(chunks * groups * blocks * row_panels * down * wide * dtype.itemsize)
    if rows > 1:
        g = launches.scratch(batch * groups * row_panels * places * wide * dtype.itemsize)
        grid: tuple[int, ...] = (row_panels, batch * groups)
        piece = pieces(grid, MIN_CONTIGUOUS_MOVES // (places * wide) + 1)
        launches.add(functions.launch("turn", (1, g), (rows, places), grid, piece))
    grid = (blocks, chunks, groups)
    piece = pieces(grid, MIN_PART_WORK // (work * chunk) + 1)
    launches.add(functions.launch("correlate", (g, 0, parts), params, grid, piece))
    moved = chunks * channels * prod(w_shape[2:]) * wide
    grid = (row_panels, groups)
    piece = pieces(grid, MIN_CONTIGUOUS_MOVES // moved + 1)
    launches.add(functions.launch("collect", (parts, 2), [*params, chunks], grid, piece))
    return launches.repacking(packed)


def takes_windows(call: Call) -> bool | str:
    """Say whether ``convolve``, ``transpose`` or ``weight_gradient`` serves a call."""
    assert call.shapes is not None
    assert call.out_shape is not None
    if call.dtypes[0] not in (*_FLOATS, *_NARROW):
        return f"not in {call.dtypes[0]}"
    kernel = (call.out_shape if call.op == "conv_weight" else call.shapes[1])[2:]
    if len(kernel) > 3 or 0 in (*call.out_shape, *call.shapes[0], *call.shapes[1]):
        return "up to three axes, and nothing empty, only"
    if NATIVE.compiler() is None:
        return NATIVE.reason
    if call.op == "conv_transpose":
        phases = _all_phases(call)
        if len(phases) > _MAX_PHASES:
            return f"steps of up to {_MAX_PHASES} places in all only"
        every = [(z[0], y[0], x[0]) for z, y, x in phases]
    else:
        every = [_conv_axes(call, kernel)]
    fits = all(0 in (a.taps for a in axes) or tile_of(axes, 1, 16) for axes in every)
    return fits or "windows that fit into the cache only"


def _computed(dtype: DType) -> DType:
    return dtype if dtype in _FLOATS else dtypes.float32


def _widened(call: Call, kernel: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return the kernel of 16-bit floats: computed in float32, rounded once."""
    own = call.dtypes[0]
    if own in _FLOATS:
        return kernel
    widen, back = cast(own, dtypes.float32), cast(dtypes.float32, own)
    return lambda x, y: back(kernel(widen(x), widen(y)))


PREPARE: Final = {"conv": convolve, "conv_transpose": transpose, "conv_weight": weight_gradient}


def convolution_kernels() -> dict[str, Kernel]:
    """Return the kernels of convolution and of its gradients."""
    return {
        op: Kernel(name="native", prepare=prepare, supports=takes_windows) for op, prepare in PREPARE.items()
    }
