"""Initial values, with PyTorch's names and distributions, drawn from tensorbus's own generator.

One seed gives the same values on every device. Each function rebinds the tensor it is given and returns it.
"""

from __future__ import annotations

import math
from typing import Final

from .. import random
from ..autograd import no_grad
from ..errors import ArgumentError, ShapeError
from ..ops.creation import eye, full_like
from ..random import Generator
from ..tensor import Tensor

_GAINS: Final = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3, "selu": 0.75,
    "relu": math.sqrt(2.0),
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which a nonlinearity asks for larger weights (He, Zhang, Ren, Sun 2015).

    ``param`` is the negative slope of ``"leaky_relu"``, 0.01 by default.

    >>> calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        known = ", ".join(sorted([*_GAINS, "leaky_relu"]))
        raise ArgumentError(f"calculate_gain: no gain is known for {nonlinearity!r}; there are {known}.")
    return _GAINS[nonlinearity]


def fans(tensor: Tensor) -> tuple[int, int]:
    """Return how many values each result is made from, and how many results each value goes into.

    Raises ``ShapeError`` for fewer than 2 dimensions.
    """
    if tensor.ndim < 2:
        raise ShapeError(f"a weight of at least 2 dimensions has fans, got shape {tensor.shape}.")
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _fan(tensor: Tensor, mode: str) -> int:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"mode must be 'fan_in' or 'fan_out', got {mode!r}.")
    return max(1, fans(tensor)[0 if mode == "fan_in" else 1])


def _put(tensor: Tensor, value: Tensor) -> Tensor:
    with no_grad():
        tensor.rebind(value)
    return tensor


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with numbers spread evenly over ``[a, b)``."""
    drawn = random.uniform(tensor.shape, a, b, dtype=tensor.dtype, device=tensor.device, generator=generator)
    return _put(tensor, drawn)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with normally distributed numbers."""
    drawn = random.normal(
        tensor.shape, mean, std, dtype=tensor.dtype, device=tensor.device, generator=generator
    )
    return _put(tensor, drawn)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one number."""
    return _put(tensor, full_like(tensor, val))


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1)


def eye_(tensor: Tensor) -> Tensor:
    """Make a matrix the identity. Raises ``ShapeError`` for any other rank."""
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: 2 dimensions are needed, got shape {tensor.shape}.")
    return _put(tensor, eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill evenly so that variances stay equal forwards and backwards (Glorot and Bengio 2010)."""
    bound = gain * math.sqrt(6.0 / max(1, sum(fans(tensor))))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill normally so that variances stay equal forwards and backwards (Glorot and Bengio 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / max(1, sum(fans(tensor)))), generator)


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Fill evenly so that variances stay equal through rectifiers of slope ``a`` (He et al. 2015)."""
    bound = calculate_gain(nonlinearity, a) * math.sqrt(3.0 / _fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Fill normally so that variances stay equal through rectifiers of slope ``a`` (He et al. 2015)."""
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


def reset_affine(weight: Tensor, bias: Tensor | None) -> None:
    """Give a linear or convolution layer PyTorch's initial values: within ``1 / sqrt(fan_in)`` of zero."""
    if weight.size:
        kaiming_uniform_(weight, a=math.sqrt(5))
        if bias is not None:
            bound = 1 / math.sqrt(fans(weight)[0])
            uniform_(bias, -bound, bound)
