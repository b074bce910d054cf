"""Activations as functions, with PyTorch's names of arguments and its ``inplace``.

With ``inplace`` the input then holds the result too. The ops themselves have no such argument.
"""

from __future__ import annotations

from typing import Any

from ...errors import ArgumentError
from ...ops.call_errors import with_form
from ...ops.elementwise import activation
from ...ops.elementwise.where_cast import cast
from ...random.generator import Generator, uniform
from ...tensor.tensor import Tensor

_relu = activation.relu.function
_silu = activation.silu.function
_mish = activation.mish.function
_hardsigmoid = activation.hardsigmoid.function
_hardswish = activation.hardswish.function


def also_in(x: Tensor, out: Any, inplace: bool, name: str) -> Tensor:
    """Return ``out``, the result of one op; if ``inplace``, ``x``, which then holds it: see ``rebind``."""
    if inplace:
        x.rebind(out, by=name, since=0 if out._node is None else out._node.order - 1)
        return x
    result: Tensor = out
    return result


@with_form
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return ``max(input, 0)``."""
    return also_in(input, _relu(input), inplace, "relu_")


@with_form
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Return ``min(max(input, 0), 6)``."""
    return also_in(input, activation.relu6(input), inplace, "relu6_")


@with_form
def elu(input: Tensor, alpha: Any = 1.0, inplace: bool = False) -> Tensor:
    """Return ``input`` above zero, ``alpha * expm1(input)`` below (Clevert, Unterthiner, Hochreiter 2016)."""
    return also_in(input, activation.elu(input, alpha), inplace, "elu_")


@with_form
def celu(input: Tensor, alpha: Any = 1.0, inplace: bool = False) -> Tensor:
    """Return ``input`` above zero, ``alpha * expm1(input / alpha)`` below (Barron 2017)."""
    return also_in(input, activation.celu(input, alpha), inplace, "celu_")


@with_form
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return the self-normalizing exponential unit (Klambauer and others 2017)."""
    return also_in(input, activation.selu(input), inplace, "selu_")


@with_form
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return ``input * sigmoid(input)`` (Hendrycks and Gimpel 2016; Elfwing, Uchibe, Doya 2017)."""
    return also_in(input, _silu(input), inplace, "silu_")


@with_form
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return ``input * tanh(softplus(input))`` (Misra 2019)."""
    return also_in(input, _mish(input), inplace, "mish_")


@with_form
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Return ``min(max(input + 3, 0), 6) / 6``."""
    return also_in(input, _hardsigmoid(input), inplace, "hardsigmoid_")


@with_form
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return ``input * hardsigmoid(input)`` (Howard and others 2019)."""
    return also_in(input, _hardswish(input), inplace, "hardswish_")


@with_form
def hardtanh(input: Tensor, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False) -> Tensor:
    """Return ``input`` limited to ``[min_val, max_val]``, with a derivative of 0 at the limits."""
    return also_in(input, activation.hardtanh(input, min_val, max_val), inplace, "hardtanh_")


@with_form
def leaky_relu(input: Tensor, negative_slope: Any = 0.01, inplace: bool = False) -> Tensor:
    """Return ``input`` above zero, ``negative_slope * input`` below."""
    return also_in(input, activation.leaky_relu(input, negative_slope), inplace, "leaky_relu_")


@with_form
def threshold(input: Tensor, threshold: Any, value: Any, inplace: bool = False) -> Tensor:
    """Return ``input`` where it is above ``threshold`` or NaN, ``value`` elsewhere."""
    return also_in(input, activation.threshold(input, threshold, value), inplace, "threshold_")


@with_form
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
    inplace: bool = False, *, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return ``input`` above zero, a share of it below: drawn for each element in training, else the middle.

    Xu, Wang, Chen, Li 2015. Shares lie in ``[lower, upper)``, the same on every device for one seed. Raises
    ``ArgumentError`` where ``lower`` is above ``upper``.
    """
    if not lower <= upper:
        raise ArgumentError(f"rrelu: lower must not be above upper, got {lower!r} and {upper!r}.")
    slope: Any = (lower + upper) / 2
    if training:
        drawn = uniform(input.shape, lower, upper, device=input.device, generator=generator, dtype="float32")
        slope = cast(drawn, input.dtype)
    return also_in(input, activation.leaky_relu(input, slope), inplace, "rrelu_")
