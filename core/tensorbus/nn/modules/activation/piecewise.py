"""Piecewise linear activations as modules, and two that multiply by one."""

from __future__ import annotations

from ....devices.device import Device
from ....dtypes.definition import DType
from ....errors import ArgumentError
from ....ops.creation.creation import full
from ....tensor.tensor import Tensor
from ... import functional
from ...functional.activation import also_in
from ...module import Module
from ...parameter import Parameter


class ReLU(Module):
    """``max(x, 0)``. With ``inplace`` the input then holds the result too.

    >>> import tensorbus as tb
    >>> tb.nn.ReLU()(tb.asarray([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.relu(input), self.inplace, "relu_")

    def extra_repr(self) -> str:
        """Return the setting where it is on."""
        return "inplace=True" if self.inplace else ""


class ReLU6(Module):
    """``min(max(x, 0), 6)``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.relu6(input), self.inplace, "relu6_")

    def extra_repr(self) -> str:
        """Return the settings."""
        return "inplace=True" if self.inplace else ""


class LeakyReLU(Module):
    """``x`` above zero, ``negative_slope * x`` below."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.leaky_relu(input, self.negative_slope), self.inplace, "leaky_relu_")

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """``x`` above zero, ``weight * x`` below, one learned weight or one for each channel (axis 1).

    He, Zhang, Ren, Sun 2015. Raises ``ArgumentError`` unless there is at least one weight.
    """

    weight: Parameter

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Device | str | None = None,
        dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_parameters < 1:
            raise ArgumentError(f"PReLU: at least one weight is needed, got {num_parameters!r}.")
        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), float(init), dtype=dtype, device=device))

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.prelu(input, self.weight)
        return out

    def extra_repr(self) -> str:
        """Return how many weights there are."""
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """``x`` above zero, a share of it below: drawn in training, else the middle (Xu, Wang, Chen, Li 2015)."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return functional.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class Hardtanh(Module):
    """``x`` limited to ``[min_val, max_val]``."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out = functional.hardtanh(input, self.min_val, self.max_val)
        return also_in(input, out, self.inplace, "hardtanh_")

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class Hardsigmoid(Module):
    """``min(max(x + 3, 0), 6) / 6``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.hardsigmoid(input), self.inplace, "hardsigmoid_")

    def extra_repr(self) -> str:
        """Return the settings."""
        return "inplace=True" if self.inplace else ""


class Hardswish(Module):
    """``x * hardsigmoid(x)`` (Howard and others 2019)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.hardswish(input), self.inplace, "hardswish_")

    def extra_repr(self) -> str:
        """Return the settings."""
        return "inplace=True" if self.inplace else ""


class Hardshrink(Module):
    """``x``, or 0 where it is within ``lambd`` of zero."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.hardshrink(input, self.lambd)
        return out

    def extra_repr(self) -> str:
        """Return the setting."""
        return str(self.lambd)


class Softshrink(Module):
    """``x`` moved towards zero by ``lambd``."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.softshrink(input, self.lambd)
        return out

    def extra_repr(self) -> str:
        """Return the setting."""
        return str(self.lambd)


class Threshold(Module):
    """``x`` where it is above ``threshold``, ``value`` elsewhere."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out = functional.threshold(input, self.threshold, self.value)
        return also_in(input, out, self.inplace, "threshold_")

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")
