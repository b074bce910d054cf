"""Fourier transforms: the extension ``fft`` of the array API standard 2025.12.

Imported when it is first named. On devices whose manifest lists ``fft`` under ``host`` it runs on the host.
Lengths other than that of the operand are cut, or filled with zeros, before the transform.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .dtypes import definition as dt
from .dtypes.definition import DType
from .errors import ArgumentError, DtypeError, ShapeError, suggest
from .ops.call_errors import with_form
from .ops.creation.creation import iota
from .ops.elementwise.arithmetic import conj
from .ops.elementwise.where_cast import cast, where
from .ops.fft import ADJOINT_NORM, inverse_real_transform, real_transform, transform
from .ops.movement.family import as_shape, normalize_axis
from .ops.movement.movement import concat, pad, slice

if TYPE_CHECKING:
    from .devices.device import Device
    from .tensor.tensor import Tensor


def _check_norm(name: str, norm: str | None) -> str:
    """Return ``norm``, None as "backward". Raises ``ArgumentError`` unless it is one of the three."""
    norm = "backward" if norm is None else norm
    if norm not in ADJOINT_NORM:
        raise ArgumentError(
            f"{name}: norm is {norm!r}; it must be one of {', '.join(map(repr, ADJOINT_NORM))}."
            f"{suggest(str(norm), ADJOINT_NORM)}"
        )
    return norm


def _resized(x: Any, axis: int, n: int) -> Any:
    """Return ``x`` with its first ``n`` elements along ``axis``, and zeros where it has fewer."""
    m = x.shape[axis]
    if n == m:
        return x
    if n < m:
        size = (*x.shape[:axis], n, *x.shape[axis + 1 :])
        return slice(x, (0,) * len(size), size, (1,) * len(size))
    after = tuple(n - m if k == axis else 0 for k in range(len(x.shape)))
    return pad(x, (0,) * len(after), after, 0)


def _one(name: str, x: Any, n: int | None, axis: int) -> tuple[int, int]:
    """Return the axis counted from the front, and the length over it."""
    place = normalize_axis(name, axis, len(x.shape))
    length = x.shape[place] if n is None else as_shape(name, n)[0]
    if length < 1:
        raise ShapeError(f"{name}: n is {length} over axis {axis} of shape {x.shape}; it must be at least 1.")
    return place, length


def _many(name: str, x: Any, s: Any, axes: Any) -> list[tuple[int, int | None]]:
    """Return the axes and the length over each, None where it stays as it is.

    Lengths without axes are those of the last axes, as in PyTorch.
    """
    rank = len(x.shape)
    lengths = None if s is None else [None if n == -1 else n for n in as_shape(name, s)]
    if axes is not None:
        places = [normalize_axis(name, a, rank) for a in as_shape(name, axes)]
    elif lengths is None:
        places = list(range(rank))
    else:
        places = [normalize_axis(name, k - len(lengths), rank) for k in range(len(lengths))]
    lengths = [None] * len(places) if lengths is None else lengths
    if len(lengths) != len(places) or len(set(places)) != len(places) or not places:
        raise ArgumentError(
            f"{name}: s = {s!r} and axes = {axes!r} must be as many lengths as different axes of shape"
            f" {x.shape}, at least one."
        )
    return list(zip(places, lengths, strict=True))


def _along(name: str, x: Any, n: int | None, axis: int, norm: str | None, inverse: bool) -> Tensor:
    norm = _check_norm(name, norm)
    place, length = _one(name, x, n, axis)
    spectrum: Tensor = transform(_resized(x, place, length), axis=place, inverse=inverse, norm=norm)
    return spectrum


@with_form
def fft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the Fourier transform along ``axis``: ``out[k] = sum(x[j] * exp(-2j * pi * j * k / n))``.

    ``x`` is complex, or is made so. ``n`` cuts the axis, or fills it with zeros. ``norm="ortho"`` divides by
    ``sqrt(n)``, ``"forward"`` by ``n``. Raises ``ShapeError`` for no elements.

    >>> import tensorbus as tb
    >>> tb.fft.fft(tb.asarray([1.0 + 0j, 2.0, 3.0, 4.0])).tolist()
    [(10+0j), (-2+2j), (-2+0j), (-2-2j)]
    """
    return _along("fft", x, n, axis, norm, inverse=False)


@with_form
def ifft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the inverse of ``fft``: it divides by ``n``, or by what ``norm`` says.

    >>> import tensorbus as tb
    >>> tb.fft.ifft(tb.fft.fft(tb.asarray([1.0 + 0j, 2.0]))).tolist()
    [(1+0j), (2+0j)]
    """
    return _along("ifft", x, n, axis, norm, inverse=True)


@with_form
def fftn(
    x: Tensor, /, s: int | Sequence[int] | None = None, axes: int | Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:  # fmt: skip
    """Return the Fourier transform over several axes (None: all), of lengths ``s``; -1 keeps a length.

    Lengths without axes are those of the last axes.

    >>> import tensorbus as tb
    >>> tb.fft.fftn(tb.ones((2, 2), dtype="complex64")).tolist()
    [[(4+0j), 0j], [0j, 0j]]
    """
    for axis, n in _many("fftn", x, s, axes):
        x = _along("fftn", x, n, axis, norm, inverse=False)
    return x


@with_form
def ifftn(
    x: Tensor, /, s: int | Sequence[int] | None = None, axes: int | Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:  # fmt: skip
    """Return the inverse of ``fftn``."""
    for axis, n in _many("ifftn", x, s, axes):
        x = _along("ifftn", x, n, axis, norm, inverse=True)
    return x


@with_form
def fft2(
    x: Tensor, /, s: int | Sequence[int] | None = None, axes: int | Sequence[int] = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:  # fmt: skip
    """Return ``fftn`` over two axes, by default the last ones."""
    return fftn(x, s=s, axes=axes, norm=norm)


@with_form
def ifft2(
    x: Tensor, /, s: int | Sequence[int] | None = None, axes: int | Sequence[int] = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:  # fmt: skip
    """Return ``ifftn`` over two axes, by default the last ones."""
    return ifftn(x, s=s, axes=axes, norm=norm)


@with_form
def rfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the first ``n // 2 + 1`` elements of the Fourier transform of real numbers.

    The others are their conjugates, backwards.

    >>> import tensorbus as tb
    >>> tb.fft.rfft(tb.asarray([1.0, 2.0, 3.0, 4.0])).tolist()
    [(10+0j), (-2+2j), (-2+0j)]
    """
    norm = _check_norm("rfft", norm)
    place, length = _one("rfft", x, n, axis)
    return real_transform(_resized(x, place, length), axis=place, norm=norm)


@with_form
def irfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the ``n`` real numbers whose ``rfft`` is ``x``; by default an even number of them.

    >>> import tensorbus as tb
    >>> tb.fft.irfft(tb.asarray([3.0 + 0j, -1.0]), n=2).tolist()
    [1.0, 2.0]
    """
    return _real_from_half("irfft", x, n, axis, norm)


def _real_from_half(name: str, x: Any, n: int | None, axis: int, norm: str | None) -> Tensor:
    norm = _check_norm(name, norm)
    place = normalize_axis(name, axis, len(x.shape))
    place, length = _one(name, x, 2 * (x.shape[place] - 1) if n is None else n, axis)
    half = _resized(x, place, length // 2 + 1)
    signal: Tensor = inverse_real_transform(half, n=length, axis=place, norm=norm)
    return signal


@with_form
def rfftn(
    x: Tensor, /, s: int | Sequence[int] | None = None, axes: int | Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:  # fmt: skip
    """Return the Fourier transform of real numbers over several axes; the last one gives half a spectrum.

    >>> import tensorbus as tb
    >>> tb.fft.rfftn(tb.ones((2, 4))).shape
    (2, 3)
    """
    *others, (axis, n) = _many("rfftn", x, s, axes)
    x = rfft(x, n=n, axis=axis, norm=norm)
    for place, length in others:
        x = _along("rfftn", x, length, place, norm, inverse=False)
    return x


@with_form
def irfftn(
    x: Tensor, /, s: int | Sequence[int] | None = None, axes: int | Sequence[int] | None = None,
    norm: str | None = "backward",
) -> Tensor:  # fmt: skip
    """Return the inverse of ``rfftn``; ``s`` are the lengths of the result, by default even in the last axis.

    >>> import tensorbus as tb
    >>> tb.fft.irfftn(tb.ones((2, 3), dtype="complex64")).shape
    (2, 4)
    """
    *others, (axis, n) = _many("irfftn", x, s, axes)
    for place, length in others:
        x = _along("irfftn", x, length, place, norm, inverse=True)
    return irfft(x, n=n, axis=axis, norm=norm)


@with_form
def rfft2(
    x: Tensor, /, s: int | Sequence[int] | None = None, axes: int | Sequence[int] = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:  # fmt: skip
    """Return ``rfftn`` over two axes, by default the last ones."""
    return rfftn(x, s=s, axes=axes, norm=norm)


@with_form
def irfft2(
    x: Tensor, /, s: int | Sequence[int] | None = None, axes: int | Sequence[int] = (-2, -1),
    norm: str | None = "backward",
) -> Tensor:  # fmt: skip
    """Return ``irfftn`` over two axes, by default the last ones."""
    return irfftn(x, s=s, axes=axes, norm=norm)


@with_form
def hfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the real spectrum, of ``n`` elements, of a signal whose second half mirrors ``x`` conjugated.

    >>> import tensorbus as tb
    >>> tb.fft.hfft(tb.asarray([1.0 + 0j, 2.0, 3.0])).tolist()
    [8.0, -2.0, 0.0, -2.0]
    """
    return _real_from_half("hfft", conj(x), n, axis, ADJOINT_NORM[_check_norm("hfft", norm)])


@with_form
def ihfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = "backward") -> Tensor:
    """Return the first half of the signal whose spectrum is real: the inverse of ``hfft``.

    >>> import tensorbus as tb
    >>> tb.fft.ihfft(tb.asarray([8.0, -2.0, 0.0, -2.0])).shape
    (3,)
    """
    adjoint_norm = ADJOINT_NORM[_check_norm("ihfft", norm)]
    place, length = _one("ihfft", x, n, axis)
    spectrum: Tensor = conj(real_transform(_resized(x, place, length), axis=place, norm=adjoint_norm))
    return spectrum


def _frequencies(
    name: str, n: int, d: float, dtype: DType | str | None, device: Device | str | None
) -> tuple[Any, DType]:
    (length,) = as_shape(name, n)
    if length < 1 or not d:
        raise ArgumentError(f"{name}: n = {length} and d = {d!r}; n must be at least 1, d not 0.")
    kind = dt.default_float if dtype is None else dt.dtype(dtype)
    if not kind.is_floating:
        raise DtypeError(f"{name}: frequencies are floating point, got dtype {kind}.")
    return iota(length, dtype=dt.int64, device=device), kind


@with_form
def fftfreq(
    n: int, /, d: float = 1.0, *, dtype: DType | str | None = None, device: Device | str | None = None
) -> Tensor:
    """Return the frequency of each element that ``fft`` gives, for samples ``d`` apart.

    >>> import tensorbus as tb
    >>> tb.fft.fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    places, kind = _frequencies("fftfreq", n, d, dtype, device)
    return cast(where(places < (n + 1) // 2, places, places - n), kind) / (n * d)


@with_form
def rfftfreq(
    n: int, /, d: float = 1.0, *, dtype: DType | str | None = None, device: Device | str | None = None
) -> Tensor:
    """Return the frequency of each element that ``rfft`` gives, for ``n`` samples ``d`` apart.

    >>> import tensorbus as tb
    >>> tb.fft.rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    places, kind = _frequencies("rfftfreq", n, d, dtype, device)
    return cast(slice(places, (0,), (n // 2 + 1,), (1,)) if n > 1 else places, kind) / (n * d)


def _shift(name: str, x: Any, axes: Any, before: Callable[[int], int]) -> Tensor:
    along_axes = range(len(x.shape)) if axes is None else axes if isinstance(axes, (tuple, list)) else (axes,)
    for axis in (normalize_axis(name, a, len(x.shape)) for a in along_axes):
        m = x.shape[axis]
        first = before(m)
        if not 0 < first < m:
            continue
        rank = len(x.shape)
        start = tuple(first if k == axis else 0 for k in range(rank))
        sizes = [(*x.shape[:axis], n, *x.shape[axis + 1 :]) for n in (m - first, first)]
        parts = [slice(x, b, size, (1,) * rank) for b, size in zip((start, (0,) * rank), sizes, strict=True)]
        x = concat(parts, axis=axis)
    shifted: Tensor = +x
    return shifted


@with_form
def fftshift(x: Tensor, /, axes: int | Sequence[int] | None = None) -> Tensor:
    """Return a spectrum with the frequency 0 in the middle of ``axes`` (None: of all).

    >>> import tensorbus as tb
    >>> tb.fft.fftshift(tb.fft.fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _shift("fftshift", x, axes, lambda m: (m + 1) // 2)


@with_form
def ifftshift(x: Tensor, /, axes: int | Sequence[int] | None = None) -> Tensor:
    """Return the inverse of ``fftshift``: the frequency 0 comes first."""
    return _shift("ifftshift", x, axes, lambda m: m // 2)
