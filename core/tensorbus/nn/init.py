"""Initial values, with PyTorch's names and distributions, drawn from tensorbus's own generator.

One seed gives the same values on every device. Each function rebinds the tensor it is given and returns it.
"""

from __future__ import annotations

import math
from typing import Final

from .. import linalg
from ..autograd.engine import no_grad
from ..distributions import truncated_normal
from ..dtypes.definition import float32, float64
from ..errors import ArgumentError, ShapeError
from ..ops.creation.creation import eye, full_like
from ..ops.elementwise.arithmetic import sign
from ..ops.elementwise.where_cast import cast, where
from ..ops.movement.movement import broadcast_to, pad, reshape
from ..ops.ordering.sorting import argsort
from ..ops.reduction.reduction import sum as sum_of
from ..random import generator as random
from ..random.generator import Generator
from ..tensor.tensor import Tensor

_GAINS: Final = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0, "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3, "selu": 0.75,
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
    """Return how many values each result is computed from, and how many results each value goes into.

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
        tensor.rebind(value, by="nn.init")
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


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Fill with normally distributed numbers, of those that lie in ``[a, b]``."""
    drawn = truncated_normal(
        tensor.shape, mean, std, a, b, dtype=tensor.dtype, device=tensor.device, generator=generator
    )
    return _put(tensor, drawn)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with a (half) orthogonal matrix of the axes after the first (Saxe, McClelland, Ganguli 2014).

    Raises ``ShapeError`` for fewer than 2 dimensions.
    """
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_: at least 2 dimensions are needed, got shape {tensor.shape}.")
    if not tensor.size:
        return tensor
    rows, columns = tensor.shape[0], tensor.size // tensor.shape[0]
    long, short = max(rows, columns), min(rows, columns)
    wide = float64 if tensor.dtype is float64 else float32
    drawn = random.normal((long, short), dtype=wide, device=tensor.device, generator=generator)
    q, r = linalg.qr(drawn)
    whole = q * sign(sum_of(r * eye(short, dtype=wide, device=tensor.device), axis=0))
    whole = whole.mT if rows < columns else whole
    return _put(tensor, cast(reshape(whole * gain, tensor.shape), tensor.dtype))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Make the weight of a convolution pass as many channels on as it can.

    Raises ``ShapeError`` unless there are 3 to 5 dimensions, ``ArgumentError`` unless ``groups`` divide the
    outputs.
    """
    if tensor.ndim not in (3, 4, 5):
        raise ShapeError(f"dirac_: 3 to 5 dimensions are needed, got shape {tensor.shape}.")
    outputs, inputs, *window = tensor.shape
    if groups < 1 or outputs % groups:
        raise ArgumentError(f"dirac_: groups must divide {outputs} outputs, got {groups!r}.")
    part = reshape(
        eye(outputs // groups, inputs, dtype=tensor.dtype, device=tensor.device),
        (1, outputs // groups, inputs, *(1,) * len(window)),
    )  # fmt: skip
    whole = reshape(broadcast_to(part, (groups, *part.shape[1:])), (outputs, inputs, *(1,) * len(window)))
    low = (0, 0, *(n // 2 for n in window))
    high = (0, 0, *(n - 1 - n // 2 for n in window))
    return _put(tensor, pad(whole, low, high))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill a matrix normally, a share ``sparsity`` of each column being 0 (Martens 2010).

    Raises ``ShapeError`` for any other rank, ``ArgumentError`` unless the share lies in [0, 1].
    """
    if tensor.ndim != 2:
        raise ShapeError(f"sparse_: 2 dimensions are needed, got shape {tensor.shape}.")
    if not 0 <= sparsity <= 1:
        raise ArgumentError(f"sparse_: sparsity lies in [0, 1], got {sparsity!r}.")
    drawn = random.normal(
        tensor.shape, 0.0, std, dtype=tensor.dtype, device=tensor.device, generator=generator
    )
    chance = random.uniform(tensor.shape, device=tensor.device, generator=generator)
    rank = argsort(argsort(chance, axis=0), axis=0)
    return _put(tensor, where(rank < math.ceil(sparsity * tensor.shape[0]), 0.0, drawn))


def reset_affine(weight: Tensor, bias: Tensor | None) -> None:
    """Give a linear or convolution layer PyTorch's initial values: within ``1 / sqrt(fan_in)`` of zero."""
    if weight.size:
        kaiming_uniform_(weight, a=math.sqrt(5))
        if bias is not None:
            bound = 1 / math.sqrt(fans(weight)[0])
            uniform_(bias, -bound, bound)
