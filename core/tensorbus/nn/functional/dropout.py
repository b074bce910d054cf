"""Dropout as functions, and choosing by noisy scores.

Masks come from the counter-based generator: one seed drops the same elements on every device. Arguments are
PyTorch's, and a ``generator`` beside them.
"""

from __future__ import annotations

import math
from typing import Final

from ...autograd.node_order import order
from ...errors import ArgumentError, ShapeError
from ...ops.call_errors import with_form
from ...ops.creation.creation import iota, zeros_like
from ...ops.elementwise.comparison import equal
from ...ops.elementwise.transcendental import log
from ...ops.elementwise.where_cast import cast, where
from ...ops.fused_function import fuse_in_eager
from ...ops.movement.movement import reshape
from ...ops.reduction.reduction import argmax
from ...ops.reduction.softmax import softmax
from ...random.generator import Generator, chosen, distributed, drawing, open_unit_of
from ...tensor.tensor import Tensor

_ALPHA: Final = 1.7580993408473766
"""The negative limit of SELU, which ``alpha_dropout`` fills in (Klambauer et al. 2017)."""


@with_form
def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return ``input`` with each element zeroed with probability ``p``, the others times ``1 / (1 - p)``.

    Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, JMLR 2014. Raises ``ArgumentError`` unless
    ``0 <= p <= 1``.
    """
    return _dropped("dropout", input, p, training, inplace, input.shape, generator)


@with_form
def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return ``([batch,] channels, length)`` with whole channels dropped: see ``dropout``."""
    return _by_channel("dropout1d", input, p, training, inplace, (2, 3), generator)


@with_form
def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return ``(batch, channels, height, width)`` with whole channels dropped (Tompson et al. 2015)."""
    return _by_channel("dropout2d", input, p, training, inplace, (3, 4), generator)


@with_form
def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return ``([batch,] channels, *space)`` of three spatial axes with whole channels dropped."""
    return _by_channel("dropout3d", input, p, training, inplace, (4, 5), generator)


def _by_channel(
    name: str, x: Tensor, p: float, training: bool, inplace: bool, ranks: tuple[int, int],
    generator: Generator | None,
) -> Tensor:  # fmt: skip
    if x.ndim not in ranks:
        raise ShapeError(f"{name}: {ranks[0]} or {ranks[1]} dimensions are needed, got shape {x.shape}.")
    # As in PyTorch, three axes are (batch, channels, length) for dropout2d too.
    lead = 1 if x.ndim == ranks[0] and name != "dropout2d" else 2
    mask = x.shape[:lead] + (1,) * (x.ndim - lead)
    return _dropped(name, x, p, training, inplace, mask, generator)


def _dropped(
    name: str, x: Tensor, p: float, training: bool, inplace: bool, mask: tuple[int, ...],
    generator: Generator | None,
) -> Tensor:  # fmt: skip
    _check(name, p)
    if not training or p == 0:
        return x
    everything = p == 1
    since = next(order)
    out = x * zeros_like(x) if everything else _thinned(x, drawing(mask, x.device, generator), mask, p)
    return _put(name, x, out, inplace, since)


@fuse_in_eager
def _thinned(x: Tensor, state: Tensor, mask: tuple[int, ...], p: float) -> Tensor:
    """Return ``x`` with some elements, or some of its channels, dropped; a derivative draws them again."""
    return x * (cast(chosen(state, mask, 1 - p, distributed(x)), x.dtype) * (1 / (1 - p)))


def _check(name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise ArgumentError(f"{name}: a probability lies in [0, 1], got {p!r}.")


def _put(name: str, x: Tensor, out: Tensor, inplace: bool, since: int) -> Tensor:
    if inplace:
        x.rebind(out, by=f"{name}_", since=since)
        return x
    return out


@with_form
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return ``input`` with elements set to SELU's limit, so that mean and variance stay 0 and 1."""
    return _alpha("alpha_dropout", input, p, training, inplace, input.shape, generator)


@with_form
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return ``(batch, channels, *space)`` with whole channels set to SELU's limit: see ``alpha_dropout``."""
    if input.ndim < 2 and training and p != 0:
        raise ShapeError(f"feature_alpha_dropout: (batch, channels, *space) is needed, got {input.shape}.")
    mask = input.shape[:2] + (1,) * (input.ndim - 2)
    return _alpha("feature_alpha_dropout", input, p, training, inplace, mask, generator)


def _alpha(
    name: str, x: Tensor, p: float, training: bool, inplace: bool, mask: tuple[int, ...],
    generator: Generator | None,
) -> Tensor:  # fmt: skip
    _check(name, p)
    if not training or p == 0:
        return x
    since = next(order)
    if p == 1:
        return _put(name, x, x * zeros_like(x), inplace, since)
    return _put(name, x, _limited(x, drawing(mask, x.device, generator), mask, p), inplace, since)


@fuse_in_eager
def _limited(x: Tensor, state: Tensor, mask: tuple[int, ...], p: float) -> Tensor:
    scale = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
    keeps = cast(chosen(state, mask, 1 - p, distributed(x)), x.dtype)
    shift = (keeps - 1) * (_ALPHA * scale) + _ALPHA * scale * p
    return x * (keeps * scale) + shift


@with_form
def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1, *,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return shares drawn from the Gumbel-softmax distribution of ``logits`` (Jang, Gu, Poole 2017).

    With ``hard`` they are one-hot, and their gradient is that of the shares. ``eps`` does nothing, as in
    PyTorch.
    """
    shares = _shares(logits, drawing(logits.shape, logits.device, generator), tau, dim)
    if not hard:
        return shares
    best = argmax(shares.detach(), axis=dim, keepdims=True)
    places = [1] * logits.ndim
    places[dim] = logits.shape[dim]
    one = equal(reshape(iota(logits.shape[dim], device=logits.device), tuple(places)), best)
    return cast(where(one, 1.0, zeros_like(shares)), shares.dtype) - shares.detach() + shares


@fuse_in_eager
def _shares(logits: Tensor, state: Tensor, tau: float, dim: int) -> Tensor:
    noise = cast(-log(-log(open_unit_of(state, logits.shape, distributed(logits)))), logits.dtype)
    return softmax((logits + noise) / tau, axis=dim)
