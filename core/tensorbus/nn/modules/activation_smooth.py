"""Smooth activations as modules: exponential units, soft versions of thresholds, gates."""

from __future__ import annotations

from ...tensor.tensor import Tensor
from .. import functional
from ..functional.activation import also_in
from ..module import Module


class ELU(Module):
    """``x`` above zero, ``alpha * expm1(x)`` below (Clevert, Unterthiner, Hochreiter 2016)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.elu(input, self.alpha), self.inplace)

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
        return also_in(input, functional.celu(input, self.alpha), self.inplace)

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
        return also_in(input, functional.selu(input), self.inplace)

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
        return also_in(input, functional.mish(input), self.inplace)

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


class LogSoftmax(Module):
    """The logarithm of the softmax along ``dim``."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.log_softmax(input, self.dim)
        return out

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"dim={self.dim}"
