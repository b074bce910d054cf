"""Drawing places: permutations, choices with given weights, and numbers like another tensor.

Permutations use integer ops only: one seed gives the same ones on every device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..errors import ArgumentError, DtypeError, IndexingError, ShapeError
from ..ops.call_errors import with_form
from ..ops.creation.creation import DeviceLike, asked, check_shape, empty_like
from ..ops.elementwise.comparison import (
    bitwise_left_shift,
    bitwise_xor,
    equal,
    greater,
    isfinite,
    less,
    logical_not,
)
from ..ops.elementwise.transcendental import log
from ..ops.elementwise.where_cast import cast, where
from ..ops.indexing.gather_scatter import gather
from ..ops.movement.family import normalize_axis
from ..ops.movement.movement import broadcast_to, expand_dims, moveaxis
from ..ops.ordering.search import searchsorted
from ..ops.ordering.sorting import argsort
from ..ops.reduction.reduction import any as any_of
from ..ops.reduction.reduction import sum
from ..ops.reduction.scan import sum_scan
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import active_tracer
from .generator import (
    Generator,
    _words,
    distributed,
    drawing,
    floating,
    integers,
    normal_of,
    open_unit,
    uniform_of,
)

if TYPE_CHECKING:
    from ..tensor.tensor import Tensor


@with_form
def randperm(
    n: int, *, dtype: DType | str | None = None, device: DeviceLike = None, generator: Generator | None = None
) -> Tensor:
    """Return the integers from 0 up to but without ``n`` in random order; the same on every device.

    >>> import tensorbus as tb
    >>> sorted(tb.randperm(4).tolist())
    [0, 1, 2, 3]
    """
    (count,) = check_shape("randperm", (n,))
    kind = dt.default_int if dtype is None else dt.dtype(dtype)
    words = cast(_words((2, count), device, generator), dt.int64)
    keys = bitwise_xor(bitwise_left_shift(words[0], 31), words[1])
    return cast(argsort(keys), kind)


@with_form
def permutation(
    x: Tensor | int, /, *, axis: int = 0, device: DeviceLike = None, generator: Generator | None = None
) -> Tensor:
    """Return ``x`` with its parts along ``axis`` in random order; for an integer, ``randperm`` of it."""
    if isinstance(x, int):
        return randperm(x, device=device, generator=generator)
    place = normalize_axis("permutation", axis, x.ndim)
    order = randperm(x.shape[place], device=x.device, generator=generator)
    out: Tensor = moveaxis(gather(moveaxis(x, place, 0), order), 0, place)
    return out


@with_form
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Return int64 places drawn with the weights ``input``.

    ``([rows,] places)`` give ``([rows,] num_samples)``. Weights are not negative and need not add up to 1.
    Without ``replacement`` no place is drawn twice (Efraimidis and Spirakis 2006), and as many weights as are
    drawn must not be 0. Waits for the device, to check them; a compiled program checks them as it runs, and
    on devices that queue their work raises ``IndexingError`` when somebody waits for it.
    Raises ``ShapeError``, ``DtypeError`` and ``ArgumentError``.

    >>> import tensorbus as tb
    >>> tb.multinomial(tb.asarray([0.0, 1.0, 0.0]), 2, replacement=True).tolist()
    [1, 1]
    """
    if input.ndim not in (1, 2) or not input.shape[-1]:
        raise ShapeError(f"multinomial: weights of 1 or 2 dimensions are needed, got shape {input.shape}.")
    if not input.dtype.is_floating:
        raise DtypeError(f"multinomial: weights must be floating-point, got {input.dtype}.")
    if num_samples < 1 or (not replacement and num_samples > input.shape[-1]):
        raise ArgumentError(
            f"multinomial: 1 to {input.shape[-1]} places can be drawn without replacement, any number >= 1"
            f" with; got {num_samples!r}."
        )
    weights: Any = input.detach()
    weights = weights if weights.dtype is dt.float64 else cast(weights, dt.float32)
    usable = sum(cast(greater(weights, 0), dt.int64), axis=-1)
    wrong = any_of(logical_not(isfinite(weights))) | any_of(less(weights, 0))
    refused = ArgumentError(
        "multinomial: weights must be finite and not negative, and in each row at least"
        f" {1 if replacement else num_samples} above 0."
    )
    weights = _unless(wrong | any_of(less(usable, 1 if replacement else num_samples)), weights, refused)
    if not replacement:
        chance = cast(open_unit(input.shape, input.device, generator), weights.dtype)
        none = equal(weights, 0)
        race = where(none, float("inf"), -log(chance) / where(none, 1.0, weights))
        return argsort(race, axis=-1)[..., :num_samples]
    steps = sum_scan(weights, axis=-1)
    chance = cast(open_unit((*input.shape[:-1], num_samples), input.device, generator), weights.dtype)
    categories = searchsorted(steps, chance * steps[..., -1:], side="left")
    last = sum(cast(less(steps, steps[..., -1:]), dt.int64), axis=-1, keepdims=True)
    out: Tensor = where(less(categories, last), categories, broadcast_to(last, categories.shape))
    return out


def _unless(wrong: Any, x: Tensor, error: ArgumentError) -> Tensor:
    """Return ``x``; where ``wrong``, a single bool, is true raise ``error``.

    A program fails by an index that is out of range then, and Python, which runs the function in its place,
    finds the error here.
    """
    active = active_tracer() if active_modes else None
    if active is None or not active.is_one_program():
        if bool(wrong):
            raise error
        return x
    try:
        checked: Tensor = gather(expand_dims(x, axis=0), cast(wrong, dt.int64))
    except IndexingError:
        raise error from None
    return checked


@with_form
def rand_like(
    x: Tensor, /, *, dtype: DType | str | None = None, device: DeviceLike = None,
    generator: Generator | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return numbers spread evenly over [0, 1), of the shape, dtype and device of ``x``."""
    kind, (like, there) = floating("rand_like", dtype or x.dtype), _like(x, device)
    state = drawing(x.shape, there, generator)
    return asked(uniform_of(state, x.shape, 0.0, 1.0, kind, like), requires_grad)


@with_form
def randn_like(
    x: Tensor, /, *, dtype: DType | str | None = None, device: DeviceLike = None,
    generator: Generator | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return normally distributed numbers, of the shape, dtype and device of ``x``."""
    kind, (like, there) = floating("randn_like", dtype or x.dtype), _like(x, device)
    state = drawing((2, *x.shape), there, generator)
    return asked(normal_of(state, x.shape, 0.0, 1.0, kind, like), requires_grad)


@with_form
def randint_like(
    x: Tensor, low: int, high: int | None = None, /, *, dtype: DType | str | None = None,
    device: DeviceLike = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return integers in ``[low, high)``, or in ``[0, low)``, of the shape, dtype and device of ``x``."""
    ends = (0, low) if high is None else (low, high)
    like, there = _like(x, device)
    return integers("randint_like", *ends, x.shape, dtype or x.dtype, there, generator, like)


def _like(x: Tensor, device: DeviceLike) -> tuple[Tensor | None, DeviceLike]:
    """Return what new numbers lie as, where ranks have parts of ``x``, and their device."""
    if distributed(x) is None:
        return None, device or x.device
    like = x if device is None else empty_like(x, device=device)
    return distributed(like), like.device
