"""Smooth activations as modules: sigmoids, exponential units, soft versions of thresholds, gates."""

from __future__ import annotations

from ....errors import ArgumentError
from ....tensor.tensor import Tensor
from ... import functional
from ...functional.activation import also_in
from ...module import Module


class Sigmoid(Module):
    """The logistic function."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return functional.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return functional.tanh(input)


class SiLU(Module):
    """``x * sigmoid(x)`` (Hendrycks and Gimpel 2016; Elfwing, Uchibe, Doya 2017)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.silu(input), self.inplace, "silu_")

    def extra_repr(self) -> str:
        """Return the setting where it is on."""
        return "inplace=True" if self.inplace else ""


class GELU(Module):
    """The Gaussian error linear unit: exact, or by its approximation with ``approximate="tanh"``."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ArgumentError(f"GELU: approximate must be 'none' or 'tanh', got {approximate!r}.")
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.gelu(input, self.approximate)
        return out

    def extra_repr(self) -> str:
        """Return the setting."""
        return f"approximate={self.approximate!r}"


class ELU(Module):
    """``x`` above zero, ``alpha * expm1(x)`` below (Clevert, Unterthiner, Hochreiter 2016)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.elu(input, self.alpha), self.inplace, "elu_")

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(Module):
    """``x`` above zero, ``alpha * expm1(x / alpha)`` below (Barron 2017)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.celu(input, self.alpha), self.inplace, "celu_")

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class SELU(Module):
    """The self-normalizing exponential unit (Klambauer and others 2017)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.selu(input), self.inplace, "selu_")

    def extra_repr(self) -> str:
        """Return the settings."""
        return "inplace=True" if self.inplace else ""


class Mish(Module):
    """``x * tanh(softplus(x))`` (Misra 2019)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.mish(input), self.inplace, "mish_")

    def extra_repr(self) -> str:
        """Return the settings."""
        return "inplace=True" if self.inplace else ""


class Softplus(Module):
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x`` is above ``threshold``."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.softplus(input, self.beta, self.threshold)
        return out

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"beta={self.beta}, threshold={self.threshold}"


class LogSigmoid(Module):
    """``log(sigmoid(x))``."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.logsigmoid(input)
        return out


class Softsign(Module):
    """``x / (1 + abs(x))``."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.softsign(input)
        return out


class Tanhshrink(Module):
    """``x - tanh(x)``."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.tanhshrink(input)
        return out


class GLU(Module):
    """The first half of ``x`` along ``dim`` times the sigmoid of the second (Dauphin and others 2017)."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.glu(input, self.dim)
        return out

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"dim={self.dim}"
