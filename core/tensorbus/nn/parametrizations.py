"""Ready parametrizations: weight normalization and spectral normalization.

State dicts and values are PyTorch's (``torch.nn.utils.parametrizations``).
"""

from __future__ import annotations

from typing import Any

from ..autograd.engine import no_grad
from ..errors import ArgumentError
from ..ops.matmul.distance import normalize, vector_length
from ..ops.matmul.matmul import matmul
from ..ops.movement.family import normalize_axis
from ..ops.movement.movement import moveaxis, reshape
from ..ops.reduction.reduction import sum
from ..random import generator as random
from ..tensor.tensor import Tensor
from .module import Module
from .modules.convolution.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .parametrize import register_parametrization


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def _length(self, v: Tensor) -> Tensor:
        if self.dim is None:
            return vector_length(v, None)
        axis = normalize_axis("weight_norm", self.dim, v.ndim)
        return vector_length(v, tuple(k for k in range(v.ndim) if k != axis), True)

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        """Return the direction ``v`` with the length ``g``."""
        return v * (g / self._length(v))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the length and the direction of a weight."""
        return self._length(weight), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Compute a weight from a length and a direction (Salimans and Kingma 2016); return the module.

    There is one length for each place along ``dim``, or one in all for None.

    >>> import tensorbus as tb
    >>> layer = tb.nn.parametrizations.weight_norm(tb.nn.Linear(3, 2))
    >>> layer.parametrizations.weight.original0.shape, layer.weight.shape
    ((2, 1), (2, 3))
    """
    return register_parametrization(module, name, _WeightNorm(dim))


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if n_power_iterations < 1:
            raise ArgumentError(
                f"spectral_norm: n_power_iterations must be >= 1, got {n_power_iterations!r}."
            )
        self.dim = normalize_axis("spectral_norm", dim, weight.ndim)
        self.n_power_iterations = n_power_iterations
        self.eps = eps
        if weight.ndim > 1:
            rows, columns = self._matrix(weight).shape
            at: Any = {"dtype": weight.dtype, "device": weight.device}
            self.register_buffer("_u", normalize(random.normal((rows,), **at), dim=0, eps=eps))
            self.register_buffer("_v", normalize(random.normal((columns,), **at), dim=0, eps=eps))
            self._iterate(self._matrix(weight), 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        rows: Tensor = moveaxis(weight, self.dim, 0)
        return reshape(rows, (rows.shape[0], -1))

    def _iterate(self, matrix: Tensor, count: int) -> None:
        with no_grad():
            for _ in range(count):
                self._u = normalize(matmul(matrix, self._v), dim=0, eps=self.eps)
                self._v = normalize(matmul(matrix.mT, self._u), dim=0, eps=self.eps)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight over its largest singular value; in training the estimate becomes better."""
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        return weight / sum(self._u * matmul(matrix, self._v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """Return the value itself: any weight will do to start from."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
    dim: int | None = None,
) -> Module:  # fmt: skip
    """Divide a weight by its largest singular value (Miyato et al. 2018); return the module.

    It is found by power iteration, a round each time in training. ``dim`` is the axis of the outputs: 0, or 1
    for transposed convolutions.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"spectral_norm: {type(module).__name__} has no parameter {name!r}.")
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    norm = _SpectralNorm(weight.detach(), n_power_iterations, dim, eps)
    norm.train(module.training)
    return register_parametrization(module, name, norm)
